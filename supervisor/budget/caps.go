package budget

import (
	"maps"
	"slices"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
)

// devicesOf is every card that a member has named, or before that the ones it can see.
func (k *Keeper) devicesOf(m *member) []string {
	if len(m.names) > 0 {
		return slices.Sorted(maps.Keys(m.names))
	}
	var devices []string
	for _, card := range probe.VisibleCards(k.cards.known, m.Environ).Cards {
		devices = append(devices, card.Device())
	}
	return devices
}

// limit puts a member's caps in force, in bytes of the smallest card that it uses, and says what is wrong with them before
// a load fails because of it.
func (k *Keeper) limit(m *member) {
	if m.Caps == (memory.Caps{}) {
		return
	}
	var card memory.Bytes
	for _, device := range k.devicesOf(m) {
		if total := k.cards.sizes[device]; total > 0 && (card == 0 || total < card) {
			card = total
		}
	}
	if card == 0 && m.Caps.VRAM.Percent > 0 && m.limit.VRAM > 0 {
		return // the card it was worked out for is away
	}
	reserve := 0.0
	if s := k.sessions[m.Party.Session]; s != nil && s.reserve != nil {
		reserve = s.reserve.Base()
	}
	limit, remarks := m.Caps.Resolve(card, k.machine.Total, reserve)
	changed := limit != m.limit
	m.limit = limit
	if changed {
		k.books.Cap(m.Party, limit.VRAM)
		if limit.VRAM > 0 {
			m.assigned.wanted.VRAMCap = &limit.VRAM
			k.headroom(m)
		}
		k.event("memory.capped", m.Party, "", "operator's limits", memory.Terms{memory.Amount("VRAM", limit.VRAM), memory.Amount("pinned RAM", limit.Pinned),
			memory.Amount("RAM", limit.Resident), memory.Amount("card", card), memory.Amount("machine's RAM", k.machine.Total)})
		k.assign(m)
		k.holdRAM(m)
	}
	for _, remark := range remarks {
		if !slices.Contains(m.remarks, remark) {
			k.config.Note(m.Party, "memory: "+remark)
			k.event("memory.cap_remark", m.Party, "", remark, nil)
		}
	}
	m.remarks = remarks
}

// cardKnown works out caps anew: a card's size is known now.
func (k *Keeper) cardKnown(device string) {
	for _, m := range k.order {
		k.limit(m)
	}
	for _, s := range k.sessions {
		if s.reserve != nil && k.cards.processLocal(device) {
			s.reserve.Card(device, k.cards.sizes[device], true)
		}
	}
}

// holdRAM has the kernel hold a worker under its cap, where it can. Pages of our memory files are charged to whoever
// touched them first, and do not count.
func (k *Keeper) holdRAM(m *member) {
	if m.HoldRAM == nil || m.limit.Resident <= 0 {
		return
	}
	if err := m.HoldRAM(m.limit.Resident, m.limit.Resident+m.shared); err != nil && !m.unheld {
		m.unheld = true
		k.config.Note(m.Party, "memory: its RAM is not limited by the kernel, and only asked for: "+err.Error())
		k.event("memory.ram_not_held", m.Party, "", err.Error(), nil)
	}
}

// residentStates is what the capped workers keep in RAM.
func (k *Keeper) residentStates() []memory.ResidentState {
	var states []memory.ResidentState
	for _, m := range k.order {
		if m.limit.Resident <= 0 || m.Party.IsHost() {
			continue
		}
		resident := m.resident
		if resident == 0 {
			resident = max(0, m.census.Resident)
		}
		states = append(states, memory.ResidentState{Party: m.Party, Phase: m.phase, Resident: resident, Shared: m.shared,
			Pinned: max(0, m.census.Pinned), Cap: m.limit.Resident})
	}
	return states
}
