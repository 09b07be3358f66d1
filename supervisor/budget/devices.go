package budget

import (
	"strconv"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
)

// cardTable knows the machine's cards, and which processes belong to whom.
type cardTable struct {
	everywhereLocal bool
	known           []probe.Card // by the driver, the last time it told
	err             string       // why the driver does not tell; empty: it does, or there is none
	lost            map[string]string
	opened          bool
	pids            map[int]memory.Party
	local           map[string]bool         // devices on which processes see only their own bytes
	sizes           map[string]memory.Bytes // by device
}

func newCardTable(everywhereLocal bool) cardTable {
	return cardTable{everywhereLocal: everywhereLocal, lost: make(map[string]string), pids: make(map[int]memory.Party),
		local: make(map[string]bool), sizes: make(map[string]memory.Bytes)}
}

// sources notes how the driver answered, and tells when that changes.
func (t *cardTable) sources(k *Keeper, seen look) {
	t.opened = seen.opened
	text := ""
	if seen.cardsErr != nil {
		text = seen.cardsErr.Error()
	}
	switch {
	case text != "" && t.err == "":
		k.event("memory.cards_unreadable", memory.Party{}, "", text, memory.Terms{
			memory.Fact("instead", "what the processes read themselves, and our own books")})
	case text == "" && t.err != "":
		k.event("memory.cards_read_again", memory.Party{}, "", "the driver answers again", nil)
	}
	t.err = text
	if seen.cardsErr != nil {
		return
	}
	t.known = seen.cards
	for i := range seen.cards {
		card := &seen.cards[i]
		name := card.Device()
		if name == "" {
			name = "card " + strconv.Itoa(card.Index)
		}
		_, was := t.lost[name]
		switch {
		case card.Err != nil && !was:
			t.lost[name] = card.Err.Error()
			k.event("memory.card_lost", memory.Party{}, name, card.Err.Error(), nil)
		case card.Err == nil && was:
			delete(t.lost, name)
			k.event("memory.card_back", memory.Party{}, name, "it is read again", nil)
		}
	}
}

// card finds a card of the driver's by our name for it.
func (t *cardTable) card(device string) *probe.Card {
	for i := range t.known {
		if t.known[i].Device() == device {
			return &t.known[i]
		}
	}
	return nil
}

// driven tells whether the driver reads a device right now.
func (t *cardTable) driven(device string) bool {
	card := t.card(device)
	return card != nil && card.Err == nil && t.err == ""
}

// kind is the card's model, for estimates; of a card that the driver does not show it is our name for it.
func (t *cardTable) kind(device string) string {
	if card := t.card(device); card != nil && card.Name != "" {
		return card.Name
	}
	return device
}

func (t *cardTable) processLocal(device string) bool { return t.everywhereLocal || t.local[device] }

// size notes how large a device is, and tells whether that is news.
func (t *cardTable) size(device string, total memory.Bytes) bool {
	if total <= 0 || t.sizes[device] == total {
		return false
	}
	t.sizes[device] = total
	return true
}

// isCard tells devices with memory of their own from the others.
func isCard(device string) bool {
	kind, _, _ := strings.Cut(device, ":")
	return kind != "" && kind != "cpu" && kind != "meta"
}

// locate finds our name for a device that a process speaks of.
//
// What the process says of its identity counts most, then its place among the devices that the process can see. A device
// of which the driver knows nothing is named by its identity or by that place.
func (t *cardTable) locate(environ []string, named Device) string {
	if card, ok := probe.Find(t.known, named.Identity); ok {
		return card.Device()
	}
	kind, place, _ := strings.Cut(named.Device, ":")
	index, err := strconv.Atoi(place)
	if err != nil || index < 0 {
		index = 0
	}
	if named.Identity == "" && kind == "cuda" {
		if visible := probe.VisibleCards(t.known, environ); index < len(visible.Cards) {
			return visible.Cards[index].Device()
		}
	}
	if named.Identity != "" {
		if place, err := probe.NormalizePCI(named.Identity); err == nil {
			return place
		}
		return named.Identity
	}
	return kind + ":" + visiblePlace(environ, index)
}

// visiblePlace is the number, or the name, of the device that a process calls by an index, as far as its variables tell.
func visiblePlace(environ []string, index int) string {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} {
		value := ""
		for _, variable := range environ {
			if rest, ok := strings.CutPrefix(variable, name+"="); ok {
				value = rest
			}
		}
		if entries := strings.Split(value, ","); value != "" && index < len(entries) {
			return strings.TrimSpace(entries[index])
		}
	}
	return strconv.Itoa(index)
}

// nameFor is what a party calls a card: as it has called it before, else as it should by what it can see.
func (k *Keeper) nameFor(m *member, device string) Device {
	if named, ok := m.names[device]; ok {
		return named
	}
	named := Device{Identity: device}
	for index, card := range probe.VisibleCards(k.cards.known, m.Environ).Cards {
		if card.Device() == device {
			named.Device = "cuda:" + strconv.Itoa(index)
		}
	}
	return named
}

// locate finds our name for a device of a party, and remembers the party's own.
func (k *Keeper) locate(m *member, named Device) string {
	device := k.cards.locate(m.Environ, named)
	if m.names[device] != named {
		m.names[device] = named
		k.limit(m)
	}
	return device
}
