package memory

import "math"

// PinSystem is what a process sees when it computes its own MAX_PINNED_MEMORY at import.
type PinSystem struct {
	Windows bool
	// Pinning is false under --disable-pinned-memory and where there is neither an NVIDIA nor an AMD card.
	Pinning bool
	RAM     Bytes // total, as psutil counts
	// DiskSwap is swap on disks, in bytes. Compressed RAM (zram) is no swap here: it gives nothing back.
	DiskSwap Bytes
	// Limited: a cgroup limits this process's memory; its swap then counts as none.
	Limited bool
}

// flatPinCeiling is the last version whose ceiling is known to be a plain share of the RAM. Newer ones that were not
// read get the newer formula, which is never the larger: a ceiling too low costs speed, one too high the machine.
var flatPinCeiling = Version{0, 30, 999}

// PinCeiling is MAX_PINNED_MEMORY as a process computes it, in bytes; -1 means that pinning is off.
//
// ComfyUI 0.30 (mm:1543-1551): 0.40 of the RAM on Windows, 0.90 elsewhere. ComfyUI 0.38: elsewhere
// max(0.40 RAM, min(0.90 RAM, RAM - 4 GiB, RAM + swap on disk - 16 GiB)).
//
// A host's own figure is always preferred; this is for hosts that report none, and for simulation.
func PinCeiling(version Version, system PinSystem) float64 {
	if !system.Pinning {
		return -1
	}
	ram := float64(system.RAM)
	if system.Windows {
		return ram * 0.40
	}
	if version != (Version{}) && version.before(flatPinCeiling) {
		return ram * 0.90
	}
	swap := float64(system.DiskSwap)
	if system.Limited {
		swap = 0
	}
	return max(ram*0.40, min(ram*0.90, ram-float64(4*GiB), ram+swap-float64(16*GiB)))
}

// HostBufferSize is how large the pinned buffer of a paged model is made when the model is set up, in bytes
// (pinned_hostbuf_size, mm:1555): twice the model, and under a ceiling smaller than the model twice that ceiling, which
// truncates the model's buffer. highRAM is --high-ram: no ceiling at all.
func HostBufferSize(model Bytes, ceiling float64, highRAM bool) Bytes {
	size := float64(model)
	if !highRAM {
		size = math.Min(size, ceiling)
	}
	return max(0, Bytes(float64(size*2)))
}

// PinBudgetShortfall is how much ensure_pin_budget wants freed before it pins size more bytes (mm:706): what the machine
// lacks of max(half the cache headroom, 2 GiB) available, or with --fast-disk what the process lacks under its ceiling.
// Under --high-ram nothing is ever short.
func PinBudgetShortfall(size, available, cacheHeadroom, pinned Bytes, ceiling float64, fastDisk, highRAM bool) float64 {
	switch {
	case highRAM:
		return 0
	case fastDisk:
		return float64(pinned+size) - ceiling
	}
	return float64(size) + math.Max(float64(cacheHeadroom)/2, float64(PinFloor)) - float64(available)
}

// PinRegistrationShortfall is how much ensure_pin_registerable wants freed before it registers size more bytes (mm:743).
func PinRegistrationShortfall(size, pinned Bytes, ceiling float64) float64 {
	return float64(pinned+size) - ceiling
}
