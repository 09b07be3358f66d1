package memory

import (
	"math"
	"time"
)

// ModelCensus is one model as the process that holds it reports it.
type ModelCensus struct {
	Name     string `json:"name"`
	Size     Bytes  `json:"size"`     // all of it
	Resident Bytes  `json:"resident"` // on the device now
	Paged    bool   `json:"paged"`
}

// DeviceCensus is what one process reports for one device.
type DeviceCensus struct {
	Device string `json:"device"`
	// Held is max(pager, torch reserved): the two counters see mostly the same bytes, neither sees all.
	Held Bytes `json:"held"`
	// Overhead is what was measured beyond Held: the context and what libraries allocate for themselves. 0: not measured.
	Overhead Bytes `json:"overhead"`
	// Context: the process has a context on the device.
	Context       bool          `json:"context"`
	Models        []ModelCensus `json:"models,omitempty"`
	LargestTensor Bytes         `json:"largest_tensor"`
	CastBuffers   Bytes         `json:"cast_buffers"` // committed now
	Streams       int           `json:"streams"`      // offload streams, read live
	TorchIdle     Bytes         `json:"torch_idle"`   // torch's cache that nothing uses
	// OwnFree and OwnTotal are the process's own mem_get_info; 0: not read. ProcessLocal: they show its own bytes only.
	OwnFree      Bytes `json:"own_free,omitempty"`
	OwnTotal     Bytes `json:"own_total,omitempty"`
	ProcessLocal bool  `json:"process_local,omitempty"`
}

// OwnReading is the process's look at its device as a reading of the card, for where the driver gives none; false where it
// sees its own bytes only, or did not look. measured is when it looked, or some time before.
func (d *DeviceCensus) OwnReading(measured time.Time) (Reading, bool) {
	reading := Reading{Device: d.Device, At: measured, Source: FromWorker, Total: d.OwnTotal, Free: d.OwnFree}
	return reading, !d.ProcessLocal && reading.sane()
}

// Census is what a process reports that it holds. Reports carry a sequence number that grows by one each.
type Census struct {
	Party    Party          `json:"party"`
	Sequence uint64         `json:"sequence"`
	Devices  []DeviceCensus `json:"devices,omitempty"`
	// Pinned is TOTAL_PINNED_MEMORY, PinCeiling MAX_PINNED_MEMORY (0 or less: pinning is off), both in bytes.
	Pinned       Bytes   `json:"pinned"`
	PinCeiling   float64 `json:"pin_ceiling"`
	LargestModel Bytes   `json:"largest_model"`
	Resident     Bytes   `json:"resident"` // RAM of the process tree
}

// Causes for which a report, or a part of it, is not believed.
const (
	ObjectionUnknown  = "unknown_party" // nobody of that name lives; mostly a dead generation
	ObjectionLate     = "late"          // an older sequence number than one already seen
	ObjectionDoubled  = "doubled"       // the same sequence number again
	ObjectionNegative = "negative"      // taken as nothing
	ObjectionAbsurd   = "absurd"        // more than the machine has; taken as all of it
)

// plausible is the most that any figure is believed to be, in bytes: no machine is larger, and sums of thousands of them
// stay in range.
const plausible = 1024 * TiB

// repair brings every figure of a report into the range that a machine can have and names what it changed. limit is the
// size of a device in bytes, 0 where it is unknown.
func (c Census) repair(limit func(device string) Bytes) (Census, Terms) {
	var wrong Terms
	fix := func(name string, value *Bytes, most Bytes) {
		switch {
		case *value < 0:
			wrong = append(wrong, Amount(name, *value), Fact("objection", ObjectionNegative))
			*value = 0
		case *value > most:
			wrong = append(wrong, Amount(name, *value), Fact("objection", ObjectionAbsurd))
			*value = most
		}
	}
	devices := make([]DeviceCensus, len(c.Devices))
	for i, device := range c.Devices {
		most := limit(device.Device)
		if most <= 0 {
			most = plausible
		}
		fix("held on "+device.Device, &device.Held, most)
		fix("overhead on "+device.Device, &device.Overhead, most-device.Held)
		fix("cast buffers on "+device.Device, &device.CastBuffers, most)
		fix("idle cache on "+device.Device, &device.TorchIdle, most)
		fix("largest tensor on "+device.Device, &device.LargestTensor, plausible)
		streams := Bytes(device.Streams)
		fix("streams on "+device.Device, &streams, 1024)
		device.Streams = int(streams)
		models := make([]ModelCensus, len(device.Models))
		for j, model := range device.Models {
			fix("size of "+model.Name, &model.Size, plausible)
			fix("residency of "+model.Name, &model.Resident, most)
			models[j] = model
		}
		device.Models = models
		devices[i] = device
	}
	c.Devices = devices
	fix("pinned", &c.Pinned, plausible)
	fix("largest model", &c.LargestModel, plausible)
	fix("resident", &c.Resident, plausible)
	if math.IsNaN(c.PinCeiling) || c.PinCeiling > float64(plausible) {
		wrong = append(wrong, Fact("pin ceiling", ObjectionAbsurd))
		c.PinCeiling = -1
	}
	return c, wrong
}

// residentModels is what of the models is on the device, in bytes.
func (d *DeviceCensus) residentModels() (sum Bytes) {
	for i := range d.Models {
		sum = addBytes(sum, d.Models[i].Resident)
	}
	return sum
}
