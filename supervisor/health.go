package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// DefaultUnheard is how long a worker may have been idle before it has to answer a ping first when a call comes, so
// that one that hangs is replaced and the call is not lost in it. The figure is comfy-env's.
const DefaultUnheard = 60 * time.Second

// asksFirst keeps a call back while its worker, long idle, shows that it still answers, and the calls behind it with it.
func (d *Daemon) asksFirst(w *worker, call *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.asking {
		w.unsent = append(w.unsent, call)
		return true
	}
	if w.limits.health <= 0 || call.local != nil || len(w.inFlight) != 1 || time.Since(w.record.IdleSince) < d.config.Unheard {
		return false
	}
	w.asking = true
	w.unsent = append(w.unsent, call)
	d.goSafely(func() { d.ask(w) })
	return true
}

// ask pings a worker, and sends it the calls that were kept back or gives them to its replacement.
func (d *Daemon) ask(w *worker) {
	ctx, cancel := context.WithTimeout(d.ctx, w.limits.health)
	defer cancel()
	_, _, err := w.peer.Request(ctx, &wire.Message{Method: api.MethodPing, Lane: wire.LaneReader, Generation: w.generation}, nil)
	silent := err != nil && ctx.Err() != nil && d.ctx.Err() == nil
	d.mu.Lock()
	calls := w.unsent
	w.asking, w.unsent = false, nil
	var e effects
	if silent && w.record.State == Busy {
		for _, call := range calls {
			delete(w.inFlight, call)
			w.record.Depth--
			if !call.answered { // cancelled meanwhile
				w.queue = append(w.queue, call)
				w.record.Queued++
			}
		}
		e = d.step(w, Message{Kind: StopAsked, Force: true, Crash: true,
			Cause: fmt.Sprintf("after a long idle time it did not answer a ping within %s, which is the setting health_check_timeout", w.limits.health)}, nil)
		calls = nil
	}
	d.mu.Unlock()
	d.perform(e)
	for _, call := range calls {
		d.transmit(w, call)
	}
}
