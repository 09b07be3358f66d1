package supervisor

import (
	"context"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// releaseWait is how long a command waits for a worker's receipt: a full release of a large model takes seconds.
const releaseWait = 60 * time.Second

// serveBudget tells what is known of the machine's memory.
func (d *Daemon) serveBudget(ctx context.Context, _ *client, _ *wire.Message) (any, error) {
	budget, ok := d.accounts.View(ctx)
	if !ok {
		return nil, errClosing()
	}
	return budget, nil
}

// serveRelease asks workers for memory and answers with their receipts. Nobody is started for it, and nobody interrupted.
func (d *Daemon) serveRelease(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.ReleaseParams](request)
	if err != nil {
		return nil, err
	}
	if params.Bytes < 0 {
		return nil, wire.Errorf(wire.KindBadRequest, "release of %d bytes: a number of bytes is above zero, or left out for everything", params.Bytes)
	}
	kind := memory.FullRelease
	switch {
	case params.Pins:
		kind = memory.ReleasePins
		if params.Bytes == 0 {
			params.Bytes = 1 << 60 // all there are
		}
	case params.Bytes > 0:
		kind = memory.PartialRelease
	}
	d.mu.Lock()
	found := d.chosen(c, api.StopParams{Environment: params.Environment, AllSessions: params.AllSessions}, func(w *worker) bool {
		return w.record.State == Ready || w.record.State == Busy || w.record.State == Released
	})
	d.mu.Unlock()
	wishes := make([]budget.Wish, len(found))
	for i, w := range found {
		wishes[i] = budget.Wish{Party: w.account(), Kind: kind, Bytes: memory.Bytes(params.Bytes), Cause: "asked for by " + c.describe()}
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	result := api.ReleaseResult{Released: []api.Released{}}
	for _, got := range d.accounts.Release(ctx, wishes) {
		released := api.Released{Session: got.Party.Session, Environment: got.Party.Environment, Generation: got.Party.Generation,
			Kind: string(got.Kind), Freed: int64(got.Freed), PinsFreed: int64(got.PinsFreed), Busy: got.Busy, Nothing: got.Nothing, Error: got.Error}
		for _, step := range got.Steps {
			released.Steps = append(released.Steps, api.ReleaseStep{Name: step.Name, Freed: int64(step.Freed), Error: step.Error})
		}
		result.Released = append(result.Released, released)
	}
	return result, nil
}

// serveUnload passes on that a host's stand-in was unloaded, or that somebody asked the host to free memory.
func (d *Daemon) serveUnload(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[budget.Unload](request)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	return d.accounts.Unload(ctx, c.session.id, params), nil
}

// addMemory adds to workers what they hold, and may hold.
func (d *Daemon) addMemory(ctx context.Context, workers []api.Worker) {
	known, ok := d.accounts.View(ctx)
	if !ok {
		return
	}
	byParty := make(map[memory.Party]*api.WorkerMemory, len(known.Parties))
	for i := range known.Parties {
		party := &known.Parties[i]
		byParty[memory.Party{Session: party.Session, Environment: party.Environment, Generation: party.Generation}] = &party.Memory
	}
	for i := range workers {
		w := &workers[i]
		w.Memory = byParty[memory.Party{Session: w.Session, Environment: w.Environment, Generation: w.Generation}]
	}
}
