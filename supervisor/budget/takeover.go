package budget

import (
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// takeover is what a supervisor that has followed another one does not know yet. Bytes that its predecessor promised to an
// adopted worker look free until that worker has told of its lease, so loads that ask for room wait until everybody has.
type takeover struct {
	unheard map[memory.Party]time.Time // who has not told what it was granted, and until when asks wait for it
	kept    []keptAsk                  // asks that wait for them, in the order in which they came
	orphans map[*member]*orphan        // workers that may compute what an earlier supervisor had sent
	timer   *time.Timer
}

// keptAsk is an ask that has not come to the books yet.
type keptAsk struct {
	ask     *ask
	wanted  *Lease
	arrived time.Time
}

const (
	takeoverLimit = 2 * time.Second // which a process that answers at all does not need
	orphanPause   = time.Second
)

func newTakeover() takeover {
	return takeover{unheard: make(map[memory.Party]time.Time), orphans: make(map[*member]*orphan)}
}

// Expect announces a worker that lived before this supervisor did and is about to Join, so that nobody is given room
// before. never notes that it does not come.
func (k *Keeper) Expect(party memory.Party) (never func()) {
	k.post(func() { k.awaitLeases(party) })
	return func() {
		k.post(func() {
			if k.members[party] == nil {
				k.leasesKnown(party)
			}
		})
	}
}

// awaitLeases has asks wait until a party has told what it was granted.
func (k *Keeper) awaitLeases(party memory.Party) {
	k.takeover.unheard[party] = time.Now().Add(k.config.TakeOver)
	k.setTakeoverTimer()
}

// leasesKnown notes that a party has told what it was granted, or never will. After the last one asks go on.
func (k *Keeper) leasesKnown(party memory.Party) {
	if _, awaited := k.takeover.unheard[party]; !awaited {
		return
	}
	delete(k.takeover.unheard, party)
	if len(k.takeover.unheard) == 0 {
		kept := k.takeover.kept
		k.takeover.kept = nil
		for _, one := range kept {
			k.askBooks(one.ask, one.wanted, one.arrived)
		}
	}
	k.setTakeoverTimer()
}

// keepBack keeps an ask away from the books while leases are unknown; false: none are. It says so once for each.
func (k *Keeper) keepBack(a *ask, wanted *Lease, arrived time.Time) bool {
	if len(k.takeover.unheard) == 0 {
		return false
	}
	if !a.keptSince.IsZero() {
		return true // doubled on its way here
	}
	a.keptSince = time.Now()
	k.takeover.kept = append(k.takeover.kept, keptAsk{a, wanted, arrived})
	var one memory.Party
	var until time.Time
	for party, limit := range k.takeover.unheard {
		if one == (memory.Party{}) || party.Compare(one) < 0 {
			one = party
		}
		if limit.After(until) {
			until = limit
		}
	}
	k.event("memory.kept_back", a.member.Party, a.device, "adopted_unheard", memory.Terms{
		memory.Amount("weights", wanted.Load.Weights), memory.Count("adopted workers whose leases are not known", len(k.takeover.unheard)),
		memory.Fact("one of them", one.String()), memory.Span("for at most", time.Until(until))})
	k.setTakeoverTimer()
	return true
}

// takeoverTime does what time brings: it gives up who has not told its leases, lets asks through whose process would go on
// by itself, and asks again who computes.
func (k *Keeper) takeoverTime(now time.Time) {
	for _, one := range slices.Clone(k.takeover.kept) {
		if limit := one.wanted.deadline(one.arrived); !limit.IsZero() && !now.Before(limit) {
			k.takeover.kept = slices.DeleteFunc(k.takeover.kept, func(other keptAsk) bool { return other.ask == one.ask })
			k.toBooks(one.ask, one.wanted, one.arrived)
		}
	}
	var silent []memory.Party
	for party, limit := range k.takeover.unheard {
		if !now.Before(limit) {
			silent = append(silent, party)
		}
	}
	slices.SortFunc(silent, memory.Party.Compare)
	for _, party := range silent {
		k.event("memory.adopted_unheard", party, "", "it has not told in time what it was granted: loads go on without that", memory.Terms{
			memory.Span("limit", k.config.TakeOver)})
		k.leasesKnown(party)
	}
	for m, o := range k.takeover.orphans {
		if !o.again.IsZero() && !now.Before(o.again) {
			k.askLane(m)
		}
	}
	k.setTakeoverTimer()
}

// setTakeoverTimer sets the timer to what time brings next.
func (k *Keeper) setTakeoverTimer() {
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, limit := range k.takeover.unheard {
		sooner(limit)
	}
	for _, one := range k.takeover.kept {
		sooner(one.wanted.deadline(one.arrived))
	}
	for _, o := range k.takeover.orphans {
		sooner(o.again)
	}
	if next.IsZero() {
		k.takeover.timer.Stop()
		return
	}
	k.takeover.timer.Reset(max(0, time.Until(next)))
}
