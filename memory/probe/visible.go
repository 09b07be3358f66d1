package probe

import (
	"strconv"
	"strings"
)

// Visible is what a process with these variables sees: the cards in the order of CUDA's own numbers.
type Visible struct {
	Cards []Card
	// Certain is false when a number could mean another card: CUDA counts the fastest first unless CUDA_DEVICE_ORDER says
	// PCI_BUS_ID, and the machine has cards of several kinds.
	Certain bool
	// Ignored is the entry at which CUDA stops reading; empty: none.
	Ignored string
}

// VisibleCards resolves CUDA_VISIBLE_DEVICES. environ is the process's complete environment.
//
// As CUDA reads it: unset means all; entries are numbers or UUIDs, which may be cut short; the first one that names
// nothing ends the list; an empty value or -1 hides everything. A process uses one MIG instance at most, and a partitioned
// card stands for its first one.
func VisibleCards(cards []Card, environ []string) Visible {
	value, set := lookup(environ, "CUDA_VISIBLE_DEVICES")
	order, _ := lookup(environ, "CUDA_DEVICE_ORDER")
	whole := wholeCards(cards)
	visible := Visible{Certain: order == "PCI_BUS_ID" || sameKind(whole)}
	var chosen []Card
	if !set {
		chosen = whole
	} else {
		visible.Certain = visible.Certain || !hasNumber(value)
		seen := map[string]bool{}
		for _, entry := range strings.Split(value, ",") {
			card, ok := resolve(cards, whole, strings.TrimSpace(entry))
			if !ok || seen[card.Device()] {
				visible.Ignored = strings.TrimSpace(entry)
				break
			}
			seen[card.Device()] = true
			chosen = append(chosen, card)
		}
	}
	instance := false
	for _, card := range chosen {
		if card.Partitioned {
			first, ok := firstInstance(cards, card.UUID)
			if !ok {
				continue
			}
			card = first
		}
		if card.Parent != "" {
			if instance {
				continue
			}
			instance = true
		}
		visible.Cards = append(visible.Cards, card)
	}
	if instance { // a process that uses an instance sees nothing else
		for _, card := range visible.Cards {
			if card.Parent != "" {
				visible.Cards = []Card{card}
				break
			}
		}
	}
	return visible
}

func lookup(environ []string, name string) (value string, set bool) {
	for _, variable := range environ { // the last one wins, as in a process
		if rest, ok := strings.CutPrefix(variable, name+"="); ok {
			value, set = rest, true
		}
	}
	return value, set
}

func wholeCards(cards []Card) (whole []Card) {
	for _, card := range cards {
		if card.Parent == "" {
			whole = append(whole, card)
		}
	}
	return whole
}

func sameKind(cards []Card) bool {
	for _, card := range cards {
		if card.Name != cards[0].Name {
			return false
		}
	}
	return true
}

func hasNumber(value string) bool {
	for _, entry := range strings.Split(value, ",") {
		if number, err := strconv.Atoi(strings.TrimSpace(entry)); err == nil && number >= 0 {
			return true
		}
	}
	return false
}

// resolve finds what one entry names.
func resolve(cards, whole []Card, entry string) (Card, bool) {
	if number, err := strconv.Atoi(entry); err == nil {
		if number < 0 || number >= len(whole) {
			return Card{}, false
		}
		return whole[number], true
	}
	var found []Card
	for _, card := range cards {
		named := strings.HasPrefix(entry, "GPU-") || strings.HasPrefix(entry, "MIG-")
		if named && len(entry) > len("GPU-") && strings.HasPrefix(strings.ToLower(card.UUID), strings.ToLower(entry)) {
			found = append(found, card)
		}
	}
	if len(found) != 1 { // nothing, or cut so short that it could be several
		return Card{}, false
	}
	return found[0], true
}

func firstInstance(cards []Card, parent string) (Card, bool) {
	for _, card := range cards {
		if card.Parent == parent {
			return card, true
		}
	}
	return Card{}, false
}
