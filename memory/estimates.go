package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Attention is the backend that a process resolved at import. Upstream's activation estimate has two branches, chosen by
// it (comfy/model_base.py:418).
type Attention struct {
	Name string `json:"name"`
	// Compact is xformers_enabled() or pytorch_attention_flash_attention(): the branch that counts the element size.
	Compact bool `json:"compact"`
}

// Upstream's two estimates, in MiB per element of area and unit of the model's factor.
const (
	compactPerByte = 0.01
	looseEstimate  = 0.15
)

// ActivationEstimate is BaseModel.memory_required, in bytes: area is the sum over the input shapes of batch times
// everything but the channels, factor the model's memory_usage_factor.
func ActivationEstimate(area float64, elementSize int, factor float64, attention Attention) float64 {
	if attention.Compact {
		return float64(float64(float64(area*float64(elementSize))*compactPerByte)*factor) * (1024 * 1024)
	}
	return float64(float64(area*looseEstimate)*factor) * (1024 * 1024)
}

// ConvertEstimate turns an estimate made under one attention backend into what another would have made of the same
// shapes: 7.5 times apart at two bytes an element. False: it cannot be converted, since the element size is not known,
// and must be shown as another backend's.
func ConvertEstimate(estimate float64, from, to Attention, elementSize int) (float64, bool) {
	switch {
	case from.Compact == to.Compact:
		return estimate, true
	case elementSize <= 0:
		return estimate, false
	case from.Compact:
		return estimate * (looseEstimate / (compactPerByte * float64(elementSize))), true
	}
	return estimate * (compactPerByte * float64(elementSize) / looseEstimate), true
}

// stalled prints the kernel's pressure figures.
func stalled(ram RAM) string {
	if !ram.PressureKnown {
		return "not reported"
	}
	percent := func(value float64) string { return strconv.FormatFloat(value, 'f', 1, 64) + "%" }
	return "some " + percent(ram.SomeStalled) + ", full " + percent(ram.FullyStalled)
}

// EstimateKey says what was measured: a node class on a kind of device, under one attention backend.
type EstimateKey struct {
	Node      string `json:"node"`
	Device    string `json:"device"` // the card's model, such as "NVIDIA GeForce RTX 3090"
	Attention string `json:"attention"`
}

// estimatesKept is how many measurements are remembered.
const estimatesKept = 4096

// fading is the share by which a remembered peak follows lower ones down; higher ones count at once.
const fading = 8

// Estimates remembers what computing a node took beyond its weights. It is advice beside the model's own estimate, which
// is zero for some (ControlNet). It marshals to JSON so that it outlives the process.
type Estimates struct {
	peaks map[EstimateKey]measuredPeak
}

type measuredPeak struct {
	EstimateKey
	Peak Bytes     `json:"peak"`
	Seen int       `json:"seen"`
	Last time.Time `json:"last"`
}

// Observe notes how far a computation's peak lay above what was resident before it, in bytes. What cannot be is ignored.
func (e *Estimates) Observe(now time.Time, key EstimateKey, peak Bytes) {
	if key.Node == "" || peak <= 0 || peak > plausible {
		return
	}
	if e.peaks == nil {
		e.peaks = make(map[EstimateKey]measuredPeak)
	}
	known := e.peaks[key]
	if peak < known.Peak {
		peak = known.Peak - (known.Peak-peak)/fading
	}
	e.peaks[key] = measuredPeak{key, peak, known.Seen + 1, now}
	if len(e.peaks) > estimatesKept {
		e.forgetOldest()
	}
}

func (e *Estimates) forgetOldest() {
	var oldest *measuredPeak
	for _, peak := range e.peaks {
		if oldest == nil || cmp.Or(peak.Last.Compare(oldest.Last), compareKeys(peak.EstimateKey, oldest.EstimateKey)) < 0 {
			oldest = &peak
		}
	}
	delete(e.peaks, oldest.EstimateKey)
}

func compareKeys(a, b EstimateKey) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Attention, b.Attention))
}

// Advice is what the node took before, in bytes, never below upstream's own minimum; false when it was never measured.
func (e *Estimates) Advice(key EstimateKey) (Bytes, bool) {
	peak, ok := e.peaks[key]
	if !ok {
		return 0, false
	}
	return max(peak.Peak, ceilBytes(MinimumInferenceMemory(0))), true
}

// Count is how many measurements are remembered.
func (e *Estimates) Count() int { return len(e.peaks) }

// MarshalJSON writes the measurements ordered by key.
func (e *Estimates) MarshalJSON() ([]byte, error) {
	peaks := make([]measuredPeak, 0, len(e.peaks))
	for _, peak := range e.peaks {
		peaks = append(peaks, peak)
	}
	slices.SortFunc(peaks, func(a, b measuredPeak) int { return compareKeys(a.EstimateKey, b.EstimateKey) })
	return json.Marshal(peaks)
}

// UnmarshalJSON reads what MarshalJSON wrote; entries that cannot be are left out.
func (e *Estimates) UnmarshalJSON(text []byte) error {
	var peaks []measuredPeak
	if err := json.Unmarshal(text, &peaks); err != nil {
		return fmt.Errorf("reading activation estimates: %w", err)
	}
	e.peaks = make(map[EstimateKey]measuredPeak, len(peaks))
	for _, peak := range peaks {
		if peak.Node != "" && peak.Peak > 0 && peak.Peak <= plausible {
			e.peaks[peak.EstimateKey] = peak
		}
	}
	for len(e.peaks) > estimatesKept {
		e.forgetOldest()
	}
	return nil
}
