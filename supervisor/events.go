package supervisor

import (
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// eventCapacity is how many events are kept. About a kilobyte each with their terms: four megabytes at most.
const eventCapacity = 4096

// eventLog keeps the last events and hands new ones to followers.
type eventLog struct {
	mu        sync.Mutex
	kept      []api.Event // a ring: the event with sequence s is at s % eventCapacity
	last      uint64
	followers map[*eventFollower]struct{}
}

// eventFollower gets new events, in order, while eventLog.mu is held: it must not block.
type eventFollower struct {
	deliver func(api.Event)
}

func newEventLog() *eventLog {
	return &eventLog{followers: make(map[*eventFollower]struct{})}
}

// add numbers an event, keeps it and hands it on.
func (l *eventLog) add(event api.Event) api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	event.Sequence = l.last
	if event.Time.IsZero() {
		event.Time = time.Now()
	}
	if len(l.kept) < eventCapacity {
		l.kept = append(l.kept, event)
	} else {
		l.kept[(l.last-1)%eventCapacity] = event
	}
	for follower := range l.followers {
		follower.deliver(event)
	}
	return event
}

// replay returns the kept events after a sequence number, the last number, and how many of the asked are no longer kept.
// Events to come go to follow, unless that is nil, with none missing or doubled in between.
func (l *eventLog) replay(since uint64, follow func(api.Event)) (kept []api.Event, follower *eventFollower, last, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := uint64(1)
	if l.last > eventCapacity {
		first = l.last - eventCapacity + 1
	}
	from := since + 1
	if from < first {
		dropped = first - from
		from = first
	}
	for sequence := from; sequence <= l.last; sequence++ {
		kept = append(kept, l.kept[(sequence-1)%eventCapacity])
	}
	if follow != nil {
		follower = &eventFollower{deliver: follow}
		l.followers[follower] = struct{}{}
	}
	return kept, follower, l.last, dropped
}

// unfollow ends a follower; nil is allowed.
func (l *eventLog) unfollow(follower *eventFollower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, follower)
}
