package supervisor

import (
	"context"
	"sync"
)

// feed carries what happens to one follower, which reads as fast as its client does. What comes faster than that is
// dropped and counted, so that neither the one who tells nor anybody else waits.
type feed[T any] struct {
	capacity int
	wake     chan struct{} // has a token when there may be something to take

	mu      sync.Mutex
	queue   []T
	dropped int
}

func newFeed[T any](capacity int) *feed[T] {
	return &feed[T]{capacity: capacity, wake: make(chan struct{}, 1)}
}

// offer adds an item and does not wait.
func (f *feed[T]) offer(item T) {
	f.mu.Lock()
	if len(f.queue) < f.capacity {
		f.queue = append(f.queue, item)
	} else {
		f.dropped++
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take waits for items and returns them, with the number of those that were dropped after them; false when the context
// has ended.
func (f *feed[T]) take(ctx context.Context) (items []T, dropped int, ok bool) {
	for {
		f.mu.Lock()
		items, dropped = f.queue, f.dropped
		f.queue, f.dropped = nil, 0
		f.mu.Unlock()
		if len(items) > 0 || dropped > 0 {
			return items, dropped, true
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, false
		}
	}
}
