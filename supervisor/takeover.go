package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// takeOverLimit bounds how long one worker's adoption may take; a launcher answers at once or not at all.
const takeOverLimit = 10 * time.Second

// takeOver continues what an earlier supervisor left: sessions whose hosts live wait for them, their workers are
// adopted, and what belongs to nobody is removed.
func (d *Daemon) takeOver(ctx context.Context) {
	d.restoreSessions()
	records, problems := spawn.LoadRecords(d.workersFolder())
	for _, problem := range problems {
		d.log.Warn().Err(problem).Msg("a worker's record can not be used; what it is about is removed")
	}
	var mu sync.Mutex
	live := make(map[string]bool)
	var adoptions sync.WaitGroup
	never := make([]func(), len(records))
	for i, record := range records { // all, before the first one is there to ask for room
		never[i] = d.accounts.Expect(memory.Party{Session: record.Session, Environment: record.Environment, Generation: record.Generation})
	}
	for i, record := range records {
		adoptions.Go(func() {
			if d.adopt(ctx, record) {
				mu.Lock()
				live[record.Worker] = true
				mu.Unlock()
			} else {
				never[i]()
			}
		})
	}
	adoptions.Wait()
	d.removeStale(ctx, live)
	killed, err := spawn.Sweep(ctx, live)
	if err != nil {
		d.log.Error().Err(err).Msg("removing processes that belong to no worker")
	}
	if len(killed) > 0 {
		d.event(api.Event{Kind: "processes.removed", Cause: "they belonged to workers without a launcher", Terms: map[string]any{"count": len(killed)}})
	}
	d.mu.Lock()
	complete := len(d.awaited) == 0
	d.mu.Unlock()
	if complete {
		d.files.Settle()
	}
}

// restoreSessions makes the sessions of hosts that live, each with the usual time to reconnect.
func (d *Daemon) restoreSessions() {
	recorded, problems := readSessionFiles(d.sessionFolder())
	for _, problem := range problems {
		d.log.Warn().Err(problem).Msg("a session's record can not be used")
	}
	for _, file := range recorded {
		process := spawn.Process{PID: file.PID, StartTime: file.StartTime}
		if file.Role != api.RoleHost || !process.Alive() {
			if err := removeSessionFile(d.sessionFolder(), file.ID); err != nil {
				d.log.Error().Err(err).Msg("forgetting a session")
			}
			continue
		}
		s := d.newSession(file.Role, file.ID, process)
		s.token, s.since = file.Token, file.Since
		s.describeHost(file.Name, file.ComfyUI, file.Environ, file.HostFacts, file.HostState)
		for _, owner := range file.Owners {
			s.owners[owner] = struct{}{}
		}
		d.mu.Lock()
		d.sessions[s.id] = s
		d.awaited[s.id] = struct{}{}
		d.awaitReconnect(s)
		d.mu.Unlock()
		d.joinHostAccounts(s, true)
		d.watchHost(s)
		d.event(api.Event{Kind: "session.restored", Session: s.id, Terms: map[string]any{"pid": process.PID, "name": s.name}})
	}
}

// inventoryDone takes note that a session's host has said what it holds, or never will. Once none is awaited, files
// that nobody spoke of go back to their owners.
func (d *Daemon) inventoryDone(s *session) {
	d.mu.Lock()
	delete(d.awaited, s.id)
	complete := len(d.awaited) == 0
	d.mu.Unlock()
	if complete {
		d.files.Settle()
	}
}

// adopt takes over the worker of a record, or ends it when its session is gone. It reports whether the worker lives on.
func (d *Daemon) adopt(ctx context.Context, record spawn.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, takeOverLimit)
	defer cancel()
	d.mu.Lock()
	s := d.sessions[record.Session]
	var w *worker
	if s != nil && d.place(s, record.Environment).current.generation < record.Generation {
		w = d.adoptRecord(s, record)
	}
	d.mu.Unlock()
	if w == nil { // its session is gone, or a newer generation has its place
		d.endRecorded(ctx, record)
		return false
	}
	process, err := spawn.Attach(ctx, record, &workerHandler{daemon: d, worker: w}, spawn.AttachOptions{
		Log:    &workerLog{daemon: d, worker: w},
		Phase:  func(report spawn.PhaseReport) { d.launcherPhase(w, report) },
		Logger: d.workerLogger(w),
	})
	if err != nil {
		d.log.Warn().Err(err).Str("worker", record.Worker).Msg("adopting a worker failed")
		d.exited(w, nil)
		d.settle(w)
		return false
	}
	d.takeProcess(w, process)
	inventoryErr, nodesErr := d.askInventory(w), d.askNodes(w)
	if err := errors.Join(inventoryErr, nodesErr); err != nil {
		d.log.Warn().Err(err).Str("worker", w.id).Msg("an adopted worker does not answer everything")
	}
	d.mu.Lock()
	loaded := nodesErr == nil && (w.loaded.Loaded == nil || *w.loaded.Loaded)
	d.mu.Unlock()
	adopted := Message{Kind: Loaded, Cause: "adopted from an earlier supervisor"}
	if loaded {
		d.send(w, adopted)
	}
	d.event(api.Event{Kind: "worker.adopted", Session: s.id, Environment: record.Environment, Generation: record.Generation,
		Terms: map[string]any{"worker": w.id, "python_pid": process.PythonPID()}})
	d.goSafely(func() {
		if !loaded && d.finishStart(w, process, record.Load, inventoryErr != nil) {
			d.send(w, adopted)
		}
		d.attend(w, process)
	})
	return true
}

// finishStart loads an adopted worker whose earlier supervisor died before it had seen it loaded. One that has imported
// its pack meanwhile just says so again.
func (d *Daemon) finishStart(w *worker, process spawn.Worker, load json.RawMessage, askFiles bool) bool {
	d.startClock(w)
	if !d.load(w, process, load) {
		return false
	}
	if askFiles {
		if err := d.askInventory(w); err != nil {
			d.log.Warn().Err(err).Str("worker", w.id).Msg("some memory files of an adopted worker are not known")
		}
	}
	return true
}

// adoptRecord puts a recorded worker into its place; Daemon.mu is held.
func (d *Daemon) adoptRecord(s *session, record spawn.Record) *worker {
	p := d.place(s, record.Environment)
	w := d.newWorker(p, newRecord(record.Generation, nil, 0, time.Now()))
	w.id = record.Worker
	w.party = spawn.Party{ID: record.Worker, PID: record.Python.PID} // before it is attached to: frames arrive at once
	w.adopted = true
	p.current = w
	var load loadParams
	_ = json.Unmarshal(record.Load, &load) // what it does not tell is missing in status, nothing else
	if environment, err := d.findEnvironment(s, record.Environment); err == nil {
		w.limits = d.config.limits(record.Environment, environment.Options)
		if environmentID(environment) == load.EnvironmentID {
			w.environment = environment
		}
	}
	if w.environment.Name == "" {
		w.environment.Name = record.Environment
		w.environment.PackDirectory, w.environment.NodesDirectory = load.Pack.Directory, load.Pack.Nodes
	}
	return w
}

// endRecorded ends a worker that belongs to nobody.
func (d *Daemon) endRecorded(ctx context.Context, record spawn.Record) {
	process, err := spawn.Attach(ctx, record, refuseAll{}, spawn.AttachOptions{Logger: d.log})
	if err != nil {
		return // its launcher is gone: what is left of it is removed with the stale folders
	}
	if err := process.Kill(ctx); err != nil {
		d.log.Error().Err(err).Str("worker", record.Worker).Msg("ending a worker that belongs to nobody")
		return
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
	}
	d.event(api.Event{Kind: "worker.removed", Session: record.Session, Environment: record.Environment, Generation: record.Generation,
		Cause: "its session is gone"})
}

// removeStale removes the folders of workers that were not adopted, with what their launchers left behind.
func (d *Daemon) removeStale(ctx context.Context, live map[string]bool) {
	entries, err := os.ReadDir(d.workersFolder())
	if err != nil {
		d.log.Error().Err(err).Msg("listing the workers' folders")
		return
	}
	for _, entry := range entries {
		if live[entry.Name()] {
			continue
		}
		folder := filepath.Join(d.workersFolder(), entry.Name())
		if err := spawn.RemoveStale(ctx, folder); err != nil {
			d.log.Error().Err(err).Str("folder", folder).Msg("removing what a lost launcher left")
		}
	}
}

// askNodes asks an adopted worker for its contracts, which its load had answered to the supervisor before.
func (d *Daemon) askNodes(w *worker) error {
	ctx, cancel := d.shortly()
	defer cancel()
	reply, body, err := w.peer.Request(ctx, &wire.Message{Method: api.MethodNodes, Lane: wire.LaneSide, Generation: w.generation}, nil)
	if err != nil {
		return fmt.Errorf("asking the worker of %s for its nodes: %w", w.place.environment, err)
	}
	loaded, err := d.decodeLoaded(w, reply, body)
	if err != nil {
		return fmt.Errorf("asking the worker of %s for its nodes: %w", w.place.environment, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w.loaded = loaded
	w.readyAt = time.Now()
	return nil
}

// shortly is the time for a question that a living process answers at once.
func (d *Daemon) shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, 2*time.Second)
}

// refuseAll is the handler for a worker that is only attached to in order to end it.
type refuseAll struct{}

// HandleRequest refuses.
func (refuseAll) HandleRequest(request *wire.Message, _ []byte, reply wire.ReplyFunc) {
	refuse(reply, wire.Errorf(wire.KindStopped, "%s: this worker is being ended", request.Method))
}

// HandleNotification does nothing.
func (refuseAll) HandleNotification(*wire.Message, []byte) {}
