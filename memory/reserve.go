package memory

import (
	"cmp"
	"maps"
	"slices"
)

// ReserveCap is the most of a card that the published reserve may hold, whatever the reports say.
const ReserveCap = 0.75

// Reserve is what one host is told to leave alone beyond its own EXTRA_RESERVED_VRAM.
//
// Where a process reads the whole card (Linux) every byte of a worker is missing from its free memory already, and
// nothing is added. Where it reads only its own (WDDM) the host is told what each worker holds. A charge grows at once,
// since the bytes are gone now; it shrinks only on a receipt or a death, since a report that merely arrives late or low
// would hand out bytes that are still taken.
type Reserve struct {
	base  float64
	cards map[string]reserveCard
}

type reserveCard struct {
	total        Bytes
	processLocal bool
	charges      map[Party]Bytes
}

// NewReserve starts from the host's own EXTRA_RESERVED_VRAM, in bytes; zero and negative values are values.
func NewReserve(base float64) *Reserve {
	return &Reserve{base: base, cards: make(map[string]reserveCard)}
}

// Card says how large a device is and whether processes on it see only their own bytes.
func (r *Reserve) Card(device string, total Bytes, processLocal bool) {
	charges := r.cards[device].charges
	if charges == nil {
		charges = make(map[Party]Bytes)
	}
	r.cards[device] = reserveCard{max(0, total), processLocal, charges}
}

// Hold charges a party with what it holds on a device, context included, in bytes. It only ever raises the charge.
func (r *Reserve) Hold(party Party, device string, bytes Bytes) {
	if charges := r.cards[device].charges; charges != nil && bytes > charges[party] {
		charges[party] = min(bytes, plausible)
	}
}

// Receipt sets a party's charge to what it measured that it still holds. A receipt from a party that was never charged,
// a dead generation say, changes nothing.
func (r *Reserve) Receipt(party Party, device string, held Bytes) {
	charges := r.cards[device].charges
	if charged, ok := charges[party]; ok {
		charges[party] = min(charged, max(0, held))
	}
}

// Gone removes a party's charges: its process's bytes are back.
func (r *Reserve) Gone(party Party) {
	for _, card := range r.cards {
		delete(card.charges, party)
	}
}

// Base is the host's own reserve, in bytes.
func (r *Reserve) Base() float64 { return r.base }

// For is the EXTRA_RESERVED_VRAM of a party, in bytes: the base and what all others are charged with on the device where
// that is most, for upstream has one value for all devices. What the party itself holds it sees itself.
func (r *Reserve) For(party Party) (float64, Terms) {
	terms := Terms{Amount("base", ceilBytes(r.base))}
	var most Bytes
	for _, device := range slices.Sorted(maps.Keys(r.cards)) {
		card := r.cards[device]
		if !card.processLocal {
			continue
		}
		var sum Bytes
		parties := slices.SortedFunc(maps.Keys(card.charges), Party.Compare)
		for _, other := range parties {
			if other != party && card.charges[other] > 0 {
				sum = addBytes(sum, card.charges[other])
				terms = append(terms, Amount(other.String()+" on "+device, card.charges[other]))
			}
		}
		if limit := Bytes(float64(card.total) * ReserveCap); sum > limit {
			sum = limit
			terms = append(terms, Amount("capped on "+device, limit))
		}
		most = max(most, sum)
	}
	return r.base + float64(most), append(terms, Amount("added", most))
}

// PagerHeadroomLimit is the largest headroom that the pager's setter takes, in bytes.
const PagerHeadroomLimit Bytes = 1 << 60

// pagerDeadZone is by how much a headroom must fall before it is worth telling the pager, which gives nothing back for it
// until the next prioritize and a fault. Measured zones in which nothing happens: 768 MiB (RTX 3090), 1596 MiB (RTX 4060
// Ti); the smallest documented one is used.
const pagerDeadZone = 256 * MiB

// PagerHeadroom is what a published reserve makes of the pager's headroom, in bytes: the seed it was started with, and
// what was published beyond the base. It never falls below PagerFloor, under which the pager does not go anyway.
func PagerHeadroom(seed Bytes, published, base float64) Bytes {
	return min(max(PagerFloor, addBytes(seed, ceilBytes(published-base))), PagerHeadroomLimit)
}

// ForwardHeadroom tells whether a new headroom is worth setting: a rise always, a fall when it is beyond the dead zone.
func ForwardHeadroom(last, wanted Bytes) bool {
	switch cmp.Compare(wanted, last) {
	case 1:
		return true
	case -1:
		return addBytes(last, -wanted) >= pagerDeadZone
	}
	return false
}
