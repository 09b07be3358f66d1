package envbuild

import (
	"fmt"
	"strings"
)

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

// oldestDriver is the oldest Linux driver that serves a major version of CUDA, from NVIDIA's table of compatibility.
var oldestDriver = map[string]string{"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}

// driverTooOld says so of a driver that the host's torch can not work with, "" where it can or nobody knows.
func driverTooOld(gpu GPUFacts, build string) string {
	digits, isCUDA := strings.CutPrefix(build, "cu")
	if !isCUDA || len(digits) < 3 || gpu.Driver == "" {
		return ""
	}
	oldest := oldestDriver[digits[:len(digits)-1]]
	if oldest == "" || compareVersions(gpu.Driver, oldest) >= 0 {
		return ""
	}
	return fmt.Sprintf("the card's driver %s is older than the %s that CUDA %s needs: this torch will not see the card; update the driver, or give the host a torch for it",
		gpu.Driver, oldest, digits[:len(digits)-1])
}
