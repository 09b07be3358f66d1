package budget

import (
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// noPins is the cap of a process for which there is nothing yet: at zero ComfyUI would leak every pin.
const noPins memory.Bytes = 1

// pinner is what is known of one process's pins.
type pinner struct {
	own     float64      // its ceiling before any cap; 0 or less: it does not pin
	force   memory.Bytes // the cap that it acknowledged; 0: none
	sent    memory.Bytes // a later one that it has not
	stable  int          // sweeps without a change
	over    int          // sweeps above its cap
	asked   time.Time    // when it was asked for pins and has not answered; zero: it has
	late    bool         // it was reported
	lastSet memory.PinCap
}

// inForce notes a cap that the process has set. The one that stands for none leaves it a newcomer.
func (p *pinner) inForce(cap memory.Bytes) {
	if cap > noPins {
		p.force = cap
	}
	if p.sent == cap {
		p.sent = 0
	}
}

// takePins takes a census's word on pins.
func (k *Keeper) takePins(m *member, changed bool) {
	p := &m.pins
	wasPinning := p.own > 0
	switch said := m.census; {
	case said.MaxPinned != nil:
		p.own = *said.MaxPinned
	case !wasPinning && m.assigned.inForce.PinCap == nil:
		p.own = said.PinCeiling
		if m.Adopted && p.own > 0 { // an earlier supervisor may have set it
			p.force = memory.Bytes(min(p.own, 1<<60))
			if k.ramKnown { // its own ceiling is not known any more
				p.own = max(p.own, memory.PinCeiling(memory.Version{}, k.machine.PinSystem(k.cards.everywhereLocal, true)))
			}
		}
	}
	if changed {
		p.stable = 0
	}
	k.unsplit = k.unsplit || changed || wasPinning != (p.own > 0)
	k.assign(m)
}

// splitNow splits the budget if something has changed that counts for it: once for many reports.
func (k *Keeper) splitNow() {
	if k.unsplit {
		k.unsplit = false
		k.splitPins(time.Now(), false)
	}
}

// pinners is the state of everybody who pins, ordered by party, until it is asked for again.
func (k *Keeper) pinners() (pinners []memory.Pinner, members []*member) {
	pinners, members = k.scratch.pinners[:0], k.scratch.pinning[:0]
	defer func() { k.scratch.pinners, k.scratch.pinning = pinners, members }()
	for _, m := range k.order {
		if !m.seen || m.deaf || m.pins.own <= 0 {
			continue
		}
		models := false
		for i := range m.census.Devices {
			models = models || len(m.census.Devices[i].Models) > 0
		}
		pinners = append(pinners, memory.Pinner{Party: m.Party, Ceiling: m.pins.own, InForce: m.pins.force, Sent: m.pins.sent,
			Pinned: max(0, m.census.Pinned), LargestModel: max(0, m.census.LargestModel),
			Live:   m.phase == memory.Busy || m.phase != memory.Released && models,
			Stable: m.pins.stable, Limit: m.limit.Pinned, Over: m.pins.over})
		members = append(members, m)
	}
	return pinners, members
}

// pinRAM is what a container's limit leaves for pins.
func (k *Keeper) pinRAM(pinners []memory.Pinner) memory.PinRAM {
	if !k.ramKnown || k.machine.Limit <= 0 {
		return memory.PinRAM{}
	}
	unpinned := k.machine.Limit - k.machine.Available
	for i := range pinners {
		unpinned -= pinners[i].Pinned
	}
	return memory.PinRAM{Limit: k.machine.Limit, Unpinned: max(0, unpinned)}
}

// splitPins splits the pinned budget anew. Excess is asked back at sweeps, so that a process gets the time between two of
// them to go below a new cap by itself.
func (k *Keeper) splitPins(now time.Time, sweep bool) {
	pinners, members := k.pinners()
	if sweep {
		for i, m := range members {
			m.pins.stable++
			m.pins.over++
			if cap := max(m.pins.force, m.pins.sent); cap == 0 || pinners[i].Pinned <= cap {
				m.pins.over, m.pins.late = 0, false
			}
			pinners[i].Stable, pinners[i].Over = m.pins.stable, m.pins.over
		}
	}
	plan := memory.SplitPins(pinners, k.pinRAM(pinners))
	for _, set := range plan.Set {
		k.setPins(k.members[set.Party], set)
	}
	if !sweep {
		return
	}
	for _, action := range plan.Release {
		k.askPins(now, k.members[action.Party], action)
	}
	for _, party := range plan.Late {
		if m := k.members[party]; !m.pins.late {
			m.pins.late = true
			k.event("memory.pins_above_cap", party, "", "it does not come below its cap", memory.Terms{
				memory.Amount("pinned", m.census.Pinned), memory.Amount("cap", m.pins.force), memory.Count("sweeps", m.pins.over)})
		}
	}
	if !k.ramKnown {
		return
	}
	relief := memory.PinPressure(now, k.pressure, k.machine.RAM, pinners)
	if len(relief.Actions) > 0 {
		k.pressure = now
	}
	for _, action := range relief.Actions {
		k.askPins(now, k.members[action.Party], action)
	}
}

// setPins sends a cap. While an earlier one is on its way nothing is sent: which of the two is in force could not be told.
func (k *Keeper) setPins(m *member, set memory.PinCap) {
	if m.assigned.sent {
		return
	}
	cap := set.Bytes
	if set.Cause == memory.CausePinNone {
		if m.assigned.wanted.PinCap != nil {
			return
		}
		cap = noPins
	} else {
		m.pins.sent = cap
	}
	if m.pins.lastSet.Bytes != set.Bytes || m.pins.lastSet.Cause != set.Cause {
		k.event("memory.pin_cap", m.Party, "", set.Cause, append(memory.Terms{memory.Amount("cap", set.Bytes)}, set.Terms...))
	}
	m.pins.lastSet = set
	m.assigned.wanted.PinCap = &cap
	k.assign(m)
}

// askPins asks a process for pins, unless it has not answered yet.
func (k *Keeper) askPins(now time.Time, m *member, action memory.Action) {
	if again := k.config.Limits.AskAgain; !m.pins.asked.IsZero() && (again <= 0 || now.Sub(m.pins.asked) < again) {
		return
	}
	m.pins.asked = now
	k.event("memory."+string(action.Kind), action.Party, "", action.Cause, append(memory.Terms{memory.Amount("asked", action.Bytes)}, action.Terms...))
	k.carryOut(action)
}
