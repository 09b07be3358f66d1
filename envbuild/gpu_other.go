//go:build !linux && !windows && !darwin

package envbuild

// probeGPU: no accelerator that torch supports has a driver here.
func probeGPU(string) []GPUDevice { return nil }
