package supervisor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Guard is a named condition of a transition.
type Guard struct {
	Name  string
	holds func(step) bool
}

// step is what a guard looks at.
type step struct {
	record  Record
	message Message
	now     time.Time
	limits  Limits
}

var (
	always       = Guard{"", func(step) bool { return true }}
	queued       = Guard{"calls queued", func(s step) bool { return s.record.Queued > 0 }}
	lastAnswered = Guard{"it was the last", func(s step) bool { return s.record.Depth <= 1 }}
	forced       = Guard{"by force", func(s step) bool { return s.message.Force }}
	startOver    = Guard{"start limit passed", func(s step) bool {
		return s.limits.Start > 0 && s.now.Sub(s.record.Since) >= s.limits.Start
	}}
	backoffOver = Guard{"backoff over", step.pauseIsOver}
	backoffNext = Guard{"backoff over, calls queued", func(s step) bool { return s.record.Queued > 0 && s.pauseIsOver() }}
	// An end that nobody asked for is a crash; one that was asked for when the request said so.
	tooManyCrashes = Guard{"crash, too many", func(s step) bool {
		return s.crashed() && s.limits.CrashCount > 0 && len(s.record.crashesAt(s.now, s.limits)) >= s.limits.CrashCount
	}}
	crashWithPause = Guard{"crash, not the first", func(s step) bool {
		return s.crashed() && s.limits.backoffAfter(len(s.record.crashesAt(s.now, s.limits))) > 0
	}}
)

// pauseIsOver also holds when the clock was set back: no pause is as long as what then seems to be left of it.
func (s step) pauseIsOver() bool {
	left := s.record.BackoffUntil.Sub(s.now)
	longest := time.Duration(0)
	for _, pause := range s.limits.Backoff {
		longest = max(longest, pause)
	}
	return left <= 0 || left > longest
}

func (s step) crashed() bool {
	return s.record.State != Stopping || s.record.crash
}

// Transition is one row of the table: in state From, message On, if the guard holds, leads to state To and Do.
type Transition struct {
	From State
	On   Kind
	If   Guard
	To   State
	Do   []Action
}

// Transitions is the whole life of a worker record. The first row that fits counts; a message that fits none is late
// or meaningless and changes nothing.
var Transitions = []Transition{
	{Starting, CallArrived, always, Starting, []Action{Enqueue}},
	{Starting, CallWithdrawn, always, Starting, nil},
	{Starting, Loaded, queued, Busy, []Action{Flush}},
	{Starting, Loaded, always, Ready, nil},
	{Starting, StartRefused, always, Stopping, []Action{FailQueued, Kill}},
	{Starting, Tick, startOver, Stopping, []Action{FailQueued, Kill}},
	{Starting, StopAsked, forced, Stopping, []Action{FailQueued, Kill}},
	{Starting, StopAsked, always, Stopping, []Action{FailQueued, Stop}},

	{Ready, CallArrived, always, Busy, []Action{Forward}},
	{Ready, ReleasedAll, always, Released, nil},
	{Ready, StopAsked, forced, Stopping, []Action{Kill}},
	{Ready, StopAsked, always, Stopping, []Action{Stop}},

	{Busy, CallArrived, always, Busy, []Action{Forward}},
	{Busy, CallAnswered, lastAnswered, Ready, nil},
	{Busy, CallAnswered, always, Busy, nil},
	{Busy, StopAsked, forced, Stopping, []Action{FailSent, Kill}},
	{Busy, StopAsked, always, Stopping, []Action{FailSent, Stop}},

	{Released, CallArrived, always, Busy, []Action{Forward}},
	{Released, StopAsked, forced, Stopping, []Action{Kill}},
	{Released, StopAsked, always, Stopping, []Action{Stop}},

	// A call that meets a worker on its way out waits for the next one.
	{Stopping, CallArrived, always, Stopping, []Action{Enqueue}},
	{Stopping, CallWithdrawn, always, Stopping, nil},
	{Stopping, StopAsked, forced, Stopping, []Action{FailQueued, Kill}},

	{Starting, Exited, tooManyCrashes, Quarantined, []Action{FailQueued}},
	{Starting, Exited, crashWithPause, Backoff, []Action{FailQueued}},
	{Starting, Exited, always, Gone, []Action{FailQueued}},
	{Ready, Exited, tooManyCrashes, Quarantined, nil},
	{Ready, Exited, crashWithPause, Backoff, nil},
	{Ready, Exited, always, Gone, nil},
	{Busy, Exited, tooManyCrashes, Quarantined, []Action{FailSent}},
	{Busy, Exited, crashWithPause, Backoff, []Action{FailSent}},
	{Busy, Exited, always, Gone, []Action{FailSent}},
	{Released, Exited, tooManyCrashes, Quarantined, nil},
	{Released, Exited, crashWithPause, Backoff, nil},
	{Released, Exited, always, Gone, nil},
	{Stopping, Exited, tooManyCrashes, Quarantined, []Action{FailQueued}},
	{Stopping, Exited, crashWithPause, Backoff, nil},
	{Stopping, Exited, queued, Gone, []Action{Replace}},
	{Stopping, Exited, always, Gone, nil},

	{Backoff, CallArrived, backoffOver, Gone, []Action{Enqueue, Replace}},
	{Backoff, CallArrived, always, Backoff, []Action{Enqueue}},
	{Backoff, CallWithdrawn, always, Backoff, nil},
	{Backoff, Tick, backoffNext, Gone, []Action{Replace}},
	{Backoff, Tick, backoffOver, Gone, nil},
	{Backoff, StopAsked, always, Gone, []Action{FailQueued}},
	{Backoff, ResetAsked, queued, Gone, []Action{Replace}},
	{Backoff, ResetAsked, always, Gone, nil},

	{Quarantined, CallArrived, always, Quarantined, []Action{Refuse}},
	{Quarantined, ResetAsked, always, Gone, nil},

	{Gone, CallArrived, always, Gone, []Action{Enqueue, Replace}},
}

// Step is the transition function: what becomes of a record when a message arrives now, and what has to be done. A
// message that no row takes returns the record as it was.
func Step(record Record, message Message, now time.Time, limits Limits) (Record, []Action) {
	for _, row := range Transitions {
		if row.From != record.State || row.On != message.Kind {
			continue
		}
		if row.If.holds(step{record, message, now, limits}) {
			return advance(record, row, message, now, limits), row.Do
		}
	}
	return record, nil
}

// advance does the arithmetic of one row.
func advance(record Record, row Transition, message Message, now time.Time, limits Limits) Record {
	next := record
	switch message.Kind {
	case CallAnswered:
		next.Depth = max(0, next.Depth-1)
	case CallWithdrawn:
		next.Queued = max(0, next.Queued-1)
	case StartRefused, StopAsked:
		next.crash = message.Crash
	case Tick:
		next.crash = true // of the states with a tick, only a start that takes too long goes on to an end
	case ResetAsked:
		next.Crashes = nil
	case Exited:
		if (step{record: record}).crashed() {
			next.Crashes = record.crashesAt(now, limits)
			next.BackoffUntil = now.Add(limits.backoffAfter(len(next.Crashes)))
		}
	}
	for _, action := range row.Do {
		switch action {
		case Forward:
			next.Depth++
		case Enqueue:
			next.Queued++
		case Flush:
			next.Depth += next.Queued
			next.Queued = 0
		case FailQueued, Replace:
			next.Queued = 0
		case FailSent:
			next.Depth = 0
		}
	}
	if next.State != row.To {
		next.State = row.To
		next.Since = now
		next.Cause = message.Cause
		if row.To == Ready {
			next.IdleSince = now
		}
	}
	return next
}

// PrintTransitions writes the table for people.
func PrintTransitions(writer io.Writer) error {
	table := tabwriter.NewWriter(writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STATE\tMESSAGE\tIF\tNEXT\tDO")
	for _, row := range Transitions {
		actions := make([]string, len(row.Do))
		for i, action := range row.Do {
			actions[i] = string(action)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", row.From, row.On, row.If.Name, row.To, strings.Join(actions, ", "))
	}
	return table.Flush()
}
