package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// breakCycle looks for loads that wait for each other's bytes and lets the youngest of them go on under upstream's own
// rules. It tells whether it did, so that the rest can be looked at again.
//
// Every wait is played to its end: whoever computes will finish and can then be asked for all it holds; a waiting load
// that fits into what would then be free goes on, finishes, and gives back in its turn. What is left when no further one
// fits can never go on, at any order of events.
func (b *Books) breakCycle(now time.Time, out *Outcome) bool {
	stuck := b.stuckWaits()
	if len(stuck) == 0 {
		return false
	}
	youngest := slices.MaxFunc(stuck, func(x, y *waiter) int { return cmp.Compare(x.order, y.order) })
	path := waitPath(youngest, stuck)
	b.force(now, youngest, CauseCycle, out)
	answer := &out.Answers[len(out.Answers)-1]
	answer.Terms = append(answer.Terms, Fact("cycle", path), Count("loads that wait for each other", len(stuck)))
	out.Events[len(out.Events)-1].Terms = answer.Terms
	b.settled.add(*answer)
	return true
}

// roomWithoutWaiters is what would be free on a card if everybody who computes had finished and given all they can, while
// everybody who waits still waited.
func (b *Books) roomWithoutWaiters(c *card) Bytes {
	room := c.reading.Free
	for _, h := range c.holders {
		if b.promising(h) { // of one that waits, this is without what it keeps
			room = addBytes(room, b.releasable(h))
		}
	}
	for _, lease := range c.leases {
		if m := b.members[lease.Party]; m != nil && m.waits > 0 {
			room = addBytes(room, -lease.outstanding(b.confirmed(lease)))
		}
	}
	return room
}

// stuckWaits finds the asks that no order of events could satisfy.
func (b *Books) stuckWaits() []*waiter {
	if !b.somebodyKeeps() {
		return nil // nobody who waits has what another could wait for
	}
	room := make(map[*card]Bytes, len(b.order))
	finished := make(map[*member]int)
	var open, undecided []*waiter
	for _, c := range b.order {
		if len(c.queue) == 0 {
			continue
		}
		room[c] = b.roomWithoutWaiters(c)
		if c.known && c.wanted.IsZero() {
			open = append(open, c.queue...)
		} else { // without a fresh picture nothing is decided, and anything may still go on
			undecided = append(undecided, c.queue...)
		}
	}
	finish := func(w *waiter) {
		finished[w.member]++
		if finished[w.member] == w.member.waits {
			b.giveBack(w.member, room)
		}
	}
	for _, w := range undecided {
		finish(w)
	}
	for progress := true; progress; {
		progress = false
		open = slices.DeleteFunc(open, func(w *waiter) bool {
			if room[w.card] < min(w.need.total, max(0, b.reach(w))) {
				return false
			}
			progress = true
			finish(w)
			return true
		})
	}
	return open
}

// somebodyKeeps tells whether anybody who waits for a load keeps bytes for it or holds a lease elsewhere.
func (b *Books) somebodyKeeps() bool {
	for _, c := range b.order {
		if slices.ContainsFunc(c.queue, (*waiter).keeps) {
			return true
		}
		for _, lease := range c.leases {
			if m := b.members[lease.Party]; m != nil && m.waits > 0 {
				return true
			}
		}
	}
	return false
}

// giveBack adds what a waiting party holds to the room on every card, as if its loads had finished.
func (b *Books) giveBack(m *member, room map[*card]Bytes) {
	for _, h := range m.holders {
		if b.promising(h) {
			room[h.card] = addBytes(room[h.card], h.keptForLoads())
		}
		for _, lease := range h.card.leases {
			if lease.Party == m.party {
				room[h.card] = addBytes(room[h.card], lease.outstanding(b.confirmed(lease)))
			}
		}
	}
}

// waitPath prints the circle of waits that an ask is part of: each waits for somebody on its card who waits as well.
func waitPath(from *waiter, stuck []*waiter) string {
	var path []string
	seen := map[*member]bool{}
	for at := from; at != nil && !seen[at.member]; {
		seen[at.member] = true
		path = append(path, at.ask.Party.String()+" on "+at.card.device)
		next := at
		at = nil
		for _, other := range stuck {
			if other.member != next.member && holdsOn(other.member, next.card) && (at == nil || !seen[other.member]) {
				at = other
				if !seen[other.member] {
					break
				}
			}
		}
	}
	return strings.Join(append(path, from.ask.Party.String()), " -> ")
}

// holdsOn tells whether a party holds or was promised bytes on a card.
func holdsOn(m *member, c *card) bool {
	for _, h := range m.holders {
		if h.card == c && h.charge > 0 {
			return true
		}
	}
	return slices.ContainsFunc(c.leases, func(lease *Lease) bool { return lease.Party == m.party })
}
