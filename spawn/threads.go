package spawn

import (
	"runtime"
	"sync"
)

// ReserveThreads has the runtime make threads, which it keeps: Go ends a program that needs another thread where the
// system has no room for one, which must not happen to one that others rely on.
func ReserveThreads(count int) {
	var made, done sync.WaitGroup
	made.Add(count)
	for range count {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			made.Wait() // each has a thread of its own now
		})
	}
	done.Wait()
}

// Turns are a number of goroutines of a process that may wait for the system at once in one kind of work: each keeps a
// thread while it waits, and Go ends a program that can have no more. The others wait without one.
type Turns chan struct{}

// NewTurns returns Turns for so many goroutines.
func NewTurns(count int) Turns { return make(Turns, count) }

// Do calls a function when it is its turn. The function waits for nothing but the system, and calls no Do.
func (t Turns) Do(function func()) {
	t <- struct{}{}
	defer func() { <-t }()
	function()
}
