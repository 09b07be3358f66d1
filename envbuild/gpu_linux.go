package envbuild

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// probeGPU looks for the nodes and entries that drivers make for the accelerators they drive. No driver
// library is loaded: a wedged driver can not hold a build up. root is "/" except in tests.
func probeGPU(root string) []GPUDevice {
	var devices []GPUDevice
	first := func(kind string, patterns ...string) {
		for _, pattern := range patterns {
			if found, err := filepath.Glob(filepath.Join(root, pattern)); err == nil && len(found) > 0 {
				for _, path := range found {
					devices = append(devices, GPUDevice{Kind: kind, Source: path})
				}
				return
			}
		}
	}
	// The nodes are what a container is given; the driver's list in /proc shows the machine's cards even where
	// no node was passed on, so the nodes come first and the list counts only where /dev has the control node.
	first("nvidia", "dev/nvidia[0-9]*", "dev/nvgpu/igpu[0-9]*", "dev/nvhost-gpu")
	if len(devices) == 0 {
		if _, err := os.Stat(filepath.Join(root, "dev/nvidiactl")); err == nil {
			first("nvidia", "proc/driver/nvidia/gpus/*")
		}
	}
	if len(devices) == 0 { // Windows' card inside WSL
		if _, err := os.Stat(filepath.Join(root, "dev/dxg")); err == nil {
			first("nvidia", "usr/lib/wsl/lib/libcuda.so.1")
		}
	}
	if _, err := os.Stat(filepath.Join(root, "dev/kfd")); err == nil {
		nodes, _ := filepath.Glob(filepath.Join(root, "sys/class/kfd/kfd/topology/nodes/*/properties"))
		for _, node := range nodes {
			if content, err := os.ReadFile(node); err == nil && hasComputeUnits(string(content)) {
				devices = append(devices, GPUDevice{Kind: "amd", Source: node})
			}
		}
	}
	renders, _ := filepath.Glob(filepath.Join(root, "sys/class/drm/renderD*/device/vendor"))
	for _, vendor := range renders {
		if content, err := os.ReadFile(vendor); err == nil && strings.TrimSpace(string(content)) == "0x8086" {
			devices = append(devices, GPUDevice{Kind: "intel", Source: vendor})
		}
	}
	return devices
}

// hasComputeUnits tells an accelerator's topology node from a processor's, which has no SIMD units.
func hasComputeUnits(properties string) bool {
	for line := range strings.Lines(properties) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "simd_count" {
			return fields[1] != "0"
		}
	}
	return false
}

// driverVersion is in the first line of what NVIDIA's kernel module says of itself, of the open one too.
var driverVersion = regexp.MustCompile(`Kernel Module\D*?(?:x86_64|aarch64)?\s+([0-9]+(?:\.[0-9]+)+)\s`)

// probeDriver reads the version of NVIDIA's driver from its registration.
func probeDriver(root string) string {
	content, err := os.ReadFile(filepath.Join(root, "proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	if match := driverVersion.FindStringSubmatch(string(content)); match != nil {
		return match[1]
	}
	return ""
}
