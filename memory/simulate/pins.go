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
	order   []*pinEntry // by party
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
		b.remove(p.party)
	}
}

func (b *pinBook) place(party memory.Party) (int, bool) {
	return slices.BinarySearchFunc(b.order, party, func(e *pinEntry, party memory.Party) int { return e.pinner.Party.Compare(party) })
}

func (b *pinBook) remove(party memory.Party) {
	delete(b.entries, party)
	if at, ok := b.place(party); ok {
		b.order = slices.Delete(b.order, at, at+1)
	}
}

func (b *pinBook) add(entry *pinEntry) {
	b.remove(entry.pinner.Party)
	b.entries[entry.pinner.Party] = entry
	at, _ := b.place(entry.pinner.Party)
	b.order = slices.Insert(b.order, at, entry)
}

// list is every process's state, ordered by party.
func (b *pinBook) list() []memory.Pinner {
	pinners := make([]memory.Pinner, len(b.order))
	for i, entry := range b.order {
		pinners[i] = entry.pinner
	}
	return pinners
}

// pinRAM is what the container leaves for pinning.
func (w *world) pinRAM() memory.PinRAM {
	return memory.PinRAM{Limit: w.scenario.Machine.Limit, Unpinned: w.scenario.Machine.Other + w.baseRAM}
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
	b.add(entry)
	plan := memory.SplitPins(b.list(), b.world.pinRAM())
	for _, set := range plan.Set {
		if set.Party == p.party {
			entry.pinner.InForce = set.Bytes
		}
	}
	var promised memory.Bytes
	for _, other := range b.order {
		promised += max(other.pinner.InForce, other.pinner.Sent)
	}
	if entry.pinner.InForce > 0 && promised > plan.Budget {
		b.world.result.PinsOver++
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
	for _, entry := range c.pins.order {
		entry.pinner.Live = entry.process.busy() || !entry.process.released && len(entry.process.models) > 0
		entry.pinner.Stable++
		if entry.pinner.Pinned > max(entry.pinner.InForce, entry.pinner.Sent) {
			entry.pinner.Over++
		} else {
			entry.pinner.Over = 0
		}
	}
	pinners := c.pins.list()
	plan := memory.SplitPins(pinners, c.world.pinRAM())
	c.world.result.PinsLate += len(plan.Late)
	promised, grown := memory.Bytes(0), false
	for i := range pinners {
		promised += max(pinners[i].InForce, pinners[i].Sent)
	}
	for _, set := range plan.Set {
		entry := c.pins.entries[set.Party]
		if set.Cause == memory.CausePinNone {
			continue
		}
		if more := set.Bytes - max(entry.pinner.InForce, entry.pinner.Sent); more > 0 {
			promised, grown = promised+more, true
		}
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
	if grown && promised > plan.Budget {
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
