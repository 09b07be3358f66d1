package supervisor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

// leftoverLoop tries from time to time to remove what is left of workers that are gone.
func (d *Daemon) leftoverLoop() {
	interval := d.config.SweepInterval
	if interval <= 0 {
		interval = 10 * time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
			d.removeLeftover()
		}
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
