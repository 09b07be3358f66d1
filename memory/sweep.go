package memory

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Phase is where a worker stands in its life.
type Phase string

// The phases of a worker. Only Ready and Released workers are ever released or reaped: a worker that computes would
// lose pages that a kernel reads, and one that starts, stops or is gone has nothing to give.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Busy     Phase = "busy"
	Released Phase = "released"
	Stopping Phase = "stopping"
	Gone     Phase = "gone"
)

// computes tells whether a call runs.
func (p Phase) computes() bool { return p == Busy }

// Idle tells whether nothing computes and the process can be asked.
func (p Phase) Idle() bool { return p == Ready || p == Released }

// Holding is what one party holds on one device.
type Holding struct {
	Device string `json:"device"`
	Bytes  Bytes  `json:"bytes"` // as charged, overhead and context included
}

// WorkerState is what a sweep knows of one worker.
type WorkerState struct {
	Party Party `json:"party"`
	Phase Phase `json:"phase"`
	// IdleSince is when the last call ended, or when the worker became ready if there was none.
	IdleSince time.Time `json:"idle_since"`
	// PromptOver: no prompt that runs or waits has a node of this worker in its graph.
	PromptOver bool `json:"prompt_over"`
	// StandIns counts the objects in the host's model list that still need this process.
	StandIns int `json:"stand_ins"`
	// Handles counts the values in the host that only this process can open.
	Handles int `json:"handles"`
	// Held is per device; a device without an entry holds nothing.
	Held []Holding `json:"held,omitempty"`
	// AskedAt is when a release that has not been answered was sent; zero: none is under way.
	AskedAt time.Time `json:"asked_at,omitzero"`
	// IdleRelease and Reap are the clocks of this worker's environment; nil: those of the limits.
	IdleRelease *time.Duration `json:"idle_release,omitempty"`
	Reap        *time.Duration `json:"reap,omitempty"`
}

// HeldOn is what the worker holds on a device, never below zero.
func (w *WorkerState) HeldOn(device string) Bytes {
	for _, holding := range w.Held {
		if holding.Device == device {
			return max(0, holding.Bytes)
		}
	}
	return 0
}

// held is the sum over all devices.
func (w *WorkerState) held() (sum Bytes) {
	for _, holding := range w.Held {
		sum = addBytes(sum, max(0, holding.Bytes))
	}
	return sum
}

// CardState is what a sweep knows of one device.
type CardState struct {
	Device string `json:"device"`
	Total  Bytes  `json:"total"`
	Free   Bytes  `json:"free"` // as measured, leases not subtracted
	// Wanted is what live leases still hold back. What waiting asks lack is not in it: admission asks for that itself.
	Wanted Bytes `json:"wanted"`
}

// Limits are the clocks and thresholds of a sweep. Zero switches the clock or rule off.
type Limits struct {
	IdleRelease time.Duration `json:"idle_release"` // full release after this idle time
	Reap        time.Duration `json:"reap"`         // the process ends after this idle time
	AskAgain    time.Duration `json:"ask_again"`    // an unanswered release is asked again after this time
	// TightFree: a card with less left than this is tight, in bytes. Zero: no card ever is.
	TightFree Bytes `json:"tight_free"`
	// StuckHeld: a released worker that still holds more than this, with no live handle or stand-in and its prompt
	// over, keeps memory that no release can move (plain modules on a node's self), in bytes.
	StuckHeld Bytes `json:"stuck_held"`
	// EndStuck is when such a process is ended.
	EndStuck EndStuck `json:"end_stuck"`
}

// EndStuck says when a process that keeps memory after a full release is ended.
type EndStuck string

// The choices for Limits.EndStuck.
const (
	EndStuckNever     EndStuck = "never"
	EndStuckWhenTight EndStuck = "when_tight"
	EndStuckAlways    EndStuck = "always"
)

// DefaultLimits are the clocks of the existing launcher. A card is tight when less is left than the reserve that every
// loader leaves alone by default: then something took bytes that nobody was promised.
func DefaultLimits() Limits {
	return Limits{
		IdleRelease: 60 * time.Second,
		Reap:        30 * time.Minute,
		AskAgain:    30 * time.Second,
		TightFree:   Bytes(DefaultReserve(false, 0)),
		StuckHeld:   512 * MiB,
		EndStuck:    EndStuckWhenTight,
	}
}

// Causes of a sweep's actions.
const (
	CauseIdle      = "idle"       // idle for the time limit
	CauseCardTight = "card_tight" // a card is tight and the worker's prompt is over
	CauseIdleLong  = "idle_long"  // idle for the time limit after which the process ends
	CauseStuck     = "stuck"      // memory that a full release could not move
)

// Sweep looks at every worker once and says which to release and which to end. On a tight card it releases workers
// whose prompt is over, the longest idle first, until the card would no longer be tight; those that were asked already
// count as if they had answered. A clock that jumped backwards makes nobody idle.
func Sweep(now time.Time, workers []WorkerState, limits Limits, cards []CardState) Plan {
	var plan Plan
	chosen := make([]bool, len(workers))
	for i := range workers {
		worker := &workers[i]
		if !worker.Phase.Idle() {
			continue
		}
		if action, ok := clockAction(now, worker, limits, &plan.Next); ok {
			plan.Actions = append(plan.Actions, action)
			chosen[i] = true
		}
	}
	if limits.TightFree > 0 {
		for _, card := range cards {
			plan.Actions = append(plan.Actions, relieve(now, workers, chosen, limits, card)...)
		}
	}
	if limits.EndStuck == EndStuckAlways {
		for i := range workers {
			if !chosen[i] && stuck(&workers[i], limits) {
				chosen[i] = true
				plan.Actions = append(plan.Actions, endStuck(now, &workers[i], nil))
			}
		}
	}
	return plan
}

// clockAction applies the two idle clocks to one idle worker and moves next to the earliest end of a clock.
func clockAction(now time.Time, worker *WorkerState, limits Limits, next *time.Time) (Action, bool) {
	if worker.IdleRelease != nil {
		limits.IdleRelease = *worker.IdleRelease
	}
	if worker.Reap != nil {
		limits.Reap = *worker.Reap
	}
	idle := elapsed(worker.IdleSince, now)
	if limits.Reap > 0 && worker.StandIns <= 0 {
		if idle >= limits.Reap {
			return Action{Kind: Reap, Party: worker.Party, Cause: CauseIdleLong,
				Terms: Terms{Span("idle", idle), Span("limit", limits.Reap), Amount("held", worker.held())}}, true
		}
		earliest(next, now.Add(limits.Reap-idle))
	}
	if limits.IdleRelease <= 0 || worker.Phase == Released {
		return Action{}, false
	}
	if idle < limits.IdleRelease {
		earliest(next, now.Add(limits.IdleRelease-idle))
		return Action{}, false
	}
	if wait := pending(now, worker, limits); wait > 0 {
		earliest(next, now.Add(wait))
		return Action{}, false
	}
	return Action{Kind: FullRelease, Party: worker.Party, Cause: CauseIdle,
		Terms: Terms{Span("idle", idle), Span("limit", limits.IdleRelease), Amount("held", worker.held())}}, true
}

// relieve picks workers whose prompt is over until the card would have TightFree bytes left.
func relieve(now time.Time, workers []WorkerState, chosen []bool, limits Limits, card CardState) []Action {
	left := addBytes(card.Free, -max(0, card.Wanted))
	if left >= limits.TightFree {
		return nil
	}
	type candidate struct {
		index int
		held  Bytes
	}
	var candidates []candidate
	for i := range workers {
		worker := &workers[i]
		held := worker.HeldOn(card.Device)
		switch {
		case held == 0:
		case chosen[i] || worker.Phase.Idle() && worker.Phase != Released && pending(now, worker, limits) > 0:
			left = addBytes(left, held) // on its way already
		case !worker.Phase.Idle() || !worker.PromptOver:
		case worker.Phase == Released && (limits.EndStuck == EndStuckNever || !stuck(worker, limits)):
		default:
			candidates = append(candidates, candidate{i, held})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			workers[a.index].IdleSince.Compare(workers[b.index].IdleSince),
			cmp.Compare(b.held, a.held),
			workers[a.index].Party.Compare(workers[b.index].Party),
		)
	})
	var actions []Action
	for _, candidate := range candidates {
		if left >= limits.TightFree {
			break
		}
		worker := &workers[candidate.index]
		chosen[candidate.index] = true
		terms := Terms{
			Amount("free", card.Free), Amount("wanted", card.Wanted), Amount("left with what is under way", left),
			Amount("tight below", limits.TightFree), Amount("held", candidate.held),
		}
		left = addBytes(left, candidate.held)
		if worker.Phase == Released {
			action := endStuck(now, worker, terms)
			action.Device = card.Device
			actions = append(actions, action)
			continue
		}
		terms = append(terms, Span("idle", elapsed(worker.IdleSince, now)))
		actions = append(actions, Action{Kind: FullRelease, Party: worker.Party, Device: card.Device,
			Cause: CauseCardTight, Terms: terms})
	}
	return actions
}

// stuck tells whether a full release left memory behind that only the end of the process gives back.
func stuck(worker *WorkerState, limits Limits) bool {
	return worker.Phase == Released && worker.PromptOver && worker.Handles <= 0 && worker.StandIns <= 0 &&
		limits.StuckHeld > 0 && worker.held() > limits.StuckHeld
}

func endStuck(now time.Time, worker *WorkerState, terms Terms) Action {
	return Action{Kind: EndIdle, Party: worker.Party, Cause: CauseStuck,
		Terms: append(terms, Amount("held after a full release", worker.held()), Span("idle", elapsed(worker.IdleSince, now)))}
}

// pending is how long a release that was asked may still take before it is asked again.
func pending(now time.Time, worker *WorkerState, limits Limits) time.Duration {
	if worker.AskedAt.IsZero() || limits.AskAgain <= 0 {
		return 0
	}
	return limits.AskAgain - elapsed(worker.AskedAt, now)
}

// elapsed is the time from then to now, never negative: a clock that jumped back, or no time at all, is no time.
func elapsed(then, now time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return max(0, now.Sub(then))
}

func earliest(next *time.Time, candidate time.Time) {
	if next.IsZero() || candidate.Before(*next) {
		*next = candidate
	}
}

// addBytes adds without wrapping around: reports may hold absurd numbers.
func addBytes(a, b Bytes) Bytes {
	const most, least = Bytes(1<<63 - 1), Bytes(-1 << 63)
	switch {
	case b > 0 && a > most-b:
		return most
	case b < 0 && a < least-b:
		return least
	}
	return a + b
}

// Check says what contradicts itself in the limits, nil if nothing does.
func (l Limits) Check() error {
	switch {
	case l.IdleRelease < 0 || l.Reap < 0 || l.AskAgain < 0 || l.TightFree < 0 || l.StuckHeld < 0:
		return fmt.Errorf("sweep limits %+v: a limit is negative; 0 switches it off", l)
	case l.EndStuck != EndStuckNever && l.EndStuck != EndStuckWhenTight && l.EndStuck != EndStuckAlways:
		return fmt.Errorf("sweep limits: end_stuck is %q; use %q, %q or %q", l.EndStuck, EndStuckNever, EndStuckWhenTight, EndStuckAlways)
	}
	return nil
}
