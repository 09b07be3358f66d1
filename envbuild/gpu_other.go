//go:build !linux && !windows && !darwin

package envbuild

// probeGPU: no accelerator that torch supports has a driver here.
func probeGPU(string) []GPUDevice { return nil }

// probeDriver tells nothing here: only NVIDIA's driver on Linux is asked.
func probeDriver(string) string { return "" }
