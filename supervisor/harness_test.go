//go:build unix

package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// testOptions are a test daemon's configuration, as JSON for those that run in a process of their own.
type testOptions struct {
	Runtime, State, Program string
	Environments            []envbuild.Environment
	CallSilence             time.Duration
	Start                   time.Duration
	Reconnect               time.Duration
	Orphan                  time.Duration
	StopGrace               time.Duration
	Reap                    time.Duration
	Sweep                   time.Duration
	Quota                   int64
	CrashCount              int
	Backoff                 []time.Duration
	CancelDeadline          time.Duration
	NVML                    string   // a fake card's library; empty: no cards
	Environ                 []string // of a separate daemon, beside the test's own
	IdleRelease             time.Duration
	TightFree               memory.Bytes
	EndStuck                memory.EndStuck
	HealthCheck             time.Duration
}

func (o testOptions) config() Config {
	crash := DefaultCrashLimits()
	crash.Start = o.Start
	crash.CrashCount = o.CrashCount
	if o.Backoff != nil {
		crash.Backoff = o.Backoff
	}
	return Config{
		Options: func(_ string, declared manifest.Options) manifest.Options {
			return declared.Merge(manifest.Options{CancelDeadline: &o.CancelDeadline})
		},
		RuntimeDirectory: o.Runtime,
		StateDirectory:   o.State,
		Socket:           filepath.Join(o.Runtime, "supervisor.sock"),
		Version:          "test",
		Private:          true,
		Program:          o.Program,
		Environments:     listedEnvironments(o.Environments),
		CallSilence:      o.CallSilence,
		Reconnect:        o.Reconnect,
		LauncherOrphan:   o.Orphan,
		StopGrace:        o.StopGrace,
		HealthCheck:      o.HealthCheck,
		SweepInterval:    o.Sweep,
		Crash:            crash,
		Idle: memory.Limits{Reap: o.Reap, IdleRelease: o.IdleRelease, TightFree: o.TightFree, AskAgain: 30 * time.Second,
			StuckHeld: 512 << 20, EndStuck: o.EndStuck},
		OpenCards:       o.openCards(),
		MemoryFileQuota: o.Quota,
		MemoryFilePool:  64 << 20,
		Log:             zerolog.Nop(),
	}
}

// openCards opens a fake card, if there is one. Its driver tells the process IDs of the test's own namespace.
func (o testOptions) openCards() func(context.Context) (budget.Cards, error) {
	if o.NVML == "" {
		return nil
	}
	return func(ctx context.Context) (budget.Cards, error) {
		cards, err := probe.Open(ctx, probe.Options{Library: o.NVML, Deadline: 500 * time.Millisecond, OwnPIDs: true})
		if err != nil {
			return nil, err
		}
		return cards, nil
	}
}

// listedEnvironments are environments that a test lists.
type listedEnvironments []envbuild.Environment

func (l listedEnvironments) Find(name string, query envbuild.Query) (envbuild.Environment, error) {
	var names []string
	for _, environment := range l {
		names = append(names, environment.Name)
		if environment.Name == name && (query.AnyStack || query.Stack == "" || query.Stack == environment.Stack) {
			return environment, nil
		}
	}
	return envbuild.Environment{}, &envbuild.NotFoundError{Name: name, Nearest: names}
}

func (l listedEnvironments) List(envbuild.Query) ([]envbuild.Listed, error) {
	list := make([]envbuild.Listed, len(l))
	for i, environment := range l {
		list[i].Environment = environment
	}
	return list, nil
}

func (l listedEnvironments) MarkUsed(envbuild.Environment) error { return nil }

// python finds the interpreter that workers of tests use.
var python = sync.OnceValues(func() (string, error) {
	for _, name := range []string{"python3", "python"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "-c", "import sys; assert sys.version_info >= (3, 10); print(sys.executable)").Output()
		if err == nil {
			return strings.TrimSpace(string(out)), nil
		}
	}
	return "", errors.New("these tests need Python 3.10 or newer on PATH")
})

// addEnvironment adds a second name for the environment there is.
func (o *testOptions) addEnvironment(name string) {
	other := o.Environments[0]
	other.Name = name
	o.Environments = append(o.Environments, other)
}

// newTestOptions is the usual configuration, with its own short runtime folder.
func newTestOptions(t testing.TB) testOptions {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		test.Parallel() // daemons of different folders know nothing of each other
	}
	interpreter, err := python()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "cs") // t.TempDir's paths are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	program, err := pyworker.Layout(filepath.Join(folder, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions{
		Runtime: filepath.Join(folder, "run"), State: filepath.Join(folder, "state"), Program: program,
		CallSilence: waitLong, Start: waitLong, Reconnect: 10 * time.Second, Orphan: 10 * time.Second, StopGrace: 5 * time.Second,
		Sweep: 10 * time.Second, Quota: 256 << 20, CrashCount: 5,
	}
	for _, name := range []string{"pack", "broken", "exits"} {
		nodes, err := filepath.Abs(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		options.Environments = append(options.Environments, envbuild.Environment{
			Name: name, Stack: "py-none", Revision: "1", Prefix: filepath.Join(folder, "prefix"), Python: interpreter,
			PackDirectory: nodes, NodesDirectory: nodes,
			Facts: envbuild.Facts{Environ: map[string]string{"PATH": os.Getenv("PATH"), "HOME": folder, "RECORDED": "yes"}},
		})
	}
	return options
}

// testDaemon is a daemon that runs in the test's own process.
type testDaemon struct {
	t       testing.TB
	options testOptions
	daemon  *Daemon
	log     *syncBuffer
	stop    context.CancelFunc
	ended   chan struct{}
	err     error
}

// startDaemon starts a daemon and ends it with the test, when nothing of it may be left.
func startDaemon(t testing.TB, options testOptions) *testDaemon {
	t.Helper()
	config := options.config()
	log := &syncBuffer{}
	config.Log = zerolog.New(log).With().Timestamp().Logger()
	ready := make(chan struct{})
	config.Ready = func() { close(ready) }
	daemon, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	running := &testDaemon{t: t, options: options, daemon: daemon, log: log, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(running.ended)
		running.err = daemon.Run(ctx)
	}()
	select {
	case <-ready:
	case <-running.ended:
		stop()
		t.Fatalf("the daemon did not start: %v", running.err)
	}
	t.Cleanup(running.end)
	return running
}

// end stops the daemon and checks that it left nothing.
func (d *testDaemon) end() {
	d.stop()
	select {
	case <-d.ended:
	case <-time.After(waitLong):
		d.t.Fatalf("the daemon does not end\n%s", d.log)
	}
	if d.err != nil {
		d.t.Errorf("the daemon ended with: %v", d.err)
	}
	nothingLeft(d.t, d.options)
	if d.t.Failed() {
		d.t.Logf("the daemon's log:\n%s", d.log)
	}
}

// nothingLeft checks that a daemon's runtime folder is empty and that no process of its workers lives.
func nothingLeft(t testing.TB, options testOptions) {
	t.Helper()
	entries, err := os.ReadDir(options.Runtime)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, entry := range entries {
		t.Errorf("%s is left in the runtime folder", entry.Name())
	}
	for _, left := range processesMentioning(t, options.Program) {
		t.Errorf("a process is left: %s", left)
	}
}

// processesMentioning lists processes whose command line or environment names a path of the test's own.
func processesMentioning(t testing.TB, path string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, folder := range found {
		command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil || !bytes.Contains(command, []byte(path)) { // gone meanwhile, or another one
			continue
		}
		left = append(left, filepath.Base(folder)+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
	}
	return left
}

// connect introduces a client of the operator.
func (d *testDaemon) connect() *api.Client { return connectOperator(d.t, d.options) }

func connectOperator(t testing.TB, options testOptions) *api.Client {
	t.Helper()
	return connectAs(t, options, api.Options{})
}

func connectAs(t testing.TB, options testOptions, with api.Options) *api.Client {
	t.Helper()
	with.Socket = options.config().Socket
	if with.Name == "" {
		with.Name = "test"
	}
	if with.Environ == nil {
		with.Environ = os.Environ()
	}
	client, err := api.Connect(testContext(t), with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// testContext ends with the test, or when something takes far too long.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	t.Cleanup(cancel)
	return ctx
}

// mustCall calls a node and fails the test when that fails.
func mustCall(t *testing.T, client *api.Client, node string, inputs map[string]any) *api.Result {
	t.Helper()
	result, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: node, Inputs: inputs})
	if err != nil {
		t.Fatalf("calling %s: %v", node, err)
	}
	t.Cleanup(result.Close)
	return result
}

// started is a call under way.
type started struct {
	result *api.Result
	err    error
	done   chan struct{}
}

// begin calls a node in a goroutine.
func begin(ctx context.Context, client *api.Client, request api.Call) *started {
	if request.Environment == "" {
		request.Environment = "pack"
	}
	s := &started{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.result, s.err = client.Call(ctx, request)
		if s.result != nil {
			s.result.Close()
		}
	}()
	return s
}

// beginOrphan calls the node that starts a process that outlives it, and returns that process's PID.
func beginOrphan(t *testing.T, client *api.Client) (*started, int) {
	t.Helper()
	path := marker(t)
	running := begin(testContext(t), client, api.Call{Node: "Orphan", Inputs: map[string]any{"marker": path}})
	return running, atoi(t, awaitFile(t, path))
}

// wait waits for a call's end and returns its error.
func (s *started) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(waitLong):
		t.Fatal("a call does not end")
	}
	return s.err
}

// wireError checks an error's kind and returns it.
func wireError(t *testing.T, err error, kind string) *wire.Error {
	t.Helper()
	var failure *wire.Error
	if !errors.As(err, &failure) {
		t.Fatalf("expected an error of kind %s, got %v", kind, err)
	}
	if failure.Data.Kind != kind {
		t.Fatalf("expected an error of kind %s, got %s: %v", kind, failure.Data.Kind, failure)
	}
	return failure
}

// marker is a file that a node writes when it runs; the kernel offers no event for that across processes that would be
// simpler than looking.
func marker(t *testing.T) string { return filepath.Join(t.TempDir(), "marker") }

// awaitFile waits for a file and returns its content.
func awaitFile(t *testing.T, path string) string {
	t.Helper()
	var content []byte
	eventually(t, "the file "+filepath.Base(path), func() bool {
		var err error
		content, err = os.ReadFile(path)
		return err == nil && len(content) > 0
	})
	return string(content)
}

// eventually polls for what no event tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	limit := time.NewTimer(waitLong)
	defer limit.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-limit.C:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// awaitEnd waits for a process's end.
func awaitEnd(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	watch, err := spawn.WatchProcess(spawn.Process{PID: pid})
	if errors.Is(err, spawn.ErrProcessGone) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	select {
	case <-watch.Done():
	case <-time.After(limit):
		t.Fatalf("process %d still lives after %s", pid, limit)
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// worker returns the only worker of the test pack in a status.
func (d *testDaemon) worker() api.Worker {
	d.t.Helper()
	return onlyWorker(d.t, d.connect(), "pack")
}

func onlyWorker(t testing.TB, client *api.Client, environment string) api.Worker {
	t.Helper()
	status, err := client.Status(testContext(t), api.StatusParams{Variables: true})
	if err != nil {
		t.Fatal(err)
	}
	index := slices.IndexFunc(status.Workers, func(worker api.Worker) bool { return worker.Environment == environment })
	if index < 0 {
		t.Fatalf("no worker of %s in the status", environment)
	}
	return status.Workers[index]
}

// separateDaemon is a daemon in a process of its own, which tests may kill.
type separateDaemon struct {
	command *exec.Cmd
	log     *syncBuffer
}

// startSeparateDaemon starts a daemon as a process and waits until it is ready.
func startSeparateDaemon(t *testing.T, options testOptions) *separateDaemon {
	t.Helper()
	daemon, line := launchSeparateDaemon(t, options)
	if line != "ready" {
		t.Fatalf("the daemon said %q\n%s", line, daemon.log)
	}
	return daemon
}

// launchSeparateDaemon starts a daemon as a process and returns its first words.
func launchSeparateDaemon(t *testing.T, options testOptions) (*separateDaemon, string) {
	t.Helper()
	return launchDaemonWith(t, options, exec.Command(os.Args[0]))
}

// launchDaemonWith is launchSeparateDaemon with a command that runs this program with arguments that are added to it.
func launchDaemonWith(t *testing.T, options testOptions, command *exec.Cmd) (*separateDaemon, string) {
	t.Helper()
	configuration, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	command.Args = append(command.Args, "test-serve", string(configuration))
	daemon := &separateDaemon{command: command, log: &syncBuffer{}}
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, options.Environ...)
	if command.Stderr == nil {
		command.Stderr = daemon.log
	}
	output, err := daemon.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.command.Process.Kill()
		_ = daemon.command.Wait() // twice is harmless
		if t.Failed() {
			t.Logf("the separate daemon's log:\n%s", daemon.log)
		}
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return daemon, strings.TrimSuffix(line, "\n")
}

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(content []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(content)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// clientForTest is a client in a process of its own: it connects, calls a node, and prints what came.
func clientForTest(socket string, arguments []string) int {
	options := api.Options{Socket: socket, Role: api.RoleHost, Name: "test host", Environ: os.Environ()}
	client, err := api.Connect(context.Background(), options)
	if err != nil {
		fmt.Println("error " + err.Error())
		return 1
	}
	defer client.Close()
	fmt.Println("session " + client.Hello.Session + " " + client.Hello.Token)
	if len(arguments) < 2 {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
		return 0
	}
	var inputs map[string]any
	if err := json.Unmarshal([]byte(arguments[1]), &inputs); err != nil {
		fmt.Println("error " + err.Error())
		return 1
	}
	result, err := client.Call(context.Background(), api.Call{Environment: "pack", Node: arguments[0], Inputs: inputs})
	if err != nil {
		fmt.Println("error " + err.Error())
		return 1
	}
	fmt.Println("value " + string(result.Value))
	return 0
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	t.Cleanup(cancel)
	return ctx, cancel
}

// readMessage reads the next message of a raw connection.
func readMessage(t *testing.T, conn net.Conn) *wire.Message {
	t.Helper()
	frame, err := wire.ReadFrame(conn)
	if err != nil {
		t.Fatal(err)
	}
	message, err := wire.DecodeMessage(frame.Header)
	if err != nil {
		t.Fatal(err)
	}
	return message
}
