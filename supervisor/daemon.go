package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// Daemon is one supervisor. Make it with New and run it once.
type Daemon struct {
	config    Config
	log       zerolog.Logger
	self      spawn.Process
	startedAt time.Time
	ctx       context.Context // ends when the daemon begins to end
	cancel    context.CancelFunc
	files     *spawn.Holder
	events    *eventLog
	logs      *logs
	listener  net.Listener
	manifests *manifestWatch
	accounts  *budget.Keeper // who holds and may hold how much memory

	work     sync.WaitGroup // goroutines of workers, sessions and timers
	clientWG sync.WaitGroup

	mu       sync.Mutex
	closing  bool
	forced   bool
	sessions map[string]*session
	ending   map[*session]struct{} // ended, but with workers that still end
	operator *session
	clients  map[*client]struct{}
	couriers map[string]*courier // the ways to owners of memory files
	spoiled  spoiled             // memory files that are not to be filled again; has a lock of its own
	leftover map[string]struct{} // workers that are gone and whose folders are not
	awaited  map[string]struct{} // recorded sessions whose hosts have not said yet what they hold
}

// New makes a daemon; nothing is touched before Run.
func New(config Config) (*Daemon, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	self, err := spawn.Self()
	if err != nil {
		return nil, fmt.Errorf("looking at our own process: %w", err)
	}
	d := &Daemon{
		config:   config,
		log:      config.Log,
		self:     self,
		events:   newEventLog(),
		sessions: make(map[string]*session),
		ending:   make(map[*session]struct{}),
		clients:  make(map[*client]struct{}),
		couriers: make(map[string]*courier),
		leftover: make(map[string]struct{}),
		awaited:  make(map[string]struct{}),
	}
	d.files = d.newHolder()
	d.manifests = newManifestWatch(d)
	d.accounts = d.newKeeper()
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.operator = d.newSession(api.RoleOperator, operatorSession, spawn.Process{})
	d.operator.name = "operator"
	d.sessions[operatorSession] = d.operator
	return d, nil
}

func (d *Daemon) workersFolder() string         { return filepath.Join(d.config.RuntimeDirectory, "workers") }
func (d *Daemon) workerFolder(id string) string { return filepath.Join(d.workersFolder(), id) }

func (d *Daemon) sessionFolder() string { return filepath.Join(d.config.RuntimeDirectory, "sessions") }

// reservedThreads are enough for all Turns of this process, and for the system calls of clients that are short.
const reservedThreads = 48

// Turns of waiting for files, apart for each place: one whose file system hangs holds up no other.
var (
	recordTurns  = spawn.NewTurns(4) // records of environments
	factsTurns   = spawn.NewTurns(4) // what hosts leave in files
	sessionTurns = spawn.NewTurns(4) // records of sessions
	logTurns     = spawn.NewTurns(4)
)

// Run serves until the context ends or a client asks for the end; then it stops every worker and leaves nothing
// behind. An *AlreadyRunningError says that another one serves the runtime directory.
func (d *Daemon) Run(ctx context.Context) (err error) {
	defer d.cancel()
	if err := privateDirectory(d.config.RuntimeDirectory); err != nil {
		return err
	}
	lock, err := acquireLock(filepath.Join(d.config.RuntimeDirectory, "supervisor.lock"), d.config.RuntimeDirectory)
	if err != nil {
		return err
	}
	released := false
	release := func() error {
		if released {
			return nil
		}
		released = true
		return lock.release()
	}
	defer func() { err = errors.Join(err, release()) }()
	spawn.ReserveThreads(reservedThreads)
	for _, folder := range []string{d.workersFolder(), d.sessionFolder()} {
		if err := privateDirectory(folder); err != nil {
			return err
		}
	}
	if d.logs, err = newLogs(filepath.Join(d.config.StateDirectory, "logs")); err != nil {
		return err
	}
	defer d.logs.close()
	defer d.files.Close()
	if d.listener, err = listen(ctx, d.config.Socket); err != nil {
		return err
	}
	d.startedAt = time.Now()
	accounting, closeAccounts := context.WithCancel(context.Background()) // they end when no worker is left
	var keeping sync.WaitGroup
	keeping.Go(func() { d.accounts.Run(accounting) })
	defer keeping.Wait()
	defer closeAccounts()
	d.takeOver(ctx)
	d.serve(ctx)
	return d.clearAway(release)
}

// serve accepts clients until the end is asked for.
func (d *Daemon) serve(ctx context.Context) {
	d.work.Go(d.leftoverLoop)
	d.work.Go(d.manifests.run)
	d.work.Go(d.acceptClients)
	d.log.Info().Str("socket", d.config.Socket).Int("pid", d.self.PID).Msg("supervisor ready")
	d.event(api.Event{Kind: "supervisor.ready", Terms: map[string]any{"pid": d.self.PID, "version": d.config.Version}})
	if d.config.Ready != nil {
		d.config.Ready()
	}
	select {
	case <-ctx.Done():
		cause := "the supervisor was told to end"
		if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
			cause = why.Error()
		}
		d.close(cause)
	case <-d.ctx.Done():
	}
}

// acceptClients lets clients in until the daemon ends. Where the system lacks something for another connection those
// that wait have to wait longer: it is no reason to end what works.
func (d *Daemon) acceptClients() {
	scarce := false
	for {
		conn, err := d.listener.Accept()
		switch {
		case err == nil:
			scarce = false
			d.clientWG.Go(func() { d.serveClient(conn) })
		case d.ctx.Err() != nil:
			return
		case isScarcity(err):
			if !scarce {
				scarce = true
				d.log.Error().Err(err).Msg("no client can be accepted now; trying again until one can")
			}
			select {
			case <-time.After(acceptPause):
			case <-d.ctx.Done():
			}
		default:
			d.log.Error().Err(err).Msg("accepting clients failed; the supervisor ends")
			d.close("accepting clients failed: " + err.Error())
			return
		}
	}
}

// acceptPause is the time between two attempts to accept a client while descriptors or memory are short: that some are
// free again is told by nobody.
const acceptPause = 50 * time.Millisecond

// isScarcity reports whether an error means that something is used up which may be free again, or that a client has
// given up meanwhile.
func isScarcity(err error) bool {
	for _, scarcity := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, scarcity) {
			return true
		}
	}
	return false
}

// close begins the end: nothing new is taken, and every worker is asked to stop.
func (d *Daemon) close(cause string) {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		return
	}
	d.closing = true
	var all effects
	for _, s := range d.sessions {
		d.stopReconnect(s)
		for _, p := range s.places {
			all.add(d.step(p.current, Message{Kind: StopAsked, Cause: cause}, nil))
		}
	}
	d.mu.Unlock()
	d.log.Info().Str("cause", cause).Msg("supervisor ends")
	d.event(api.Event{Kind: "supervisor.ending", Cause: cause})
	d.perform(all)
	d.cancel()
}

// clearAway waits for the workers' ends and removes what the daemon keeps outside itself. Clients are let go last: to
// them the end of the connection means that nothing is left.
func (d *Daemon) clearAway(releaseLock func() error) error {
	_ = d.listener.Close() // no client more; its error would change nothing
	d.waitForWorkers()
	var problems []error
	for _, folder := range []string{d.workersFolder(), d.sessionFolder()} {
		if err := os.RemoveAll(folder); err != nil {
			problems = append(problems, fmt.Errorf("removing %s: %w", folder, err))
		}
	}
	problems = append(problems, removeSocket(d.config.Socket), releaseLock())
	d.mu.Lock()
	for c := range d.clients {
		c.box.finish()
	}
	d.mu.Unlock()
	d.clientWG.Wait()
	d.work.Wait()
	return errors.Join(problems...)
}

// waitForWorkers waits until no worker is alive.
func (d *Daemon) waitForWorkers() {
	for {
		var wait chan struct{}
		d.mu.Lock()
		for _, w := range d.liveWorkers() {
			wait = w.settled
			break
		}
		d.mu.Unlock()
		if wait == nil {
			return
		}
		<-wait
	}
}

// liveWorkers returns all workers that may have a process, of sessions that end as well; Daemon.mu is held.
func (d *Daemon) liveWorkers() []*worker {
	var live []*worker
	for _, s := range d.allSessions() {
		for _, p := range s.places {
			if !p.current.isSettled() {
				live = append(live, p.current)
			}
		}
	}
	return live
}

// allSessions returns sessions that live and those that end; Daemon.mu is held.
func (d *Daemon) allSessions() []*session {
	all := make([]*session, 0, len(d.sessions)+len(d.ending))
	for _, s := range d.sessions {
		all = append(all, s)
	}
	for s := range d.ending {
		all = append(all, s)
	}
	return all
}

// goSafely runs a function in a goroutine that the end of the daemon waits for. Only code that the daemon already
// waits for, or that holds off its end otherwise, may call it.
func (d *Daemon) goSafely(function func()) { d.work.Go(function) }

// after runs a function later, unless the daemon has begun to end by then.
func (d *Daemon) after(delay time.Duration, function func()) *time.Timer {
	return time.AfterFunc(delay, func() {
		d.mu.Lock()
		if d.closing {
			d.mu.Unlock()
			return
		}
		d.work.Add(1)
		d.mu.Unlock()
		defer d.work.Done()
		function()
	})
}

// event numbers an event, keeps it, and logs it.
func (d *Daemon) event(event api.Event) { d.logEvent(d.events.add(event)) }

// logEvent writes an event into the daemon's log.
func (d *Daemon) logEvent(event api.Event) {
	line := d.log.Info().Uint64("sequence", event.Sequence)
	if event.Session != "" {
		line = line.Str("session", event.Session)
	}
	if event.Environment != "" {
		line = line.Str("environment", event.Environment).Uint64("generation", event.Generation)
	}
	if event.Cause != "" {
		line = line.Str("cause", event.Cause)
	}
	line.Msg(event.Kind)
}

// describe tells who this daemon is.
func (d *Daemon) describe() api.Supervisor {
	binary := d.config.Binary
	if binary == "" {
		binary, _ = os.Executable() // only for people to read
	}
	return api.Supervisor{
		PID: d.self.PID, StartTime: d.self.StartTime, Version: d.config.Version, Protocol: wire.ProtocolVersion,
		StartedAt: d.startedAt, Binary: binary, Socket: d.config.Socket, Private: d.config.Private,
		RuntimeDirectory: d.config.RuntimeDirectory, StateDirectory: d.config.StateDirectory,
	}
}

// sessionEnded reports the end of a session and forgets its record.
func (d *Daemon) sessionEnded(s *session, cause string) {
	if err := removeSessionFile(d.sessionFolder(), s.id); err != nil {
		d.log.Error().Err(err).Msg("forgetting a session")
	}
	for owner := range s.owners {
		d.files.Drop(owner)
		d.spoiled.forget(owner)
	}
	d.inventoryDone(s)
	d.accounts.Forget(s.id)
	d.event(api.Event{Kind: "session.ended", Session: s.id, Cause: cause})
}
