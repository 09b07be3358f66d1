package spawn

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// supervisorArgument makes the test binary a supervisor that launches one worker and then waits to be killed.
const supervisorArgument = "test-supervisor"

// serveTestSupervisor is that supervisor; set where there are such tests.
var serveTestSupervisor = func() {}

// TestMain runs the tests, or, when it is started as such, the launcher: Launch starts this same program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		ServeLauncher()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == supervisorArgument {
		serveTestSupervisor()
		return
	}
	// A launcher built with the race detector would sleep a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// testLimit bounds every wait of a test.
const testLimit = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

// findPython asks the python3 on PATH, which may be a script of pyenv's, for the interpreter behind it.
var findPython = sync.OnceValues(func() (string, error) {
	output, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(output)), err
})

func python(t testing.TB) string {
	t.Helper()
	path, err := findPython()
	if err != nil {
		t.Fatal("these tests need a Python 3.10 or later as python3 on PATH: ", err)
	}
	return path
}

// temporaryFolder is like t.TempDir, but removes it as the product removes its folders.
func temporaryFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "spawn-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeFolder(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// testSpec is a worker that runs testdata/program.
func testSpec(t testing.TB) Spec {
	t.Helper()
	program, err := filepath.Abs("testdata/program")
	if err != nil {
		t.Fatal(err)
	}
	id := newID()
	return Spec{
		Worker:      id,
		Session:     "session",
		Environment: "environment",
		Generation:  1,
		Python:      python(t),
		Program:     program,
		Directory:   temporaryFolder(t),
		Variables:   []string{"PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"},
		Load:        json.RawMessage(`{"pack":{"name":"pack"}}`),
		Folder:      filepath.Join(temporaryFolder(t), "workers", id),
		Version:     "test",
		StopGrace:   2 * time.Second,
		OrphanWait:  5 * time.Second,
	}
}

// bothWays runs a test with the launcher's connection to Python lent to the supervisor, where the system can do that, and
// with frames that pass through the launcher.
func bothWays(t *testing.T, test func(*testing.T, Spec)) {
	for name, relay := range map[string]bool{"lent": false, "relayed": true} {
		t.Run(name, func(t *testing.T) {
			spec := testSpec(t)
			spec.Relay = relay
			test(t, spec)
		})
	}
}

// recorder is a handler and a log sink that keeps what it gets.
type recorder struct {
	mu            sync.Mutex
	notifications []*wire.Message
	lines         []Line
	phases        []PhaseReport
	changed       chan struct{} // has a token after each change
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) change(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) HandleRequest(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	_ = reply(&wire.Message{Error: wire.Errorf(wire.KindUnknownMethod, "no %s here", request.Method)}, nil)
}

func (r *recorder) HandleNotification(notification *wire.Message, _ []byte) {
	r.change(func() { r.notifications = append(r.notifications, notification) })
}

func (r *recorder) Log(line Line) { r.change(func() { r.lines = append(r.lines, line) }) }

func (r *recorder) Phase(phase PhaseReport) {
	r.change(func() { r.phases = append(r.phases, phase) })
}

// wait waits until a condition on what was recorded holds.
func (r *recorder) wait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx := testContext(t)
	for {
		r.mu.Lock()
		ok := condition()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			t.Fatalf("did not see %s in %+v", what, r.describe())
		}
	}
}

func launch(t testing.TB, spec Spec, r *recorder) Worker {
	t.Helper()
	spec.Log, spec.Phase = r, r.Phase
	worker, err := Launch(testContext(t), spec, r)
	if err != nil {
		t.Fatal(err)
	}
	killAfter(t, worker)
	return worker
}

// killAfter ends a worker with the test, if it lives.
func killAfter(t testing.TB, worker Worker) {
	t.Cleanup(func() {
		select {
		case <-worker.Done():
		default:
			if err := worker.Kill(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// ask sends a request to Python and decodes the result.
func ask[T any](t testing.TB, worker Worker, method string, params any) T {
	t.Helper()
	reply, _, err := worker.Peer().Request(testContext(t), &wire.Message{Method: method, Params: wire.Params(params)}, nil)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	var result T
	if err := json.Unmarshal(reply.Result, &result); err != nil {
		t.Fatalf("%s: %v in %s", method, err, reply.Result)
	}
	return result
}

type anything = map[string]any

// waitDone waits for a worker's end.
func waitDone(t testing.TB, worker Worker) Exit {
	t.Helper()
	select {
	case <-worker.Done():
		return worker.Exit()
	case <-time.After(testLimit):
		t.Fatal("the worker is not over")
		panic("unreachable")
	}
}

// expectNothingLeft checks that a worker's processes, folder and control group are gone.
func expectNothingLeft(t testing.TB, record Record) {
	t.Helper()
	tree := Tree{Worker: record.Worker, Python: record.Python, Launcher: record.Launcher, Cgroup: record.Cgroup}
	left, err := tree.Processes()
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if record.Launcher.Alive() {
		t.Errorf("the launcher lives: %v", record.Launcher)
	}
	if _, err := os.Stat(record.Folder); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	if record.Cgroup != "" {
		if _, err := os.Stat(record.Cgroup); !os.IsNotExist(err) {
			t.Errorf("the control group is left: %v", err)
		}
	}
}

// describe is what was recorded, for a failing test.
func (r *recorder) describe() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	for _, line := range r.lines {
		fmt.Fprintf(&text, "%s: %.100q\n", line.Stream, line.Text)
	}
	for _, phase := range r.phases {
		fmt.Fprintf(&text, "phase %s %s\n", phase.Phase, phase.Detail)
	}
	return text.String()
}
