//go:build linux

package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

//go:embed pack/__init__.py
var pack embed.FS

// Times that things may take, on a busy machine.
const (
	startLimit   = 60 * time.Second // until a host is connected
	callLimit    = 40 * time.Second // for the answer to any call, which works for 0.2 s at most
	recoverLimit = 20 * time.Second // from the end of a fault until every loop has a good answer to a new call
	settleLimit  = 10 * time.Second // until nothing is left over once nobody calls
)

const hosts = 2

// options are the command's.
type options struct {
	rounds int
	seed   uint64
	state  string
	only   string
	python string
	keep   bool
	goOn   bool
	say    func(format string, arguments ...any)
}

// world is everything that runs: a supervisor that hosts start and faults kill, and the hosts.
type world struct {
	options options
	config  config
	environ []string
	hostLog *os.File
	report  *report
	hosts   []*host
	readers sync.WaitGroup

	hostsStarted int
	descriptors  map[string]int // by process: at the first look
	looks        map[string]int // by process: looks so far

	// calmSince is the moment, in nanoseconds since 1970, from which on every call that begins has to succeed; 0: a fault
	// is at work.
	calmSince atomic.Int64
	changed   chan struct{} // has a token when a call has ended

	mu      sync.Mutex
	fault   string
	unclear map[string]bool // kinds of errors that the fault of this round may lead to, besides the usual
	breaks  []string        // promises that were broken
}

// run plays rounds.
func run(ctx context.Context, options options) (*report, error) {
	release, err := spawn.BecomeSubreaper() // supervisors whose host was killed become children of this process
	if err != nil {
		return nil, err
	}
	defer release()
	report := loadReport(options.state)
	chosen, err := chooseFaults(options.only)
	if err != nil {
		return report, err
	}
	var w *world
	defer func() {
		if w != nil {
			w.end()
		}
	}()
	var problems []error
	for report.Next < options.rounds && ctx.Err() == nil {
		if w == nil {
			if w, err = newWorld(ctx, options, report); err != nil {
				return report, err
			}
		}
		number := report.Next
		random := rand.New(rand.NewPCG(options.seed, uint64(number)))
		fault := chosen[random.IntN(len(chosen))]
		if err := w.round(ctx, fault, random); err != nil {
			if ctx.Err() != nil {
				break
			}
			err = fmt.Errorf("round %d, %s: %w", number, fault.name, err)
			report.Broken++
			problems = append(problems, err)
			options.say("BROKEN %v\n(see %s)", err, w.config.Folder)
			if !options.goOn {
				w.options.keep = true
				return report, err
			}
			w.options.keep = true
			w.end()
			w = nil
		}
		report.Next++
		if err := report.save(options.state); err != nil {
			return report, err
		}
	}
	return report, errors.Join(append(problems, ctx.Err())...)
}

// newWorld makes folders and starts hosts, the first of which starts the supervisor.
func newWorld(ctx context.Context, options options, report *report) (*world, error) {
	folder, err := os.MkdirTemp("", "stress")
	if err != nil {
		return nil, err
	}
	w := &world{options: options, report: report, changed: make(chan struct{}, 1), descriptors: make(map[string]int), looks: make(map[string]int)}
	python, err := exec.LookPath(options.python)
	if err != nil {
		return nil, err
	}
	w.config = config{Folder: folder, Python: python, Pack: filepath.Join(folder, "pack"), Environments: []string{"one", "two"}, Quota: 256 << 20}
	if err := os.CopyFS(folder, pack); err != nil {
		return nil, err
	}
	cache := filepath.Join(folder, "cache")
	if w.config.Program, err = pyworker.Layout(cache); err != nil {
		return nil, err
	}
	modules, err := hostadapter.Layout(cache)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(w.config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "config.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "PYTHONPATH=" + modules, "PYTHONDONTWRITEBYTECODE=1",
		configVariable + "=" + file, "COMFY_SUPERVISOR_BINARY=" + binary,
		"COMFY_SUPERVISOR_SOCKET=" + w.config.socket(), "COMFY_SUPERVISOR_STATE_DIR=" + w.config.state(),
	}
	if w.hostLog, err = os.Create(filepath.Join(folder, "hosts.log")); err != nil {
		return nil, err
	}
	for number := range hosts {
		h, err := w.startHost(ctx, number)
		if err != nil {
			w.options.keep = true
			w.end()
			return nil, fmt.Errorf("%w (see %s)", err, folder)
		}
		w.hosts = append(w.hosts, h)
	}
	return w, nil
}

// end ends every process and removes the folder.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if client, err := w.operator(ctx); err == nil {
		_ = client.Shutdown(ctx, true)
		_ = client.Close()
	}
	for _, h := range w.hosts {
		_ = h.command.Process.Kill()
		<-h.ended
	}
	w.readers.Wait()
	w.killAll()
	_ = w.hostLog.Close()
	if !w.options.keep {
		_ = os.RemoveAll(w.config.Folder)
	}
}

// operator connects as the command line does.
func (w *world) operator(ctx context.Context) (*api.Client, error) {
	return api.Connect(ctx, api.Options{Socket: w.config.socket(), Name: "stress", Environ: w.environ})
}

// status asks the supervisor what it knows.
func (w *world) status(ctx context.Context) (*api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := w.operator(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Status(ctx, api.StatusParams{})
}

// usualKinds are the clear errors that a call may end with when processes are ended around it.
var usualKinds = map[string]bool{
	"gone": true, "unavailable": true, "worker_died": true, "start_failed": true, "stopped": true, "quota": true, "silent": true,
}

// heard takes a host's report.
func (w *world) heard(h *host, r hostReport) {
	if r.Loop == "" {
		select {
		case h.reports <- r:
		case <-time.After(callLimit):
		}
		return
	}
	calm := w.calmSince.Load()
	w.mu.Lock()
	unclear, fault := w.unclear[r.Error], w.fault
	w.mu.Unlock()
	switch {
	case r.Wrong != "":
		w.broken("a wrong answer: %s", r.Wrong)
	case r.Error == "":
		h.mu.Lock()
		h.lastGood[r.Loop] = r.Begun
		h.mu.Unlock()
		w.report.good()
	default:
		w.report.failed(fault, r.Error, r.Text)
		if calm != 0 && r.Begun > calm {
			w.broken("a call of %s failed although nothing was wrong: %s: %s", r.Loop, r.Error, r.Text)
		} else if !usualKinds[r.Error] && !unclear || r.Text == "" {
			w.broken("a call of %s ended with no clear error: %s: %s", r.Loop, r.Error, r.Text)
		}
	}
	if r.Seconds > callLimit.Seconds() {
		w.broken("a call of %s took %.1f s", r.Loop, r.Seconds)
	}
	w.nudge()
}

func (w *world) nudge() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// broken notes that a promise was broken.
func (w *world) broken(format string, arguments ...any) {
	w.mu.Lock()
	w.breaks = append(w.breaks, fmt.Sprintf(format, arguments...))
	w.mu.Unlock()
	w.nudge()
}

// anyBroken returns what was broken since the last time.
func (w *world) anyBroken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.breaks) == 0 {
		return nil
	}
	err := errors.New(strings.Join(w.breaks, "; "))
	w.breaks = nil
	return err
}

// round plays one.
func (w *world) round(ctx context.Context, fault fault, random *rand.Rand) error {
	w.mu.Lock()
	w.fault, w.unclear = fault.name, fault.unclear
	w.mu.Unlock()
	begun := time.Now()
	w.calmSince.Store(begun.UnixNano())
	for _, h := range w.hosts {
		if err := h.tell(map[string]any{"do": "go"}); err != nil {
			return err
		}
	}
	if err := w.awaitGood(ctx, begun, recoverLimit); err != nil {
		return fmt.Errorf("before the fault: %w", err)
	}
	w.calmSince.Store(0)
	if err := fault.strike(&strike{world: w, ctx: ctx, random: random}); err != nil {
		return fmt.Errorf("striking: %w", err)
	}
	over := time.Now()
	for index, h := range w.hosts {
		if !h.isKilled() {
			continue
		}
		<-h.ended
		replacement, err := w.startHost(ctx, index)
		if err != nil {
			return err
		}
		w.hosts[index] = replacement
		if err := replacement.tell(map[string]any{"do": "go"}); err != nil {
			return err
		}
	}
	if err := w.awaitGood(ctx, over, recoverLimit); err != nil {
		return fmt.Errorf("after the fault: %w", err)
	}
	w.report.recovered(fault.name, time.Since(over))
	w.calmSince.Store(time.Now().UnixNano())
	for _, h := range w.hosts {
		if err := h.tell(map[string]any{"do": "pause"}); err != nil {
			return err
		}
	}
	for _, h := range w.hosts {
		if _, err := h.await(ctx, callLimit, func(r hostReport) bool { return r.Paused }); err != nil {
			return fmt.Errorf("waiting for the last answers: %w", err)
		}
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.anyBroken()
}

// awaitGood waits until every loop has had a good answer to a call that began after a moment.
func (w *world) awaitGood(ctx context.Context, moment time.Time, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	wanted := 2 * len(w.config.Environments)
	for {
		if err := w.anyBroken(); err != nil {
			return err
		}
		missing := 0
		for _, h := range w.hosts {
			missing += wanted - h.goodSince(moment)
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-w.changed:
		case <-timer.C:
			return fmt.Errorf("%d loops got no good answer within %s", missing, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
