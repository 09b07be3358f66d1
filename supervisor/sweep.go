package supervisor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// sweepLoop looks over all workers at the interval, at the moment the last look found worth waiting for, and when
// asked to.
func (d *Daemon) sweepLoop() {
	interval := d.config.SweepInterval
	if interval <= 0 {
		interval = 10 * time.Second
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-timer.C:
		case <-d.sweepNow:
		}
		d.removeLeftover()
		wait := interval
		if next := d.sweep(time.Now()); !next.IsZero() {
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		timer.Reset(wait)
	}
}

// removeLeftover tries again to remove what is left of workers that are gone: descriptors, say, were short when they
// ended.
func (d *Daemon) removeLeftover() {
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.leftover))
	d.mu.Unlock()
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(d.ctx, killTime)
		err := spawn.RemoveStale(ctx, d.workerFolder(id))
		cancel()
		if err != nil {
			d.log.Warn().Err(err).Str("worker", id).Msg("what is left of a worker stays for now")
			continue
		}
		d.mu.Lock()
		delete(d.leftover, id)
		d.mu.Unlock()
	}
}

// askForSweep has the loop look soon; it never waits.
func (d *Daemon) askForSweep() {
	select {
	case d.sweepNow <- struct{}{}:
	default: // asked for already
	}
}

// sweep asks memory what is to be done about idle workers and does it. It returns when it is worth asking again.
func (d *Daemon) sweep(now time.Time) time.Time {
	d.mu.Lock()
	byLimits := make(map[memory.Limits][]memory.WorkerState)
	byParty := make(map[memory.Party]*worker)
	for _, s := range d.sessions {
		for _, p := range s.places {
			w := p.current
			if w.record.State != Ready && w.record.State != Released {
				continue
			}
			party := memory.Party{Session: s.id, Environment: p.environment, Generation: w.generation}
			byParty[party] = w
			limits := memory.Limits{Reap: w.limits.reap}
			byLimits[limits] = append(byLimits[limits], memory.WorkerState{
				Party: party, Phase: memory.Phase(w.record.State), IdleSince: w.record.IdleSince,
			})
		}
	}
	var all effects
	var next time.Time
	for limits, workers := range byLimits {
		plan := memory.Sweep(now, workers, limits, nil)
		if !plan.Next.IsZero() && (next.IsZero() || plan.Next.Before(next)) {
			next = plan.Next
		}
		for _, action := range plan.Actions {
			w := byParty[action.Party]
			if w == nil || action.Kind != memory.Reap {
				continue
			}
			all.tell(d, api.Event{Kind: "worker.reaped", Session: action.Party.Session, Environment: action.Party.Environment,
				Generation: action.Party.Generation, Cause: action.Cause, Terms: map[string]any{"terms": action.Terms}})
			all.add(d.step(w, Message{Kind: StopAsked, Cause: "idle: " + action.Terms.String()}, nil))
		}
	}
	d.mu.Unlock()
	d.perform(all)
	return next
}
