// Package demo shows the whole path once, on a machine that has nothing but Python: an environment is built from a
// manifest, a private supervisor runs its worker, nodes are called, cancelled and killed, and nothing is left behind.
//
// It owns the sequence and the claims: every step checks what it says, and a claim that does not hold is an error. The
// host is the miniature ComfyUI tree of testdata with recorded facts of a ComfyUI without torch.
//
// It may import envbuild, supervisor/api and testdata, and knows nothing of terminals: what happens is reported as
// events while it happens and as one value at the end. It promises that, however it ends, the supervisor it started is
// gone and the folder it made is removed.
package demo
