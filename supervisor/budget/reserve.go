package budget

import (
	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// holdReserve charges a party in every host's reserve, where processes see only their own bytes. Elsewhere every byte is
// missing from what a host reads as free already, and nothing is published.
func (k *Keeper) holdReserve(m *member, devices []memory.DeviceCensus) {
	if m.Party.IsHost() {
		k.openReserve(m)
	}
	local := false
	for i := range devices {
		device := &devices[i]
		if !k.cards.processLocal(device.Device) {
			continue
		}
		local = true
		for _, s := range k.sessions {
			if s.reserve != nil {
				s.reserve.Card(device.Device, k.cards.sizes[device.Device], true)
				s.reserve.Hold(m.Party, device.Device, k.charge(device))
			}
		}
	}
	if local {
		k.publish()
	}
}

// charge is what a party costs on a device: what it holds, and its context.
func (k *Keeper) charge(device *memory.DeviceCensus) memory.Bytes {
	held := max(0, device.Held)
	switch {
	case device.Overhead > 0:
		return held + device.Overhead
	case device.Context:
		return held + k.config.Rules.ContextFloor
	}
	return held
}

// openReserve begins a host's reserve with its own, and charges everybody who was there before.
func (k *Keeper) openReserve(m *member) {
	s := k.session(m.Party.Session)
	if s.reserve != nil || m.census.Reserve == nil {
		return
	}
	s.reserve = memory.NewReserve(*m.census.Reserve)
	for _, other := range k.members {
		for _, device := range other.census.Devices {
			name := k.cards.locate(other.Environ, Device{device.DeviceCensus.Device, device.Identity})
			if isCard(device.DeviceCensus.Device) && k.cards.processLocal(name) {
				s.reserve.Card(name, k.cards.sizes[name], true)
				s.reserve.Hold(other.Party, name, k.charge(&device.DeviceCensus))
			}
		}
	}
}

// receiptReserve lowers what a party is charged with to what it measured that it still holds.
func (k *Keeper) receiptReserve(party memory.Party, device string, held memory.Bytes) {
	for _, s := range k.sessions {
		if s.reserve != nil {
			s.reserve.Receipt(party, device, held)
		}
	}
	k.publish()
}

// reserveGone takes a party's charges back: its process's bytes are.
func (k *Keeper) reserveGone(party memory.Party) {
	for _, s := range k.sessions {
		if s.reserve != nil {
			s.reserve.Gone(party)
		}
	}
	k.publish()
}

// publish sends every process on a card where it sees only its own bytes what it is to leave alone: the reserve, and the
// same to its pager.
func (k *Keeper) publish() {
	if !k.cards.everywhereLocal && len(k.cards.local) == 0 {
		return
	}
	for _, m := range k.members {
		s := k.sessions[m.Party.Session]
		if s == nil || s.reserve == nil || !m.seen {
			continue
		}
		reserve, terms := s.reserve.For(m.Party)
		if before := m.assigned.wanted.Reserve; before != nil && *before == reserve || before == nil && reserve == s.reserve.Base() {
			continue
		}
		m.assigned.wanted.Reserve = &reserve
		k.event("memory.reserve", m.Party, "", "published", append(memory.Terms{memory.Amount("reserve", memory.Bytes(reserve))}, terms...))
		k.headroom(m)
		k.assign(m)
	}
}

// headroom works out what a process's pager is to leave free between its loads: what the published reserve makes of the
// headroom it was started with, and what keeps the process under an operator's cap.
func (k *Keeper) headroom(m *member) {
	seed := max(memory.PagerFloor, m.census.Headroom)
	wanted := seed
	if s := k.sessions[m.Party.Session]; s != nil && s.reserve != nil && m.assigned.wanted.Reserve != nil {
		wanted = memory.PagerHeadroom(seed, *m.assigned.wanted.Reserve, s.reserve.Base())
	}
	if m.limit.VRAM > 0 {
		for _, device := range k.devicesOf(m) {
			if total := k.cards.sizes[device]; total > 0 {
				wanted = max(wanted, memory.CapHeadroom(total, m.limit.VRAM))
			}
		}
	}
	last := seed
	if m.assigned.wanted.Headroom != nil {
		last = *m.assigned.wanted.Headroom
	}
	if memory.ForwardHeadroom(last, wanted) {
		m.assigned.wanted.Headroom = &wanted
	}
}
