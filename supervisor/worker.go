package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/mirror"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// worker is one generation of a place: its record and the process that the record is about.
type worker struct {
	place      *place
	id         string // random; also the owner of its memory files
	generation uint64
	party      spawn.Party
	limits     environmentLimits
	before     *worker         // the generation that this one replaces, until it starts
	startCtx   context.Context // ends when the start is to be given up
	stopStart  context.CancelFunc
	settled    chan struct{} // closed when nothing of the process is left

	// Set before calls are forwarded, and then constant.
	peer    *wire.Peer
	result  json.RawMessage // the result of every call: who computed it
	loaded  loadResult
	environ []string // Python's complete environment

	leases atomic.Bool // it has asked for room on a card
	early  []func()    // what it asked before its process was known; guarded by Daemon.mu

	// Guarded by Daemon.mu.
	record      Record
	told        memory.Phase       // what the memory accounts know of it
	queue       []*call            // wait for it to be ready, or for its replacement
	inFlight    map[*call]struct{} // sent, or about to be
	asking      bool               // it has to answer a ping first
	unsent      []*call            // in flight, and kept back until then
	byID        map[uint64]*call   // sent, by their ID on the worker's connection
	calls       uint64             // answered
	process     spawn.Worker       // nil until it is launched
	environment envbuild.Environment
	manifest    fileStamp // of the environment's manifest, when it started
	variables   []api.Variable
	flags       []mirror.Flag // the host's flags, as they were handed on
	mirrored    *api.Mirrored // what came of them; nil until the worker has said
	createdAt   time.Time
	phase       string
	failure     *wire.Error // how the start failed
	lastExit    *api.Exit   // how it ended; before that, how the generation before it did
	readyAt     time.Time
	adopted     bool
	tick        *time.Timer
}

// newWorker makes a generation; Daemon.mu is held, or nobody else knows the place yet.
func (d *Daemon) newWorker(p *place, record Record) *worker {
	w := &worker{
		place:      p,
		id:         randomID(16),
		generation: record.Generation,
		limits:     d.config.limits(p.environment, manifest.Options{}),
		settled:    make(chan struct{}),
		createdAt:  time.Now(),
		record:     record,
		inFlight:   make(map[*call]struct{}),
		byID:       make(map[uint64]*call),
	}
	w.party = spawn.Party{ID: w.id}
	w.startCtx, w.stopStart = context.WithCancel(d.ctx)
	if !record.State.alive() {
		close(w.settled)
	}
	return w
}

// isSettled reports whether nothing of the process is left.
func (w *worker) isSettled() bool {
	select {
	case <-w.settled:
		return true
	default:
		return false
	}
}

// cancelStart ends a start that is under way.
func (w *worker) cancelStart() { w.stopStart() }

// own is the goroutine of one worker: it starts the process, waits for its end and reports both.
func (d *Daemon) own(w *worker) {
	defer w.stopStart()
	d.awaitPredecessor(w)
	process, ok := d.start(w)
	if process == nil {
		d.exited(w, nil)
		d.settle(w)
		return
	}
	if ok {
		d.send(w, Message{Kind: Loaded})
	}
	d.attend(w, process)
}

// attend waits for a process's end: its calls are answered when Python has ended, and the worker is gone when nothing
// of its tree is left.
func (d *Daemon) attend(w *worker, process spawn.Worker) {
	<-process.PythonEnded()
	exit := process.Exit()
	d.exited(w, &exit)
	<-process.Done()
	d.markUsed(w)
	d.settle(w)
}

// markUsed notes that a worker's environment is used, so that nobody deletes it as long unused.
func (d *Daemon) markUsed(w *worker) {
	d.mu.Lock()
	environment := w.environment
	d.mu.Unlock()
	if environment.Prefix == "" {
		return // of a worker that was adopted
	}
	var err error
	recordTurns.Do(func() { err = d.config.Environments.MarkUsed(environment) })
	if err != nil {
		d.log.Warn().Err(err).Str("environment", environment.Name).Msg("the use of an environment is not noted")
	}
}

// awaitPredecessor waits for what is left of the generation before, so that two of them never share a machine's memory;
// what can not be killed is not waited for longer than it takes to find that out.
func (d *Daemon) awaitPredecessor(w *worker) {
	if w.before == nil {
		return
	}
	timer := time.NewTimer(w.limits.stopGrace)
	defer timer.Stop()
	select {
	case <-w.before.settled:
	case <-timer.C:
	case <-w.startCtx.Done():
	}
	w.before = nil
}

// start brings a worker to where it takes calls. Without a process there is nothing left of the attempt.
func (d *Daemon) start(w *worker) (spawn.Worker, bool) {
	spec, err := d.prepare(w)
	if err != nil {
		d.startFailed(w, wire.AsError(err), false)
		return nil, false
	}
	d.startClock(w)
	process, err := spawn.Launch(w.startCtx, spec, &workerHandler{daemon: d, worker: w})
	if err != nil {
		if w.startCtx.Err() == nil {
			d.startFailed(w, d.launchStory(w, err), true)
		}
		return nil, false
	}
	d.markUsed(w)
	stopped := d.takeProcess(w, process)
	if stopped { // the request to stop found no process to end
		d.goSafely(func() { d.end(w, true) })
		return process, false
	}
	return process, d.load(w, process, spec.Load)
}

// startClock sets the limit of a start.
func (d *Daemon) startClock(w *worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.limits.start > 0 && w.record.State == Starting {
		for _, queued := range w.queue {
			w.limits.start = max(w.limits.start, queued.patience)
		}
		w.tick = d.after(time.Until(w.record.Since.Add(w.limits.start)), func() { d.startLimit(w) })
	}
}

// takeProcess ties a process to its record, and reports whether that does not want it any more.
func (d *Daemon) takeProcess(w *worker, process spawn.Worker) (stopped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.process = process
	w.peer = process.Peer()
	if pid := process.PythonPID(); w.party.PID != pid { // an adopted one's was known before
		w.party.PID = pid
	}
	w.result = wire.Params(api.CallResult{Environment: w.place.environment, Generation: w.generation, Worker: w.id, PythonPID: process.PythonPID()})
	d.join(w.party, w.peer)
	d.joinAccounts(w, process)
	return w.record.State != Starting
}

// load has the worker import its pack.
func (d *Daemon) load(w *worker, process spawn.Worker, params json.RawMessage) bool {
	reply, body, err := w.peer.Request(w.startCtx, &wire.Message{Method: methodLoad, Params: params, Lane: wire.LaneMain, Generation: w.generation}, nil)
	if err == nil {
		var loaded loadResult
		if loaded, err = d.decodeLoaded(w, reply, body); err == nil {
			d.mu.Lock()
			w.loaded = loaded
			w.readyAt = time.Now()
			w.phase = ""
			d.mu.Unlock()
			return true
		}
		err = fmt.Errorf("reading what it says about its nodes: %w", err)
	}
	if isGone(err) || w.startCtx.Err() != nil { // the end of the process tells the story, or whoever stopped the start does
		return false
	}
	failure := wire.AsError(err)
	if failure.Data.Kind == wire.KindInternal {
		failure = wire.Errorf(wire.KindStartFailed, "the worker of %s did not load its pack: %v", w.place.environment, err)
	}
	d.startFailed(w, failure, false)
	return false
}

// prepare works out how to launch a worker: its environment, variables, folder and what it loads.
func (d *Daemon) prepare(w *worker) (spawn.Spec, error) {
	s := w.place.session
	environment, err := d.findEnvironment(s, w.place.environment)
	if err != nil {
		d.mu.Lock()
		if w.generation == 1 { // a name that means nothing leaves no record behind
			delete(s.places, w.place.environment)
		}
		d.mu.Unlock()
		return spawn.Spec{}, err
	}
	stamp := stampOf(environment.Manifest)
	limits := d.config.limits(w.place.environment, environment.Options)
	reflection := mirror.Plan(d.mirrorInput(w, s, environment))
	d.mu.Lock()
	w.limits = limits
	w.environment = environment
	w.manifest = stamp
	w.variables = describeVariables(reflection)
	w.flags = reflection.Flags
	w.environ = reflection.Environ()
	d.mu.Unlock()
	load, err := json.Marshal(d.loadParams(w, environment))
	if err != nil {
		return spawn.Spec{}, fmt.Errorf("encoding what the worker loads: %w", err)
	}
	return spawn.Spec{
		Worker:      w.id,
		Session:     s.id,
		Environment: w.place.environment,
		Generation:  w.generation,
		Python:      environment.Python,
		Program:     d.config.Program,
		Directory:   environment.PackDirectory,
		Variables:   reflection.Environ(),
		Load:        load,
		Host:        s.process,
		Folder:      d.workerFolder(w.id),
		Binary:      d.config.Binary,
		Version:     d.config.Version,
		Log:         &workerLog{daemon: d, worker: w},
		Phase:       func(report spawn.PhaseReport) { d.launcherPhase(w, report) },
		Logger:      d.workerLogger(w),
		OrphanWait:  d.config.LauncherOrphan,
		StopGrace:   limits.stopGrace,
	}, nil
}

// mirrorInput collects what a worker's variables follow from.
func (d *Daemon) mirrorInput(w *worker, s *session, environment envbuild.Environment) mirror.Input {
	state, problems := mirror.DecodeHostState(s.hostState)
	for _, problem := range problems {
		d.log.Warn().Str("session", s.id).Str("name", problem.Name).Str("reason", problem.Reason).Msg("a part of the host's report is not used")
	}
	if state.ComfyUIDirectory == "" {
		state.ComfyUIDirectory = s.comfyui
	}
	return mirror.Input{
		OS:                   runtime.GOOS,
		HostEnviron:          d.baseEnviron(w, s, environment),
		ShellEnviron:         startEnviron(s.process),
		Host:                 state,
		EnvironmentVariables: environment.Variables,
		Activation:           environment.Activation,
		Activated:            environment.Activated,
		FirstFolders:         environment.PathFirst,
		LastFolders:          environment.PathLast,
		Prefix:               environment.Prefix,
		Backend:              environment.Backend,
		Worker:               w.id,
		SerializerFiles:      serializerFiles(environment.PackDirectory),
	}
}

// serializerFiles are a pack's modules that register how its types cross.
func serializerFiles(pack string) []string {
	file := filepath.Join(pack, "serialization.py")
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return nil
	}
	return []string{file}
}

// baseEnviron is the environment that a worker's variables start from: the host's when it registered; in the
// operator's session the one recorded when the environment was built, else that of the command that calls.
func (d *Daemon) baseEnviron(w *worker, s *session, environment envbuild.Environment) []string {
	if s.role == api.RoleHost {
		return environList(s.environ)
	}
	if len(environment.Facts.Environ) > 0 {
		return environList(environment.Facts.Environ)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, queued := range w.queue {
		if len(queued.client.hello.Environ) > 0 {
			return environList(queued.client.hello.Environ)
		}
	}
	return nil
}

// startFailed records how a start failed and ends what there is of it.
func (d *Daemon) startFailed(w *worker, failure *wire.Error, crash bool) {
	d.mu.Lock()
	if w.failure == nil {
		failure.Data.Environment = w.place.environment
		failure.Data.Generation = w.generation
		w.failure = failure
	}
	e := d.step(w, Message{Kind: StartRefused, Cause: failure.Message, Crash: crash}, nil)
	d.mu.Unlock()
	d.note(w, levelError, "the start failed: %s", failure.Message)
	d.perform(e)
}

// startLimit ends a start that takes too long, with what the worker does right now.
func (d *Daemon) startLimit(w *worker) {
	d.mu.Lock()
	if w.record.State != Starting {
		d.mu.Unlock()
		return
	}
	phase, peer := w.phase, w.peer
	d.mu.Unlock()
	if phase == "" {
		phase = "starting Python"
	}
	failure := wire.Errorf(wire.KindStartFailed, "the worker of %s was not ready after %s; it was at: %s", w.place.environment, w.limits.start, phase)
	failure.Data.Remedy = "see `comfy-supervisor logs " + w.place.environment + "`; if it only needs longer, raise start for this environment in the settings"
	if stacks := d.askStacks(peer); stacks != "" {
		failure.Data.Stderr = lastLines(splitLines(stacks))
	}
	failure.Data.Environment, failure.Data.Generation = w.place.environment, w.generation
	d.mu.Lock()
	if w.failure == nil {
		w.failure = failure
	}
	e := d.step(w, Message{Kind: Tick, Cause: failure.Message}, nil)
	d.mu.Unlock()
	d.perform(e)
}

// stacksWait is how long a stuck worker may take to tell where it is; its reading thread answers at once or never.
const stacksWait = time.Second

// askStacks asks a worker where its Python threads are; empty when it can not tell.
func (d *Daemon) askStacks(peer *wire.Peer) string {
	if peer == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(d.ctx, stacksWait)
	defer cancel()
	reply, _, err := peer.Request(ctx, &wire.Message{Method: methodStacks, Lane: wire.LaneReader}, nil)
	if err != nil {
		return ""
	}
	var stacks struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(reply.Result, &stacks) != nil {
		return ""
	}
	return stacks.Text
}

// How long a launcher may take to stop a tree by signals, and how long the kernel may take to end one. Both are reached
// only when something is suspended or in uninterruptible sleep.
const (
	launcherStopTime = 3 * time.Second
	killTime         = 10 * time.Second
)

// end ends a worker's process tree; own reports when that is done.
func (d *Daemon) end(w *worker, force bool) {
	d.mu.Lock()
	process := w.process
	d.mu.Unlock()
	if process == nil { // not launched, or not yet: cancelling the start ends what there is
		return
	}
	if !force {
		// Beyond the grace time the launcher has SIGTERM and SIGKILL to try; one that does not answer by then is stuck.
		ctx, cancel := context.WithTimeout(context.Background(), w.limits.stopGrace+launcherStopTime)
		err := process.Stop(ctx)
		cancel()
		if err == nil {
			return
		}
		d.log.Warn().Err(err).Str("worker", w.id).Msg("stopping a worker failed, killing it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := process.Kill(ctx); err != nil {
		d.log.Error().Err(err).Str("worker", w.id).Msg("killing a worker failed")
		d.event(api.Event{Kind: "worker.unkillable", Session: w.place.session.id, Environment: w.place.environment, Generation: w.generation, Cause: err.Error()})
	}
}

// exited reports the end of a worker's processes. exit is nil when there was none.
func (d *Daemon) exited(w *worker, exit *spawn.Exit) {
	d.mu.Lock()
	cause := w.record.Cause
	wanted := w.record.State == Stopping && !w.record.crash
	if exit != nil {
		w.lastExit = &api.Exit{At: exit.Time, Generation: w.generation, Code: exit.Code, Signal: exit.Signal, Reason: exit.Reason, Stderr: lastLines(exit.Stderr)}
		if w.record.State != Stopping {
			cause = exit.String()
		}
	}
	e := d.step(w, Message{Kind: Exited, Cause: cause}, nil)
	d.mu.Unlock()
	if exit != nil {
		level := levelError
		if wanted {
			level = levelInfo
		}
		d.note(w, level, "the worker %s", exit)
	}
	d.perform(e)
}

// settle clears away what a worker's processes held and wakes who waits for its end.
func (d *Daemon) settle(w *worker) {
	d.files.Drop(w.party.ID)
	d.spoiled.forget(w.party.ID)
	_, left := os.Lstat(d.workerFolder(w.id))
	d.accounts.Gone(w.account()) // as it is since Python ended, unless it never got so far
	d.mu.Lock()
	if left == nil {
		d.leftover[w.id] = struct{}{}
	}
	w.process = nil
	delete(d.couriers, w.party.ID)
	close(w.settled)
	d.forgetIfSettled(w.place.session)
	d.mu.Unlock()
}

// isGone reports whether an error means that the other side of a connection has ended.
func isGone(err error) bool { return errors.Is(err, wire.ErrPeerGone) }
