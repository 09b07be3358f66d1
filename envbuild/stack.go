package envbuild

import (
	"fmt"
	"slices"
	"strings"
)

// stackTag names what a binary package must be built for: Python, torch's release, torch's build kind
// (py312-torch2.10-cu128, py312-torch2.10-rocm64), or py312-none without torch.
func stackTag(python, torch, build string) string {
	tag := "py" + strings.ReplaceAll(minorVersion(python), ".", "")
	if torch == "" {
		return tag + "-none"
	}
	return fmt.Sprintf("%s-torch%s-%s", tag, minorVersion(torch), strings.ReplaceAll(build, ".", ""))
}

// Stack is the tag of environments that follow this host in everything, Python included.
func (f Facts) Stack() string {
	build, _ := f.BuildKind()
	return stackTag(f.Python.Version, f.Torch.Version, build)
}

// BuildKind is the torch build that environments of this host ask for, and why: cpu on a machine without an
// accelerator whatever the host's torch is built for, else the host's. It is empty for a host without torch.
func (f Facts) BuildKind() (build, reason string) {
	host := f.Torch.Build
	if f.Torch.Version == "" {
		return "", "the host has no torch"
	}
	wanted := gpuKindOf(host)
	if wanted == "" {
		return host, "as the host's torch " + f.Torch.Version
	}
	if !f.GPU.Present {
		return "cpu", fmt.Sprintf("this machine has no GPU, though the host's torch %s is built for %s", f.Torch.Version, host)
	}
	driven := f.GPU.Kind == wanted || slices.ContainsFunc(f.GPU.Devices, func(d GPUDevice) bool { return d.Kind == wanted })
	if !driven {
		return "cpu", fmt.Sprintf("the host's torch %s is built for %s, and this machine's GPU is of another make (%s)",
			f.Torch.Version, host, f.GPU.Kind)
	}
	return host, "as the host's torch " + f.Torch.Version
}
