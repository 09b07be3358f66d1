package spawn

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTurnsAreTakenByNoMoreThanThereAre(t *testing.T) {
	t.Parallel()
	turns := NewTurns(3)
	var now, most atomic.Int32
	full := make(chan struct{})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			turns.Do(func() {
				count := now.Add(1)
				for before := most.Load(); count > before && !most.CompareAndSwap(before, count); before = most.Load() {
				}
				if count == 3 && most.Load() == 3 {
					select {
					case <-full:
					default:
						close(full)
					}
				}
				<-full // the first three are in it together
				now.Add(-1)
			})
		})
	}
	all.Wait()
	if most.Load() != 3 || len(turns) != 0 {
		t.Errorf("%d were in their turn at once, %d still are", most.Load(), len(turns))
	}
	func() {
		defer func() { _ = recover() }()
		turns.Do(func() { panic("in its turn") })
	}()
	if len(turns) != 0 {
		t.Error("a panic kept its turn")
	}
}
