package budget

import (
	"context"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// sweeping is when everybody is looked at.
type sweeping struct {
	timer   *time.Timer
	last    time.Time
	looking bool // the cards are being read for one
	again   bool // one was asked for meanwhile
}

// scratch is what looks at everybody fill anew each time. Without it a sweep over thousands of workers would mostly make
// garbage.
type scratch struct {
	workers []memory.WorkerState
	pinners []memory.Pinner
	pinning []*member
}

// eventSweeps is how many sweeps events may cause between two of the clock's.
const eventSweeps = 10

// Sweep has everybody looked at soon.
func (k *Keeper) Sweep() { k.post(k.sweepSoon) }

// sweepSoon looks at everybody now, or as soon as the last look is not quite fresh any more.
func (k *Keeper) sweepSoon() {
	if k.sweeping.looking {
		k.sweeping.again = true
		return
	}
	if wait := k.config.Sweep/eventSweeps - time.Since(k.sweeping.last); wait > 0 {
		k.sweeping.timer.Reset(wait)
		return
	}
	k.beginSweep()
}

// beginSweep reads what a sweep decides on, and then sweeps.
func (k *Keeper) beginSweep() {
	if k.sweeping.looking {
		k.sweeping.again = true
		return
	}
	k.sweeping.looking = true
	k.weigh()
	k.reader.ask(func() {
		k.sweeping.looking = false
		next := k.sweep(time.Now())
		k.sweeping.last = time.Now()
		wait := k.config.Sweep
		if !next.IsZero() {
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		if k.sweeping.again {
			k.sweeping.again = false
			wait = min(wait, k.config.Sweep/eventSweeps)
		}
		k.sweeping.timer.Reset(wait)
	}, true)
}

// sweep looks at every worker once, and returns when passing time alone will make it worth while again.
func (k *Keeper) sweep(now time.Time) time.Time {
	workers := k.books.AppendWorkers(k.scratch.workers[:0])
	k.scratch.workers = workers
	at := 0
	for i := range workers { // both are ordered by party
		for at < len(k.order) && k.order[at].Party.Compare(workers[i].Party) < 0 {
			at++
		}
		if at == len(k.order) || k.order[at].Party != workers[i].Party {
			continue
		}
		m := k.order[at]
		workers[i].IdleRelease, workers[i].Reap = &m.IdleRelease, &m.Reap
		if m.deaf {
			workers[i].IdleRelease = new(time.Duration)
		}
	}
	plan := memory.Sweep(now, workers, k.config.Limits, k.books.Cards())
	for _, action := range plan.Actions {
		k.sweepAction(now, action)
	}
	k.handle(k.books.Relieve(now))
	k.splitPins(now, true)
	for _, action := range memory.HoldResident(k.residentStates()).Actions {
		m := k.members[action.Party]
		if action.Kind == memory.ReleasePins {
			k.askPins(now, m, action)
		} else {
			k.sweepAction(now, action)
		}
	}
	for _, m := range k.order {
		k.assign(m)
		k.holdRAM(m)
	}
	if k.config.File != "" && k.estimate.due(now) {
		k.saveEstimates()
	}
	return plan.Next
}

// sweepAction does one thing that a sweep found.
func (k *Keeper) sweepAction(now time.Time, action memory.Action) {
	m := k.members[action.Party]
	if m == nil || m.deaf && action.Kind == memory.FullRelease {
		return
	}
	if again := k.config.Limits.AskAgain; action.Kind == memory.FullRelease && !m.askedFull.IsZero() && again > 0 && now.Sub(m.askedFull) < again {
		return
	}
	switch action.Kind {
	case memory.FullRelease:
		k.event("memory."+string(action.Kind), action.Party, action.Device, action.Cause, action.Terms)
		m.askedFull = now
		k.books.Asked(now, action.Party)
		k.release(m, action, func(Receipt, error) { m.askedFull = time.Time{} })
	case memory.Reap, memory.EndIdle:
		k.config.End(action)
	}
}

// weighTime is how long the RAM of a process tree may take to be counted.
const weighTime = 5 * time.Second

// weigh has the RAM of workers counted that have a cap on it.
func (k *Keeper) weigh() {
	for _, m := range k.members {
		if m.limit.Resident <= 0 || m.Weigh == nil || m.weighing {
			continue
		}
		m.weighing = true
		k.work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), weighTime)
			defer cancel()
			resident, shared, err := m.Weigh(ctx)
			k.post(func() {
				m.weighing = false
				if err == nil {
					m.resident, m.shared = resident, shared
				}
			})
		})
	}
}
