package spawn

import (
	"sync"
	"time"
)

// orphanClock fires when a launcher has been without a supervisor's Traffic stream for its limit.
type orphanClock struct {
	fired chan struct{}

	mu      sync.Mutex
	limit   time.Duration
	streams int
	timer   *time.Timer
	over    bool
}

// newOrphanClock starts a clock: there is no stream yet.
func newOrphanClock(limit time.Duration) *orphanClock {
	c := &orphanClock{fired: make(chan struct{}), limit: limit}
	c.timer = time.AfterFunc(limit, c.fire)
	return c
}

func (c *orphanClock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.streams > 0 {
		return
	}
	c.over = true
	close(c.fired)
}

// setLimit changes how long it waits from the next loss on.
func (c *orphanClock) setLimit(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit > 0 {
		c.limit = limit
	}
}

// attach says that a stream has begun. It is false when the clock has fired: it is too late.
func (c *orphanClock) attach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.streams++
	c.timer.Stop()
	return true
}

// detach says that a stream has ended.
func (c *orphanClock) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams--
	if c.streams == 0 && !c.over {
		c.timer.Reset(c.limit)
	}
}

// attached reports whether a stream is there.
func (c *orphanClock) attached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams > 0
}

func (c *orphanClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}
