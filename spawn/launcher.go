package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// launcher is the process between a supervisor and one Python. One goroutine, attend, decides about the worker's life;
// the methods that go-plugin serves ask it.
type launcher struct {
	launcherpb.UnimplementedLauncherServer

	worker  string
	key     string
	folder  string
	version string
	self    Process
	reaper  *reaper
	streams [2]*os.File // the standard output and error it was started with; Windows
	log     zerolog.Logger
	server  *grpc.Server
	output  *spool
	phases  *phaseBoard
	orphan  *orphanClock

	mu       sync.Mutex
	starting bool
	child    *child
	tree     *Tree
	note     string // why there is no control group
	stopping bool
	exit     *launcherpb.Exit

	grace    time.Duration
	lends    bool // the connection to Python, to the supervisor; otherwise frames pass through here
	up       upwardFrames
	down     downwardFrames
	traffic  chan struct{} // a token: one Traffic stream at a time
	turn     trafficTurn
	started  chan struct{} // closed when child is set
	stops    chan stopOrder
	killOnce sync.Once
	killed   chan struct{} // closed when nothing may be waited for any more
	killWhy  string        // set before killed is closed
	hungUp   chan struct{} // Python closed its connection, or sent what is no frame
	hangOnce sync.Once
	hangWhy  error         // set before hungUp is closed; nil when Python has closed it
	ended    chan struct{} // closed when the worker is over and exit is set
	selfEnd  bool          // nobody else will remove the folder; set before server stops
	group    sync.WaitGroup
}

// stopOrder asks attend to end the worker politely.
type stopOrder struct {
	grace  time.Duration
	reason string
}

// ServeLauncher is the body of the `worker` command: it serves one supervisor after another until its worker has ended
// and the supervisor takes its leave, or none comes back. It needs what Launch puts into its environment.
func ServeLauncher() {
	// What a launcher does is wait and pass on. On one processor the next goroutine runs where the last one stopped, in
	// place of being woken on another one: a round trip takes 44 us in place of 80.
	runtime.GOMAXPROCS(1)
	cookie := os.Getenv(handshake.MagicCookieKey)
	l := &launcher{
		worker:  os.Getenv(launcherVariable),
		folder:  os.Getenv(folderVariable),
		version: os.Getenv(versionVariable),
		lends:   canLend && os.Getenv(relayVariable) == "",
		log:     zerolog.Nop(),
		output:  newSpool(),
		phases:  newPhaseBoard(),
		traffic: make(chan struct{}, 1),
		started: make(chan struct{}),
		stops:   make(chan stopOrder, 1),
		killed:  make(chan struct{}),
		hungUp:  make(chan struct{}),
		ended:   make(chan struct{}),
		grace:   DefaultStopGrace,
	}
	key := os.Getenv(keyVariable)
	l.key = key
	for _, variable := range pluginVariables {
		if variable == handshake.MagicCookieKey || variable == plugin.EnvUnixSocketDir || len(variable) > 7 && variable[:7] == "PLUGIN_" {
			continue // go-plugin reads them
		}
		_ = os.Unsetenv(variable)
	}
	if cookie == handshake.MagicCookieValue {
		if err := l.prepare(key); err != nil {
			fmt.Fprintf(os.Stderr, "starting the launcher of worker %s: %v\n", l.worker, err)
			os.Exit(1)
		}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: pluginSets(l),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(append(options, serverOptions(key)...)...)
			l.mu.Lock()
			l.server = server
			l.mu.Unlock()
			return server
		},
		Logger: hclogTo(l.log),
	})
	l.leave()
}

// launcherThreads are enough, with those there are, for one processor and what waits for disks and for /proc: six are.
const launcherThreads = 8

// prepare makes this process a launcher.
func (l *launcher) prepare(key string) error {
	if !validWorkerID(l.worker) || key == "" || l.folder == "" {
		return errors.New("its environment is incomplete: it is started by a supervisor only")
	}
	self, err := Self()
	if err != nil {
		return err
	}
	l.self = self
	ReserveThreads(launcherThreads)
	log, err := openLauncherLog(filepath.Join(l.folder, launcherLogName))
	if err != nil {
		return err
	}
	l.log = zerolog.New(log).With().Timestamp().Logger().Level(zerolog.InfoLevel)
	l.orphan = newOrphanClock(launcherStartLimit)
	return l.prepareProcess()
}

// leave ends what is left after the server has stopped. Nothing of this process outlives it.
func (l *launcher) leave() {
	if l.orphan == nil {
		return // not a launcher: go-plugin has said so
	}
	l.orphan.stop()
	l.kill("its launcher was told to end")
	l.mu.Lock()
	running := l.starting
	l.mu.Unlock()
	if running {
		<-l.ended
	}
	l.leaveProcess()
	if l.selfEnd {
		l.log.Info().Msg("no supervisor came back: removing the folder and ending")
		_ = removeFolder(l.folder)
	}
}

// kill makes attend end the worker at once.
func (l *launcher) kill(why string) {
	l.killOnce.Do(func() {
		l.killWhy = why
		close(l.killed)
	})
}

// Describe implements the contract.
func (l *launcher) Describe(context.Context, *launcherpb.DescribeRequest) (*launcherpb.Description, error) {
	return l.describe(), nil
}

func (l *launcher) describe() *launcherpb.Description {
	l.mu.Lock()
	defer l.mu.Unlock()
	description := &launcherpb.Description{
		Worker:        l.worker,
		Launcher:      identityOut(l.self),
		BinaryVersion: l.version,
		Stopping:      l.stopping,
		Exit:          l.exit,
		CgroupNote:    l.note,
	}
	if l.child != nil {
		description.Python = identityOut(l.child.process)
		description.Cgroup = l.tree.Cgroup
	}
	return description
}

// Start implements the contract.
func (l *launcher) Start(_ context.Context, request *launcherpb.StartRequest) (*launcherpb.Description, error) {
	l.mu.Lock()
	if l.starting {
		l.mu.Unlock()
		return nil, status.Error(codes.FailedPrecondition, "this launcher has started its worker already")
	}
	l.starting = true
	l.mu.Unlock()
	if err := l.redirectOutput(); err != nil {
		l.log.Error().Err(err).Msg("standard output and error stay where they are")
	}
	l.orphan.setLimit(time.Duration(request.GetOrphanWaitNs()))
	if grace := time.Duration(request.GetStopGraceNs()); grace > 0 {
		l.grace = grace
	}
	if err := l.start(request); err != nil {
		l.log.Error().Err(err).Msg("starting Python failed")
		l.finish(&launcherpb.Exit{Reason: err.Error(), TimeNs: time.Now().UnixNano()})
		return nil, status.Error(codes.Aborted, err.Error())
	}
	return l.describe(), nil
}

func (l *launcher) start(request *launcherpb.StartRequest) error {
	host, err := watchHost(identityIn(request.GetHost()))
	if err != nil {
		return err
	}
	cgroup, note := "", ""
	if path, err := createCgroup(l.worker); err == nil {
		cgroup = path
	} else {
		note = err.Error()
	}
	child, err := startChild(request, l.worker, cgroup, l.lends)
	if err != nil && cgroup != "" {
		// A group may exist and still not take processes: threaded mode, or limits.
		l.log.Warn().Err(err).Msg("trying again without a control group")
		note = err.Error()
		_ = removeCgroup(cgroup)
		cgroup = ""
		child, err = startChild(request, l.worker, "", l.lends)
	}
	if err != nil {
		if host != nil {
			host.Close()
		}
		return err
	}
	l.mu.Lock()
	l.child = child
	l.note = note
	l.tree = &Tree{Worker: l.worker, Python: child.process, Launcher: l.self, Cgroup: cgroup}
	l.mu.Unlock()
	l.phases.report(PhaseStarted, fmt.Sprintf("process %d", child.process.PID))
	var outputs sync.WaitGroup
	outputs.Go(func() { l.output.read(StreamStdout, child.stdout) })
	outputs.Go(func() { l.output.read(StreamStderr, child.stderr) })
	outputDone := make(chan struct{})
	l.group.Go(func() {
		outputs.Wait()
		close(outputDone)
	})
	close(l.started)
	l.group.Go(func() { l.attend(host, outputDone) })
	return nil
}

// watchHost watches the process whose death ends the worker, if there is one.
func watchHost(host Process) (*Watch, error) {
	if host.IsZero() {
		return nil, nil
	}
	watch, err := WatchProcess(host)
	if err != nil {
		return nil, fmt.Errorf("watching the host: %w", err)
	}
	return watch, nil
}

// Stop implements the contract. When the call is cancelled, stopping goes on.
func (l *launcher) Stop(ctx context.Context, request *launcherpb.StopRequest) (*launcherpb.Ended, error) {
	grace := l.grace
	if request.GetGraceNs() > 0 {
		grace = time.Duration(request.GetGraceNs())
	}
	select {
	case l.stops <- stopOrder{grace: grace, reason: "stopped"}:
	default: // it is being stopped already
	}
	return l.waitEnded(ctx)
}

// Kill implements the contract.
func (l *launcher) Kill(ctx context.Context, request *launcherpb.KillRequest) (*launcherpb.Ended, error) {
	l.kill(request.GetReason())
	return l.waitEnded(ctx)
}

func (l *launcher) waitEnded(ctx context.Context) (*launcherpb.Ended, error) {
	l.mu.Lock()
	running := l.starting
	l.mu.Unlock()
	if !running {
		return &launcherpb.Ended{}, nil
	}
	select {
	case <-l.ended:
		l.mu.Lock()
		defer l.mu.Unlock()
		return &launcherpb.Ended{Exit: l.exit}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// Statistics implements the contract.
func (l *launcher) Statistics(context.Context, *launcherpb.StatisticsRequest) (*launcherpb.StatisticsReply, error) {
	reply := &launcherpb.StatisticsReply{DroppedLines: l.output.dropped(), LauncherRssBytes: residentBytes()}
	l.mu.Lock()
	tree := l.tree
	l.mu.Unlock()
	if tree != nil {
		statistics, err := tree.Statistics()
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		reply.Processes = int64(statistics.Processes)
		reply.RssBytes = statistics.RSSBytes
	}
	return reply, nil
}

// Logs implements the contract. It ends after the last line of a worker that is over.
func (l *launcher) Logs(_ *launcherpb.LogsRequest, stream launcherpb.Launcher_LogsServer) error {
	pace := newPace(time.Now())
	for {
		lines := l.output.take(stream.Context(), l.ended)
		if lines == nil {
			return nil
		}
		batch, bytes := &launcherpb.LogBatch{Lines: make([]*launcherpb.LogLine, len(lines))}, 0
		for index, line := range lines {
			batch.Lines[index] = lineOut(line)
			bytes += len(line.Text) + lineOverhead
		}
		if err := stream.Send(batch); err != nil {
			l.output.lost(lines)
			return err
		}
		if wait := pace.spend(bytes, time.Now()); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.ended: // the rest is short
			case <-stream.Context().Done():
			}
		}
	}
}
