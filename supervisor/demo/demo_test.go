package demo

import (
	"fmt"
	"sync"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestCallsSideBySideRememberTheirWorkers(t *testing.T) {
	r := newRun(Options{}, Pack{})
	var calls sync.WaitGroup
	for caller := range 4 {
		calls.Go(func() {
			for i := range 250 {
				r.remember([]api.Worker{{ID: fmt.Sprint(caller, i), PythonPID: 1 + caller*1000 + i}})
			}
		})
	}
	calls.Wait()
	if len(r.seen) != 1000 || len(r.pids) != 1000 {
		t.Errorf("%d workers and %d processes, want 1000 each", len(r.seen), len(r.pids))
	}
}
