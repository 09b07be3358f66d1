package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Card is one device, or one MIG instance of a device, at one moment. Sizes are bytes.
type Card struct {
	UUID  string `json:"uuid"`
	PCI   string `json:"pci"` // as NormalizePCI writes it
	Name  string `json:"name"`
	Index int    `json:"index"` // NVML's: the order on the bus
	// Parent is the UUID of the card that this is a MIG instance of; empty: a whole card.
	Parent string `json:"parent,omitempty"`
	// Partitioned: MIG is on, so only its instances can be used.
	Partitioned bool `json:"partitioned,omitempty"`

	Total    memory.Bytes `json:"total"`
	Free     memory.Bytes `json:"free"`
	Reserved memory.Bytes `json:"reserved"` // kept by the driver
	// Processes are those that hold memory of the card.
	Processes []ProcessBytes `json:"processes,omitempty"`
	// Attributed: every process's bytes are known and the PIDs are those of our own namespace.
	Attributed bool      `json:"attributed"`
	At         time.Time `json:"at"` // when the reading began
	// Err is why the figures are missing: the card fell off the bus, say.
	Err error `json:"-"`
}

// ProcessBytes is what the driver says that one process holds.
type ProcessBytes struct {
	PID   int          `json:"pid"`
	Bytes memory.Bytes `json:"bytes"`
}

// Device is the name that the rest of the supervisor calls this card by: its UUID, or its place on the bus.
func (c *Card) Device() string {
	if c.UUID != "" {
		return c.UUID
	}
	return c.PCI
}

// Reading turns the card into what admission works with. parties names the party that a process belongs to; processes of
// nobody are left to the difference.
func (c *Card) Reading(processLocal bool, parties func(pid int) (memory.Party, bool)) memory.Reading {
	reading := memory.Reading{Device: c.Device(), At: c.At, Source: memory.FromDriver, Total: c.Total, Free: c.Free, Driver: c.Reserved,
		ProcessLocal: processLocal, Attributed: c.Attributed}
	if !c.Attributed {
		return reading
	}
	reading.Processes = make(map[memory.Party]memory.Bytes, len(c.Processes))
	for _, process := range c.Processes {
		if party, ok := parties(process.PID); ok {
			reading.Processes[party] += process.Bytes
		}
	}
	return reading
}

// NormalizePCI writes a place on the PCI bus the way this package compares it, "0000:65:00.0", from any of the usual
// spellings: "00000000:65:00.0" (NVML), "0000:65:00.0" (CUDA), "65:00.0" (lspci), with letters of either case.
func NormalizePCI(text string) (string, error) {
	fail := func() (string, error) {
		return "", fmt.Errorf("PCI address %q: expected domain:bus:device.function in hexadecimal, such as 0000:65:00.0", text)
	}
	parts := strings.Split(strings.ToLower(strings.TrimSpace(text)), ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return fail()
	}
	slot, function, found := strings.Cut(parts[2], ".")
	if !found {
		function = "0"
	}
	var numbers [4]uint64
	for i, part := range []string{parts[0], parts[1], slot, function} {
		number, err := strconv.ParseUint(part, 16, []int{32, 8, 8, 8}[i])
		if err != nil {
			return fail()
		}
		numbers[i] = number
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", numbers[0], numbers[1], numbers[2], numbers[3]), nil
}

// Find is the card with an identity as a process reports it: a UUID with or without "GPU-" or "MIG-" before it, or a
// place on the PCI bus. Of a partitioned card only an instance is found, by its own UUID.
func Find(cards []Card, identity string) (*Card, bool) {
	wanted := strings.ToLower(strings.TrimSpace(identity))
	if wanted == "" {
		return nil, false
	}
	pci, err := NormalizePCI(wanted)
	for i := range cards {
		card := &cards[i]
		uuid := strings.ToLower(card.UUID)
		switch {
		case uuid != "" && (uuid == wanted || strings.TrimPrefix(strings.TrimPrefix(uuid, "gpu-"), "mig-") == wanted):
			return card, true
		case err == nil && card.PCI == pci && card.Parent == "" && !card.Partitioned:
			return card, true
		}
	}
	return nil, false
}
