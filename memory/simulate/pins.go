package simulate

import (
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// pinBook is what the supervisor knows of pins: the last report and the caps of every process.
type pinBook struct {
	world   *world
	entries map[memory.Party]*pinEntry
}

type pinEntry struct {
	process *process
	pinner  memory.Pinner
}

func newPinBook(w *world) pinBook {
	return pinBook{world: w, entries: map[memory.Party]*pinEntry{}}
}

func (b *pinBook) forget(p *process) {
	if entry := b.entries[p.party]; entry != nil && entry.process == p {
		delete(b.entries, p.party)
	}
}

// list is every process's state, ordered by party.
func (b *pinBook) list() []memory.Pinner {
	pinners := make([]memory.Pinner, 0, len(b.entries))
	for _, entry := range b.entries {
		pinners = append(pinners, entry.pinner)
	}
	slices.SortFunc(pinners, func(x, y memory.Pinner) int { return x.Party.Compare(y.Party) })
	return pinners
}

// first is the cap that a new process starts with; it comes with its first message, so it is in force at once.
func (b *pinBook) first(p *process) float64 {
	if b.world.scenario.Machine.RAM <= 0 {
		return -1
	}
	entry := &pinEntry{p, memory.Pinner{Party: p.party, Live: true}}
	if p.party.IsHost() {
		entry.pinner.Ceiling = ownCeiling(&b.world.scenario, p.device)
	}
	b.entries[p.party] = entry
	for _, set := range memory.SplitPins(b.list(), b.world.scenario.Machine.Limit).Set {
		if set.Party == p.party {
			entry.pinner.InForce = set.Bytes
		}
	}
	if entry.pinner.InForce <= 0 {
		return 1 // nothing yet, but never zero
	}
	return float64(entry.pinner.InForce)
}

// census takes over what a process reports.
func (b *pinBook) census(p *process) {
	entry := b.entries[p.party]
	if entry == nil || entry.process != p {
		return
	}
	largest := p.largestModel()
	if entry.pinner.Pinned != p.pinned || entry.pinner.LargestModel != largest {
		entry.pinner.Stable = 0
	}
	entry.pinner.Pinned, entry.pinner.LargestModel = p.pinned, largest
}

// sweepPins splits the budget anew and asks for what is above the caps.
func (c *coordinator) sweepPins(now time.Time) {
	machine := c.world.scenario.Machine
	if machine.RAM <= 0 {
		return
	}
	for _, entry := range c.pins.entries {
		entry.pinner.Live = entry.process.busy() || !entry.process.released && len(entry.process.models) > 0
		entry.pinner.Stable++
		if entry.pinner.Pinned > max(entry.pinner.InForce, entry.pinner.Sent) {
			entry.pinner.Over++
		} else {
			entry.pinner.Over = 0
		}
	}
	pinners := c.pins.list()
	plan := memory.SplitPins(pinners, machine.Limit)
	c.world.result.PinsLate += len(plan.Late)
	promised := memory.Bytes(0)
	for i := range pinners {
		promised += max(pinners[i].InForce, pinners[i].Sent)
	}
	for _, set := range plan.Set {
		entry := c.pins.entries[set.Party]
		if set.Cause == memory.CausePinNone {
			continue
		}
		promised += max(0, set.Bytes-max(entry.pinner.InForce, entry.pinner.Sent))
		entry.pinner.Sent = set.Bytes
		p, bytes := entry.process, set.Bytes
		c.send(func() { // set in the process, which says so
			if !p.alive {
				return
			}
			p.pinCap = float64(bytes)
			c.send(func() {
				if entry.pinner.Sent == bytes {
					entry.pinner.InForce, entry.pinner.Sent = bytes, 0
				}
			})
		})
	}
	if plan.Budget > 0 && promised > plan.Budget {
		c.world.result.PinsOver++
	}
	for _, action := range plan.Release {
		c.serve(action, func(memory.Bytes) {})
	}
	ram := memory.RAM{Total: machine.RAM, Available: machine.RAM - c.world.usedRAM()}
	if machine.Limit > 0 {
		ram.Total, ram.Available = machine.Limit, machine.Limit-c.world.usedRAM()
	}
	pressure := memory.PinPressure(now, c.pressure, ram, pinners)
	if len(pressure.Actions) > 0 {
		c.pressure = now
	}
	for _, action := range pressure.Actions {
		c.serve(action, func(memory.Bytes) {})
	}
}
