package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// answerLimit is how long a launcher may take to answer what it does at once. A stopped one (SIGSTOP) never answers.
const answerLimit = 3 * time.Second

// worker is the supervisor's side of one worker. It implements Worker.
type worker struct {
	record   Record
	logger   zerolog.Logger
	sink     LogSink
	phase    func(PhaseReport)
	handler  wire.Handler
	client   *plugin.Client
	runner   interface{ detach() }
	launcher *Watch
	line     *launcherConnection
	api      launcherpb.LauncherClient
	traffic  traffic
	peer     *wire.Peer

	life        context.Context // ends this side's calls
	endLife     context.CancelFunc
	hello       chan struct{}
	helloOnce   sync.Once
	pythonEnded chan struct{}
	done        chan struct{}
	readers     sync.WaitGroup // the goroutines of peer and logs
	logsEnded   chan struct{}  // closed when the last line has been handed over

	mu       sync.Mutex
	exit     Exit
	tail     tail // of standard error, for a launcher that dies without a word
	detached bool
	stopping string // why this side ends the worker
}

func newWorker(handler wire.Handler, sink LogSink, phase func(PhaseReport), logger zerolog.Logger) *worker {
	life, endLife := context.WithCancel(context.Background())
	return &worker{
		logger:      logger,
		sink:        sink,
		phase:       phase,
		handler:     handler,
		life:        life,
		endLife:     endLife,
		hello:       make(chan struct{}),
		pythonEnded: make(chan struct{}),
		logsEnded:   make(chan struct{}),
		done:        make(chan struct{}),
	}
}

// address is where the launcher listens.
func (w *worker) address() string {
	return hostAddress(w.record.Folder, w.record.Network, w.record.Address)
}

// connect opens the line to a launcher that listens, and the stream for frames.
func (w *worker) connect(ctx context.Context) error {
	if err := w.dispense(); err != nil {
		return err
	}
	return w.openLine(ctx)
}

// dispense has go-plugin connect.
func (w *worker) dispense() error {
	protocol, err := w.client.Client()
	if err != nil {
		return fmt.Errorf("connecting to the launcher: %w", err)
	}
	raw, err := protocol.Dispense(pluginName)
	if err != nil {
		return fmt.Errorf("connecting to the launcher: %w", err)
	}
	line, ok := raw.(*launcherConnection)
	if !ok {
		return fmt.Errorf("connecting to the launcher: go-plugin returned %T", raw)
	}
	w.line, w.api = line, line.api
	return nil
}

// openLine opens the stream for frames.
func (w *worker) openLine(ctx context.Context) (err error) {
	if w.traffic, err = w.openTraffic(ctx); err != nil {
		return err
	}
	w.peer = wire.NewPeer(w.traffic, helloWatcher{w})
	return nil
}

// takeLine takes over the launcher's connection to a Python that has been started, where it lends it.
func (w *worker) takeLine(ctx context.Context) error {
	if lent, is := w.traffic.(interface {
		take(ctx context.Context, folder, key string) error
	}); is {
		return lent.take(ctx, w.record.Folder, w.record.Key)
	}
	return nil
}

func (w *worker) reportPhase(phase *launcherpb.Phase) {
	if w.phase != nil {
		w.phase(phaseIn(phase))
	}
}

// helloWatcher passes everything on to the worker's handler and notices Python's hello.
type helloWatcher struct{ worker *worker }

// HandleRequest implements wire.Handler.
func (h helloWatcher) HandleRequest(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	h.worker.handler.HandleRequest(request, body, reply)
}

// HandleNotification implements wire.Handler.
func (h helloWatcher) HandleNotification(notification *wire.Message, body []byte) {
	h.worker.handler.HandleNotification(notification, body)
	if notification.Method == "hello" {
		h.worker.helloOnce.Do(func() { close(h.worker.hello) })
	}
}

// HandleStray implements wire.StrayHandler.
func (h helloWatcher) HandleStray(reply *wire.Message) {
	if handler, wants := h.worker.handler.(wire.StrayHandler); wants {
		handler.HandleStray(reply)
	}
}

// run starts this side's goroutines; finish ends with all of them.
func (w *worker) run() {
	peerEnded := make(chan error, 1)
	w.readers.Go(func() { peerEnded <- w.peer.Run() })
	w.readers.Go(func() {
		defer close(w.logsEnded)
		w.readLogs()
	})
	go w.finish(peerEnded)
}

// readLogs hands lines to the sink until the stream ends.
func (w *worker) readLogs() {
	stream, err := w.api.Logs(w.life, &launcherpb.LogsRequest{})
	if err != nil {
		return // the launcher is gone; the other stream says so
	}
	for {
		batch, err := stream.Recv()
		if err != nil {
			return
		}
		for _, line := range batch.GetLines() {
			line := lineIn(line)
			if line.Stream == StreamStderr {
				w.mu.Lock()
				w.tail.add(line.Text)
				w.mu.Unlock()
			}
			if w.sink != nil {
				w.sink.Log(line)
			}
		}
	}
}

// finish waits for the end of the stream and then ends and removes whatever is left.
func (w *worker) finish(peerEnded <-chan error) {
	defer close(w.done)
	err := <-peerEnded
	w.mu.Lock()
	detached := w.detached
	w.mu.Unlock()
	if detached {
		w.release()
		return
	}
	if status.Code(err) == codes.Aborted { // it belongs to another supervisor now
		w.runner.detach()
		w.setExit(Exit{Reason: errTakenOver.Error(), Time: time.Now()})
		w.release()
		return
	}
	clean := true
	exit := w.traffic.ending()
	if exit == nil && errors.Is(err, wire.ErrNoMessage) {
		exit = w.endForNonsense(err)
	}
	if exit != nil {
		w.setExit(exitIn(exit))
		w.awaitLastLines()
		w.client.Kill() // the tree is empty: nothing that go-plugin cuts off after two seconds is left to do
	} else {
		clean = w.endBlindly(err)
	}
	w.release()
	if !clean {
		w.logger.Warn().Str("worker", w.record.Worker).Msg("the worker's folder stays, for what is left of it")
	} else if err := removeFolder(w.record.Folder); err != nil {
		w.logger.Warn().Err(err).Str("worker", w.record.Worker).Msg("the worker's folder stays")
	}
}

// endForNonsense has the launcher kill a Python that sent what is no message. Nil when the launcher does not answer.
func (w *worker) endForNonsense(cause error) *launcherpb.Exit {
	ctx, cancel := context.WithTimeout(w.life, killLimit+2*drainLimit+answerLimit)
	defer cancel()
	ended, err := w.api.Kill(ctx, &launcherpb.KillRequest{Reason: fmt.Sprintf("what it sent can not be read: %v", cause)})
	if err != nil {
		return nil
	}
	return ended.GetExit()
}

// awaitLastLines gives the sink the time to take what Python wrote before its end.
func (w *worker) awaitLastLines() {
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-w.logsEnded:
	case <-limit.C:
	}
}

// endBlindly ends a worker whose launcher has said nothing about its end: it died, does not answer, or broke the
// stream. It reports whether that worked: then nothing is left that could be looked for.
func (w *worker) endBlindly(cause error) (clean bool) {
	w.mu.Lock()
	reason := w.stopping
	w.mu.Unlock()
	if reason == "" {
		select { // a process closes its connections some time before it has ended
		case <-w.launcher.Done():
			reason = "its launcher died"
		case <-time.After(answerLimit):
			reason = fmt.Sprintf("the connection to its launcher broke: %v", cause)
		}
	}
	if err := w.launcher.Kill(); err != nil {
		w.logger.Error().Err(err).Msg("killing a launcher")
	}
	w.client.Kill()
	tree := Tree{Worker: w.record.Worker, Python: w.record.Python, Launcher: w.record.Launcher, Cgroup: w.record.Cgroup}
	ctx, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	left, err := tree.Kill(ctx)
	if err != nil {
		w.logger.Error().Err(err).Str("worker", w.record.Worker).Msg("ending what a launcher left behind")
	}
	if groupErr := removeCgroup(w.record.Cgroup); groupErr != nil {
		w.logger.Warn().Err(groupErr).Msg("the control group stays")
	}
	if log := lastLines(filepath.Join(w.record.Folder, launcherLogName)); log != "" {
		w.logger.Warn().Str("worker", w.record.Worker).Str("log", log).Msg("the last lines of a dead launcher")
	}
	w.setExit(Exit{Reason: reason, Unkillable: left, Time: time.Now()})
	return err == nil
}

// lastLines is the end of a launcher's log.
func lastLines(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content[max(0, len(content)-2048):]))
}

func (w *worker) setExit(exit Exit) {
	w.mu.Lock()
	if len(exit.Stderr) == 0 {
		exit.Stderr = w.tail.lines()
	}
	w.exit = exit
	w.mu.Unlock()
	close(w.pythonEnded)
}

// release lets go of the launcher and ends this side's goroutines.
func (w *worker) release() {
	w.hangUp()
	w.readers.Wait()
	w.launcher.Close()
}

// hangUp closes the connection to the launcher and leaves the launcher as it is.
func (w *worker) hangUp() {
	w.endLife()
	if w.traffic != nil {
		_ = w.traffic.Close()
	}
	if w.line != nil {
		_ = w.line.broker.Close() // nothing was brokered
		_ = w.line.conn.Close()   // closed already where go-plugin ended the launcher
	}
}

// Record implements Worker.
func (w *worker) Record() Record { return w.record }

// PythonPID implements Worker.
func (w *worker) PythonPID() int { return w.record.Python.PID }

// Peer implements Worker.
func (w *worker) Peer() *wire.Peer { return w.peer }

// PythonEnded implements Worker.
func (w *worker) PythonEnded() <-chan struct{} { return w.pythonEnded }

// Done implements Worker.
func (w *worker) Done() <-chan struct{} { return w.done }

// Exit implements Worker.
func (w *worker) Exit() Exit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exit
}

// Stop implements Worker.
func (w *worker) Stop(ctx context.Context) error {
	w.setStopping("stopped")
	return w.endWith(ctx, "stopping", w.record.StopGrace+terminateGrace, func(ctx context.Context) error {
		_, err := w.api.Stop(ctx, &launcherpb.StopRequest{GraceNs: int64(w.record.StopGrace)})
		return err
	})
}

// Kill implements Worker.
func (w *worker) Kill(ctx context.Context) error { return w.killFor(ctx, "killed") }

func (w *worker) killFor(ctx context.Context, reason string) error {
	w.setStopping(reason)
	return w.endWith(ctx, "killing", 0, func(ctx context.Context) error {
		_, err := w.api.Kill(ctx, &launcherpb.KillRequest{Reason: reason})
		return err
	})
}

// endNow kills the worker and waits for its end, which has a time limit.
func (w *worker) endNow(reason string) {
	_ = w.killFor(context.Background(), reason) // without a deadline it can only return nil
}

func (w *worker) setStopping(reason string) {
	w.mu.Lock()
	if w.stopping == "" {
		w.stopping = reason
	}
	w.mu.Unlock()
}

// endWith asks the launcher to end the worker and waits for the end. A launcher that does not answer is killed, and its
// tree with it: one that is stopped (SIGSTOP) at once, one that does not keep its time limits after them. polite is the
// time that it may wait before it kills.
func (w *worker) endWith(ctx context.Context, doing string, polite time.Duration, ask func(context.Context) error) error {
	go func() { // ends with the worker, at the latest at the limit; not with ctx: stopping goes on
		asking, cancel := context.WithTimeout(w.life, polite+killLimit+2*drainLimit+answerLimit)
		defer cancel()
		pinging, pinged := context.WithTimeout(asking, answerLimit)
		_, err := w.api.Describe(pinging, &launcherpb.DescribeRequest{})
		pinged()
		if err == nil {
			err = ask(asking)
		}
		if err != nil && !errors.Is(asking.Err(), context.Canceled) {
			_ = w.launcher.Kill()
		}
	}()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s worker %s: %w", doing, w.record.Worker, ctx.Err())
	}
}

// Statistics implements Worker.
func (w *worker) Statistics(ctx context.Context) (Statistics, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	reply, err := w.api.Statistics(ctx, &launcherpb.StatisticsRequest{})
	if err != nil {
		return Statistics{}, fmt.Errorf("asking for the statistics of worker %s: %w", w.record.Worker, plainError(err))
	}
	return Statistics{
		Processes:        int(reply.GetProcesses()),
		RSSBytes:         reply.GetRssBytes(),
		LauncherRSSBytes: reply.GetLauncherRssBytes(),
		DroppedLines:     reply.GetDroppedLines(),
	}, nil
}

// Detach implements Worker.
func (w *worker) Detach() error {
	w.mu.Lock()
	w.detached = true
	w.mu.Unlock()
	w.runner.detach()
	err := w.traffic.Close()
	<-w.done
	return err
}
