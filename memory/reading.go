package memory

import "time"

// Source says where a reading of a card comes from, the best first.
type Source string

// The sources of readings.
const (
	FromDriver Source = "driver" // NVML: the whole card, whoever holds it
	FromWorker Source = "worker" // a process's own reading where that is device wide (Linux)
	FromBooks  Source = "books"  // the card's size less what we know of: foreign processes are not seen
)

// Reading is one look at a card.
type Reading struct {
	Device string    `json:"device"`
	At     time.Time `json:"at"` // when the reading began: what was allocated before it is in it
	Source Source    `json:"source"`
	Total  Bytes     `json:"total"`
	Free   Bytes     `json:"free"`
	Driver Bytes     `json:"driver"` // kept by the driver, in no process's name
	// ProcessLocal: a process on this card sees only its own bytes as taken (WDDM).
	ProcessLocal bool `json:"process_local"`
	// Processes is what the driver says each party holds, context included. A party without an entry holds nothing,
	// if Attributed.
	Processes map[Party]Bytes `json:"-"`
	// Attributed: the driver's process list could be matched to ours. False in a container and on WDDM.
	Attributed bool `json:"attributed"`
}

// sane tells whether the figures can be those of a card.
func (r *Reading) sane() bool {
	return r.Device != "" && r.Total > 0 && r.Total <= plausible && r.Free >= 0 && r.Free <= r.Total && r.Driver >= 0
}
