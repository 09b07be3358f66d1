package envbuild

import "runtime"

// probeGPU: every Mac with Apple's own processor has Metal's device; torch has one build for all of them.
func probeGPU(string) []GPUDevice {
	if runtime.GOARCH != "arm64" {
		return nil
	}
	return []GPUDevice{{Kind: "apple", Source: "Metal"}}
}

// probeDriver tells nothing here: only NVIDIA's driver on Linux is asked.
func probeDriver(string) string { return "" }
