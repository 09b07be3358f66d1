package envbuild

import (
	"time"
)

// Kinds of events.
const (
	EventLine      = "line"      // a decision or replacement of the plan
	EventWaiting   = "waiting"   // another build of the same environment runs
	EventWhy       = "why"       // what makes a build necessary
	EventStep      = "step"      // what is being done now; the last one counts
	EventBuilt     = "built"     // complete
	EventUnchanged = "unchanged" // nothing to do
	EventFailed    = "failed"
)

// Event is one thing that a build tells while it runs.
type Event struct {
	Time        time.Time `json:"time"`
	Kind        string    `json:"event"`
	Environment string    `json:"environment,omitempty"`
	Text        string    `json:"text"`
}

// Reporter gets the events of a build, from several goroutines where environments are built side by side.
type Reporter func(Event)
