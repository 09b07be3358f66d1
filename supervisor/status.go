package supervisor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// statisticsWait is how long status waits for launchers to count their processes.
const statisticsWait = time.Second

// serveStatus tells everything the daemon knows.
func (d *Daemon) serveStatus(ctx context.Context, _ *client, request *wire.Message) (any, error) {
	params, err := decode[api.StatusParams](request)
	if err != nil {
		return nil, err
	}
	status := api.Status{Supervisor: d.describe(), Sessions: []api.Session{}, Workers: []api.Worker{}}
	status.Supervisor.RSSBytes = ownRSS()
	var processes []spawn.Worker
	d.mu.Lock()
	for _, s := range d.allSessions() {
		status.Sessions = append(status.Sessions, d.describeSession(s))
		for _, p := range s.places {
			if w := p.current; w.generation > 0 && (params.Environment == "" || params.Environment == p.environment) {
				status.Workers = append(status.Workers, d.describeWorker(w, params.Variables))
				processes = append(processes, w.process)
			}
		}
	}
	d.mu.Unlock()
	usage := d.files.Usage()
	status.MemoryFiles = api.MemoryFiles{QuotaBytes: usage.QuotaBytes, ReservedBytes: usage.ReservedBytes, Open: usage.Files, OpenBytes: usage.FileBytes}
	addStatistics(ctx, status.Workers, processes)
	d.addMemory(ctx, status.Workers)
	slices.SortFunc(status.Sessions, func(a, b api.Session) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(status.Workers, func(a, b api.Worker) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Environment, b.Environment))
	})
	return status, nil
}

// addStatistics asks all launchers at once; one that does not answer leaves its figures out.
func addStatistics(ctx context.Context, workers []api.Worker, processes []spawn.Worker) {
	ctx, cancel := context.WithTimeout(ctx, statisticsWait)
	defer cancel()
	var asking sync.WaitGroup
	for i, process := range processes {
		if process == nil {
			continue
		}
		asking.Go(func() {
			if statistics, err := process.Statistics(ctx); err == nil {
				workers[i].RSSBytes = statistics.RSSBytes
				workers[i].Processes = statistics.Processes
				workers[i].LauncherRSSBytes = statistics.LauncherRSSBytes
			}
		})
	}
	asking.Wait()
}

// describeSession tells about a session; Daemon.mu is held.
func (d *Daemon) describeSession(s *session) api.Session {
	described := api.Session{
		ID: s.id, Role: s.role, Name: s.name, PID: s.process.PID, StartTime: s.process.StartTime, ComfyUI: s.comfyui, Stack: s.stack,
		Since: s.since, Clients: len(s.clients), Ended: s.ended,
	}
	if !s.reconnectUntil.IsZero() {
		described.ReconnectUntil = &s.reconnectUntil
	}
	return described
}

// describeWorker tells about a worker; Daemon.mu is held.
func (d *Daemon) describeWorker(w *worker, variables bool) api.Worker {
	now := time.Now()
	record := w.record
	described := api.Worker{
		ID: w.id, Session: w.place.session.id, Environment: w.place.environment, Generation: w.generation,
		State: string(record.State), Since: record.Since, Cause: record.Cause, Phase: w.phase,
		Stack: w.environment.Stack, Revision: w.environment.Revision, Prefix: w.environment.Prefix, Pack: w.environment.PackDirectory,
		Python: w.environment.Python, Platform: w.loaded.Platform, PythonVersion: w.loaded.Python, Packages: w.loaded.Packages,
		Nodes: nodeNames(w.loaded.Nodes), Adopted: w.adopted,
		Depth: record.Depth, Queued: record.Queued, Calls: w.calls, Crashes: len(record.Crashes), Exit: w.lastExit,
	}
	if process := w.process; process != nil && record.State.alive() {
		described.PythonPID = process.PythonPID()
		described.LauncherPID = process.Record().Launcher.PID
		described.Directory = process.Record().Folder
	}
	if !w.adopted && !w.readyAt.IsZero() {
		described.StartSeconds = w.readyAt.Sub(w.createdAt).Seconds()
	}
	if record.State == Ready || record.State == Released {
		described.IdleSeconds = now.Sub(record.IdleSince).Seconds()
	}
	if record.State == Backoff {
		described.BackoffUntil = &record.BackoffUntil
	}
	for call := range w.inFlight {
		if !call.sentAt.IsZero() {
			described.Current = append(described.Current, api.CurrentCall{
				Node: call.node, Seconds: now.Sub(call.sentAt).Seconds(), Silent: now.Sub(call.heardAt).Seconds(),
			})
		}
	}
	slices.SortFunc(described.Current, func(a, b api.CurrentCall) int { return cmp.Compare(b.Seconds, a.Seconds) })
	described.Mirrored = w.mirrored
	if variables {
		described.Variables = w.variables
	}
	return described
}
