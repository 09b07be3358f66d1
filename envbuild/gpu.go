package envbuild

import "strings"

// preferGPU chooses the accelerator that counts: the one that torch is built for, else the first found.
func preferGPU(devices []GPUDevice, build string) GPUFacts {
	facts := GPUFacts{Devices: devices}
	for _, device := range devices {
		if facts.Kind == "" || device.Kind == gpuKindOf(build) {
			facts.Kind = device.Kind
		}
	}
	facts.Present = facts.Kind != ""
	return facts
}

// gpuKindOf is the accelerator that a torch build uses, "" for cpu.
func gpuKindOf(build string) string {
	switch {
	case strings.HasPrefix(build, "cu"):
		return "nvidia"
	case strings.HasPrefix(build, "rocm"):
		return "amd"
	case build == "xpu":
		return "intel"
	}
	return ""
}
