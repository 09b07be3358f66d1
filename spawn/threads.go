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
