package memory

import (
	"cmp"
	"math"
	"slices"
)

// DefaultReserve is EXTRA_RESERVED_VRAM without --reserve-vram, in bytes (mm:837-841): 400 MiB; on Windows 600 MiB, and
// 100 MiB more on cards with more than 15 GiB.
func DefaultReserve(windows bool, card Bytes) float64 {
	if !windows {
		return float64(400 * MiB)
	}
	reserve := float64(600 * MiB)
	if float64(card)/(1024*1024) > 15*1024 { // total_vram is kept in MiB, as a float
		reserve += float64(100 * MiB)
	}
	return reserve
}

// ReserveFromFlag is EXTRA_RESERVED_VRAM under --reserve-vram, in bytes (mm:844). Zero and negative values are values.
func ReserveFromFlag(gib float64) float64 { return gib * 1024 * 1024 * 1024 }

// MinimumInferenceMemory is what upstream keeps free for computing, reserve included, in bytes (mm:852).
func MinimumInferenceMemory(reserve float64) float64 {
	return float64(1024*1024*1024*minimumInference) + reserve
}

// Load is what load_models_gpu is called with, for one device.
type Load struct {
	Weights    Bytes   // model_memory_required summed over the models: what of them is not on the device yet
	Activation float64 // memory_required: the activation estimate, in bytes
	// Minimum is minimum_memory_required before the reserve, in bytes; below 0: the caller passed none.
	Minimum float64
	Reserve float64 // EXTRA_RESERVED_VRAM in force in the loading process, in bytes; may be negative
}

// ExtraMemory is the part of the sum that is not weights: max(minimum inference memory, activation + reserve) (mm:906).
func (l Load) ExtraMemory() float64 {
	return math.Max(MinimumInferenceMemory(l.Reserve), l.Activation+l.Reserve)
}

// Required is the free memory that upstream frees for before it loads: weights * 1.1 + ExtraMemory (mm:963).
func (l Load) Required() float64 {
	return float64(float64(l.Weights)*loadOverhead) + l.ExtraMemory()
}

// MinimumRequired is the free memory below which upstream frees a second time and loads partially (mm:907-910).
func (l Load) MinimumRequired() float64 {
	if l.Minimum < 0 {
		return l.ExtraMemory()
	}
	return math.Max(MinimumInferenceMemory(l.Reserve), l.Minimum+l.Reserve)
}

// PartialBudget is lowvram_model_memory for one model (mm:981-994): how many bytes of its weights may be on the device.
// free is get_free_memory at that moment and loaded what of the model is there already; minWeightRatio is 0 on NVIDIA,
// 0.4 elsewhere (mm:454). A result of 0.1 stands for "as little as possible".
func (l Load) PartialBudget(free, loaded Bytes, minWeightRatio float64) float64 {
	current := float64(free + loaded)
	budget := max(0, current-l.MinimumRequired(),
		min(float64(current*minWeightRatio), current-MinimumInferenceMemory(l.Reserve)))
	budget -= float64(loaded)
	if budget == 0 {
		return smallestBudget
	}
	return budget
}

// GetFreeMemory is get_free_memory, in bytes (mm:1698): what the driver calls free and what torch keeps in its cache.
func GetFreeMemory(driverFree, torchReserved, torchActive Bytes) Bytes {
	return driverFree + (torchReserved - torchActive)
}

// DynamicActivation pads an activation estimate as the paged patcher does, in bytes.
func DynamicActivation(estimate float64) float64 {
	return float64(estimate*dynamicActivationFactor) + dynamicActivationExtra
}

// CastBuffers is what a load will commit for casting weights: one buffer a stream, each as large as the largest weight.
// These bytes stand in no measured figure at the moment of the ask.
func CastBuffers(streams int, largestTensor Bytes) Bytes {
	if streams <= 0 || largestTensor <= 0 {
		return 0
	}
	if largestTensor > math.MaxInt64/Bytes(streams) {
		return math.MaxInt64
	}
	return largestTensor * Bytes(streams)
}

// LoadedModel is one entry of current_loaded_models, on one device.
type LoadedModel struct {
	Name       string
	Size       Bytes // model_size
	Loaded     Bytes // loaded_size: on the device now
	References int   // reference count of the patcher
	Dynamic    bool  // paged
	Keep       bool  // in keep_loaded
}

// Unload is one step of upstream's free_memory.
type Unload struct {
	Index int   // in the list that was passed
	Bytes Bytes // what leaves the device
	Whole bool  // the model leaves the list
}

// EvictionOrder is the order in which free_memory looks at models (mm:862-868): the most offloaded first, then the
// fewest references, then the smallest, then the newest. models is in the order of current_loaded_models, newest first.
func EvictionOrder(models []LoadedModel) []int {
	order := make([]int, 0, len(models))
	for i := range models {
		if !models[i].Keep {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &models[a], &models[b]
		return cmp.Or(
			cmp.Compare(y.Size-y.Loaded, x.Size-x.Loaded),
			cmp.Compare(x.References, y.References),
			cmp.Compare(x.Size, y.Size),
			cmp.Compare(a, b),
		)
	})
	return order
}

// FreeMemoryOptions are the arguments and settings of free_memory that change what it does.
type FreeMemoryOptions struct {
	ForDynamic         bool // the ask is for paged models only
	DisableSmartMemory bool // --disable-smart-memory: every ask is for everything
}

// PlanFreeMemory is what free_memory(required, device) does in one process (mm:855): which models it unloads, whole or
// in part, given that process's own reading of free memory. Partial unloads are exact here; upstream rounds up to whole
// modules.
func PlanFreeMemory(required float64, free Bytes, models []LoadedModel, options FreeMemoryOptions) []Unload {
	var unloads []Unload
	for _, index := range EvictionOrder(models) {
		model := &models[index]
		toFree := float64(fullUnload)
		if !options.DisableSmartMemory {
			toFree = required - float64(free)
			if model.Dynamic && options.ForDynamic {
				required -= float64(model.Loaded)
				toFree = 0
			}
		}
		if toFree <= 0 {
			continue
		}
		unload := Unload{Index: index, Bytes: model.Loaded, Whole: true}
		if toFree < float64(model.Loaded) {
			unload.Bytes, unload.Whole = ceilBytes(toFree), false
		}
		free += unload.Bytes
		unloads = append(unloads, unload)
	}
	return unloads
}

// EmptiesCache tells whether free_memory hands torch's idle cache back to the driver (mm:892-898).
func EmptiesCache(unloaded bool, free, torchIdle Bytes, highVRAM bool) bool {
	if unloaded {
		return true
	}
	return !highVRAM && float64(torchIdle) > float64(float64(free)*idleCacheShare)
}

// ceilBytes rounds an amount up to whole bytes, within the range of Bytes; what is not a number is nothing.
func ceilBytes(amount float64) Bytes {
	switch {
	case math.IsNaN(amount):
		return 0
	case amount >= math.MaxInt64:
		return math.MaxInt64
	case amount <= math.MinInt64:
		return math.MinInt64
	}
	return Bytes(math.Ceil(amount))
}
