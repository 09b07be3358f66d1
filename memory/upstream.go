package memory

import (
	"fmt"
	"strconv"
	"strings"
)

// What ComfyUI fixes. File and line are those of ComfyUI 0.30.0 (mm is comfy/model_management.py); what is known to
// differ in another version is keyed by Version. Amounts that upstream computes in Python floats stay float64 here, in
// bytes, with the same operations in the same order, so that they round alike; the products are converted explicitly
// because a fused multiply-add would round differently.
const (
	// minimumInference is the part of the minimum inference memory that does not depend on the reserve, in GiB (mm:853).
	minimumInference = 0.8
	// loadOverhead is the factor on the weights of a load (mm:963).
	loadOverhead = 1.1
	// fullUnload is the shortfall that stands for "everything" (mm:873).
	fullUnload = 1e32
	// smallestBudget is the partial load budget that stands for "as little as possible" (mm:991).
	smallestBudget = 0.1
	// idleCacheShare is the share of the free memory above which an idle torch cache is emptied though nothing was
	// unloaded (mm:897).
	idleCacheShare = 0.25
	// dynamicActivationFactor and dynamicActivationExtra pad the estimate of a paged model (comfy/model_patcher.py:1832).
	dynamicActivationFactor = 1.3
	dynamicActivationExtra  = 1 << 30

	// PinPressureHysteresis is what upstream frees beyond a pin shortfall (PIN_PRESSURE_HYSTERESIS, mm:611).
	PinPressureHysteresis = 256 * MiB
	// PinRegistrationHysteresis is what it frees beyond a shortfall of registrations (mm:615).
	PinRegistrationHysteresis = 2 * GiB
	// PinFloor is the machine RAM that pinning keeps available in a process without an executor (mm:712).
	PinFloor = 2 * GiB
	// PagerFloor is the headroom that the pager keeps for others whatever it was told, a compile-time constant.
	PagerFloor = 256 * MiB
	// PagerCastCommit is how much a cast buffer of the pager commits at a time.
	PagerCastCommit = 16 * MiB
	// DefaultStreams is the number of offload streams on NVIDIA and AMD (mm:1339).
	DefaultStreams = 2
)

// Version is a version of ComfyUI. The zero Version is unknown and gets the stricter of two formulas.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads "0.30.0", "v0.30" or "0.30.0-rc1".
func ParseVersion(text string) (Version, error) {
	var numbers [3]int
	core, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "v"), "-")
	core, _, _ = strings.Cut(core, "+")
	parts := strings.Split(core, ".")
	if len(parts) > len(numbers) {
		parts = parts[:len(numbers)]
	}
	for i, part := range parts {
		number, err := strconv.Atoi(part)
		if err != nil || number < 0 {
			return Version{}, fmt.Errorf("ComfyUI version %q: part %d is not a number; expected something like 0.30.0", text, i+1)
		}
		numbers[i] = number
	}
	return Version{numbers[0], numbers[1], numbers[2]}, nil
}

// String prints "0.30.0", or "unknown".
func (v Version) String() string {
	if v == (Version{}) {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// before tells whether v is older than another version.
func (v Version) before(other Version) bool {
	if v.Major != other.Major {
		return v.Major < other.Major
	}
	if v.Minor != other.Minor {
		return v.Minor < other.Minor
	}
	return v.Patch < other.Patch
}
