package supervisor

import (
	"slices"
	"time"
)

// State is where a worker record stands in its life.
type State string

// The states of a worker record.
const (
	Starting    State = "starting"    // launched, not yet taking calls
	Ready       State = "ready"       // idle
	Busy        State = "busy"        // has calls
	Released    State = "released"    // idle, its memory given back
	Stopping    State = "stopping"    // its process tree is being ended
	Gone        State = "gone"        // nothing of it is left
	Backoff     State = "backoff"     // crashed; its replacement waits
	Quarantined State = "quarantined" // crashed too often; no replacement until reset
)

// alive reports whether a process may exist.
func (s State) alive() bool {
	return s == Starting || s == Ready || s == Busy || s == Released || s == Stopping
}

// Kind is the kind of a message to a record.
type Kind string

// The messages that a record understands.
const (
	CallArrived   Kind = "call"      // a client calls
	CallAnswered  Kind = "answered"  // the worker answered a call, or the call was given up
	CallWithdrawn Kind = "withdrawn" // a queued call was cancelled or its client vanished
	Loaded        Kind = "loaded"    // the pack is imported; calls can go
	StartRefused  Kind = "refused"   // the start failed, and what is left of it must end
	ReleasedAll   Kind = "released"  // the worker gave its memory back
	StopAsked     Kind = "stop"      // somebody or some limit wants it ended
	Exited        Kind = "exited"    // the process tree is gone
	Tick          Kind = "tick"      // time passed
	ResetAsked    Kind = "reset"     // forget the crashes
)

// Message is something that happened to a record.
type Message struct {
	Kind  Kind
	Cause string // why, in words; kept with the state
	// Force: end at once, without asking the process first (StopAsked).
	Force bool
	// Crash: the end that this message leads to counts against the environment (StartRefused, StopAsked).
	Crash bool
}

// Action is what has to be done after a transition.
type Action string

// The actions of transitions. The loop carries them out in order.
const (
	Forward    Action = "forward"     // send the call to the worker
	Enqueue    Action = "enqueue"     // keep the call until the worker, or its replacement, takes calls
	Refuse     Action = "refuse"      // answer the call with why there is no worker
	Flush      Action = "flush"       // send all queued calls
	FailQueued Action = "fail queued" // answer all queued calls with how the start failed
	FailSent   Action = "fail sent"   // answer all calls in flight with how the worker ended
	Stop       Action = "stop"        // end the process tree politely, then by force
	Kill       Action = "kill"        // end the process tree by force
	Replace    Action = "replace"     // make the next generation, with the queued calls
)

// Record is what the state machine knows of one worker. It is a value: Step returns a changed copy.
type Record struct {
	State      State
	Since      time.Time
	Cause      string
	Generation uint64
	Queued     int // calls that wait for it to start
	Depth      int // calls sent and not answered
	IdleSince  time.Time
	// Crashes are the times of crashes within the window, of this and earlier generations.
	Crashes []time.Time
	// BackoffUntil is when a crashed worker may be replaced.
	BackoffUntil time.Time
	// crash says that the end that is under way counts as a crash.
	crash bool
}

// Limits are the state machine's times and counts.
type Limits struct {
	Start time.Duration // from the launch until calls are taken; 0: no limit
	// Backoff is the pause after the first, second, third ... crash within the window; the last one repeats.
	Backoff []time.Duration
	// CrashWindow and CrashCount: so many crashes within so much time quarantine an environment; 0 crashes: never.
	CrashWindow time.Duration
	CrashCount  int
}

// DefaultCrashLimits replaces a crashed worker at once, then ever later, and gives up after five crashes within ten
// minutes.
func DefaultCrashLimits() Limits {
	return Limits{
		Start:       120 * time.Second,
		Backoff:     []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second},
		CrashWindow: 10 * time.Minute,
		CrashCount:  5,
	}
}

// newRecord is the first state of a generation, which takes over the crashes of the one before.
func newRecord(generation uint64, crashes []time.Time, queued int, now time.Time) Record {
	return Record{State: Starting, Since: now, Generation: generation, Crashes: crashes, Queued: queued, IdleSince: now}
}

// crashesAt returns the crashes within the window that ends now, with one more now. A crash that seems to be still to
// come, because the clock was set back, counts from now on.
func (r Record) crashesAt(now time.Time, limits Limits) []time.Time {
	kept := slices.DeleteFunc(slices.Clone(r.Crashes), func(at time.Time) bool {
		return now.Sub(at) >= limits.CrashWindow
	})
	for index, at := range kept {
		if at.After(now) {
			kept[index] = now
		}
	}
	return append(kept, now)
}

// backoffAfter is the pause after the last of a number of crashes.
func (l Limits) backoffAfter(crashes int) time.Duration {
	if len(l.Backoff) == 0 || crashes == 0 {
		return 0
	}
	return l.Backoff[min(crashes, len(l.Backoff))-1]
}
