package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Options say how cards are read.
type Options struct {
	// Library is NVML's file; empty: where the driver puts it. The setting COMFY_SUPERVISOR_NVML_LIBRARY.
	Library string
	// Deadline is how long one reading may take; 0: DefaultDeadline.
	Deadline time.Duration
	// OwnPIDs: the driver's PIDs are ours even though this process runs in a PID namespace of its own.
	OwnPIDs bool
}

// DefaultDeadline is how long a reading may take. It takes well under a millisecond; a driver that recovers a card can
// take seconds, and would hold up every load meanwhile.
const DefaultDeadline = 2 * time.Second

// HangError says that NVML does not come back from a call. Readings fail with it at once until it does.
type HangError struct {
	Since time.Time
	After time.Duration
}

// Error says what hangs, and what follows.
func (e *HangError) Error() string {
	return fmt.Sprintf("NVML has not answered for %s (asked at %s): cards are not read until it does", e.After.Round(time.Millisecond), e.Since.Format(time.TimeOnly))
}

// ErrClosed is what a reading after Close ends with.
var ErrClosed = errors.New("the cards are closed")

// source reads cards; only the goroutine of one Cards calls it.
type source interface {
	read() ([]Card, error)
	close() error
}

// Cards reads the machine's cards. Open makes one; Close it.
type Cards struct {
	deadline time.Duration
	work     chan func()
	ended    chan struct{}

	mu      sync.Mutex // held for a whole reading: one at a time
	source  source
	hanging chan readResult // of a reading that missed its deadline
	since   time.Time
	closed  bool
}

type readResult struct {
	cards  []Card
	source source
	err    error
}

// Open loads NVML and looks at the cards once. The error says why there are none to read: no library, a function that it
// lacks, a driver that does not start or does not answer.
func Open(ctx context.Context, options Options) (*Cards, error) {
	c := &Cards{deadline: options.Deadline, work: make(chan func()), ended: make(chan struct{})}
	if c.deadline <= 0 {
		c.deadline = DefaultDeadline
	}
	go func() {
		defer close(c.ended)
		for do := range c.work {
			do()
		}
	}()
	c.mu.Lock()
	opened, err := c.do(ctx, func() readResult {
		opened, err := openSource(options)
		if err != nil {
			return readResult{err: err}
		}
		if _, err := opened.read(); err != nil {
			return readResult{err: errors.Join(err, opened.close())}
		}
		return readResult{source: opened}
	})
	c.source = opened.source
	c.mu.Unlock()
	if err != nil {
		// A hanging library keeps its goroutine: nothing can be done about the call.
		_ = c.Close()
		return nil, fmt.Errorf("reading the cards through NVML: %w", err)
	}
	return c, nil
}

// Read reads every card. A card that cannot be read comes with its Err; the error is for all of them. It takes no longer
// than the deadline, and fails at once while an earlier reading hangs.
func (c *Cards) Read(ctx context.Context) ([]Card, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.hanging != nil {
		select {
		case <-c.hanging:
			c.hanging = nil
		default:
			return nil, &HangError{c.since, time.Since(c.since)}
		}
	}
	source := c.source
	result, err := c.do(ctx, func() readResult {
		cards, err := source.read()
		return readResult{cards: cards, err: err}
	})
	if err != nil {
		return nil, fmt.Errorf("reading the cards through NVML: %w", err)
	}
	return result.cards, nil
}

// do runs one call on the goroutine and waits for it until the deadline. The caller holds mu.
func (c *Cards) do(ctx context.Context, call func() readResult) (readResult, error) {
	result := make(chan readResult, 1)
	c.since = time.Now()
	c.work <- func() { result <- call() } // the goroutine is idle: hanging is nil
	timer := time.NewTimer(c.deadline)
	defer timer.Stop()
	select {
	case done := <-result:
		return done, done.err
	case <-timer.C:
		c.hanging = result
		return readResult{}, &HangError{c.since, c.deadline}
	case <-ctx.Done():
		c.hanging = result // it may still come back
		return readResult{}, context.Cause(ctx)
	}
}

// Close ends the goroutine and unloads NVML. When NVML hangs, the goroutine stays behind with it, and the error says so.
func (c *Cards) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var err error
	if c.hanging == nil && c.source != nil {
		source := c.source
		_, err = c.do(context.Background(), func() readResult { return readResult{err: source.close()} })
	}
	close(c.work)
	if c.hanging != nil {
		select {
		case <-c.hanging:
		default:
			return fmt.Errorf("closing NVML: %w", &HangError{c.since, time.Since(c.since)})
		}
	}
	<-c.ended
	if err != nil {
		return fmt.Errorf("closing NVML: %w", err)
	}
	return nil
}
