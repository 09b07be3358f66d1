package budget

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// assignment is what a process is to have in force, and what it has.
type assignment struct {
	wanted, inForce Assignment
	sent            bool // one is on its way
	missing         string
}

// assign sends what is not in force yet. One goes at a time, so that what was sent last is what holds; a process that has
// said nothing of itself yet has nothing to set it in, and gets it with its first answer.
func (k *Keeper) assign(m *member) {
	if !m.seen || m.deaf || m.assigned.sent {
		return
	}
	difference := m.assigned.wanted.without(m.assigned.inForce)
	if difference.empty() {
		return
	}
	m.assigned.sent = true
	m.Line.Ask(MethodAssign, difference, func(result json.RawMessage, err error) {
		var said Assigned
		if err == nil {
			err = json.Unmarshal(result, &said)
		}
		k.post(func() { k.assignedNow(m, difference, said, err) })
	})
}

// assignedNow takes the answer to an assignment.
func (k *Keeper) assignedNow(m *member, set Assignment, said Assigned, err error) {
	m.assigned.sent = false
	if k.members[m.Party] != m {
		return
	}
	if err != nil {
		m.deaf = m.deaf || isUnknown(err)
		if !m.deaf {
			k.event("memory.assign_failed", m.Party, "", err.Error(), nil)
		}
		return // a sweep tries again
	}
	if said.Pending {
		return // its next report tells that the time has come
	}
	k.inForce(m, set)
	if value, ok := said.Applied["pin_cap"].(float64); ok && set.PinCap != nil && value > 0 {
		m.pins.inForce(memory.Bytes(value))
	}
	if missing := strings.Join(said.Missing, ", "); missing != m.assigned.missing {
		m.assigned.missing = missing
		if missing != "" {
			k.config.Note(m.Party, fmt.Sprintf("this process has no place for %s: what it is for is not in force here", missing))
			k.event("memory.assign_missing", m.Party, "", missing, nil)
		}
	}
	if set.PinCap != nil {
		k.unsplit = true // what it gave up is there for others now
	}
	k.assign(m)
}

// inForce notes what a process has set.
func (k *Keeper) inForce(m *member, set Assignment) {
	m.assigned.inForce = m.assigned.inForce.with(set)
	if set.PinCap != nil {
		m.pins.inForce(*set.PinCap)
	}
}

// handOver is what is not in force in a process yet, for an answer that it takes before it goes on; nil: all is. What is
// on its way already comes again: it may wait behind the very call that asks.
func (k *Keeper) handOver(m *member) *Assignment {
	k.splitNow()
	difference := m.assigned.wanted.without(m.assigned.inForce)
	if difference.empty() {
		return nil
	}
	k.inForce(m, difference)
	return &difference
}

func (a Assignment) empty() bool {
	return a.Reserve == nil && a.Headroom == nil && a.PinCap == nil && a.VRAMCap == nil
}

// without is what differs from another set.
func (a Assignment) without(b Assignment) Assignment {
	return Assignment{differing(a.Reserve, b.Reserve), differing(a.Headroom, b.Headroom), differing(a.PinCap, b.PinCap), differing(a.VRAMCap, b.VRAMCap)}
}

// with is the set with another laid over it.
func (a Assignment) with(b Assignment) Assignment {
	return Assignment{over(b.Reserve, a.Reserve), over(b.Headroom, a.Headroom), over(b.PinCap, a.PinCap), over(b.VRAMCap, a.VRAMCap)}
}

func differing[T comparable](wanted, has *T) *T {
	if wanted == nil || has != nil && *has == *wanted {
		return nil
	}
	return wanted
}

func over[T any](above, below *T) *T {
	if above != nil {
		return above
	}
	return below
}
