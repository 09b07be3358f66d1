// Package spawn launches one worker and talks to it: a launcher process behind go-plugin, the Python process it starts,
// and everything below them.
//
// It owns the go-plugin contract (spawn/launcherpb), the launcher (ServeLauncher), which on Linux lends its connection to
// Python to the supervisor (lend.go says why and how), process identity and process trees
// (Process, Tree, Sweep), the records from which a restarted supervisor adopts live launchers (Record, LoadRecords,
// Attach), the reading of Python's output, and the table of memory files (Holder). spawn/wire is the protocol on top,
// spawn/pyworker the Python at the other end.
//
// It imports nothing of this module but spawn/wire, and makes no policy: who is launched, when and why is its caller's.
//
// It promises that a worker's process tree ends with its launcher, its host or its supervisor; that nothing a worker
// prints or refuses to read blocks anybody else; and that an ended worker leaves no process, socket, file or cgroup.
package spawn
