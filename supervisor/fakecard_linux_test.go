package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
)

// fakeLibrary is built once for all tests of this process; TestMain removes it.
var (
	fakeFolder  string
	fakeLibrary = sync.OnceValues(func() (*fakecard.Library, error) {
		var err error
		if fakeFolder, err = os.MkdirTemp("", "cs-card"); err != nil {
			return nil, err
		}
		return fakecard.Build(fakeFolder)
	})
)

func init() { cleanUps = append(cleanUps, func() { _ = os.RemoveAll(fakeFolder) }) }

// cardBench is a daemon in a process of its own with a fake card, a miniature ComfyUI and packs that load models.
type cardBench struct {
	t       *testing.T
	options testOptions
	card    *fakecard.Card
	daemon  *separateDaemon
	client  *api.Client
	events  *eventsSeen
}

// startCards starts a daemon over a card, with an environment for every name. change may alter both.
func startCards(t *testing.T, spec fakecard.Spec, names []string, change func(*testOptions)) *cardBench {
	t.Helper()
	library, err := fakeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	options := newTestOptions(t)
	folder := filepath.Dir(options.Runtime)
	card, err := library.Create(filepath.Join(folder, "card"), spec)
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(folder, "ComfyUI")
	if err := fakecard.LayTree(tree); err != nil {
		t.Fatal(err)
	}
	pack, err := filepath.Abs("../testdata/packs/memory")
	if err != nil {
		t.Fatal(err)
	}
	interpreter, nodes := options.Environments[0].Python, filepath.Join(pack, "nodes")
	options.Environments = nil
	for _, name := range names {
		options.Environments = append(options.Environments, envbuild.Environment{
			Name: name, Stack: "py-none", Revision: "1", Prefix: filepath.Join(folder, "prefix"), Python: interpreter, ComfyUI: tree,
			PackDirectory: pack, NodesDirectory: nodes,
			Variables: map[string]string{"FAKECARD_FILE": card.File, "FAKECARD_LIBRARY": library.Path, "PYTHONDONTWRITEBYTECODE": "1"},
			Facts:     envbuild.Facts{Environ: map[string]string{"PATH": os.Getenv("PATH"), "HOME": folder}},
		})
	}
	options.NVML, options.Environ = library.Path, []string{card.Variable()}
	options.Sweep = 50 * time.Millisecond
	if change != nil {
		change(&options)
	}
	b := &cardBench{t: t, options: options, card: card, daemon: startSeparateDaemon(t, options)}
	b.connect()
	t.Cleanup(func() { // before the daemon is killed: its workers end with it
		_ = b.client.Shutdown(context.Background(), true)
	})
	return b
}

// connect introduces a client that also follows the events.
func (b *cardBench) connect() {
	b.client = connectOperator(b.t, b.options)
	b.events = followEvents(b.t, b.client)
}

// eventsSeen are the events of a daemon as they come.
type eventsSeen struct {
	mu   sync.Mutex
	all  []api.Event
	news chan struct{}
}

func followEvents(t *testing.T, client *api.Client) *eventsSeen {
	t.Helper()
	seen := &eventsSeen{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = client.Events(ctx, api.EventsParams{Follow: true}, func(event api.Event) {
			seen.mu.Lock()
			seen.all = append(seen.all, event)
			seen.mu.Unlock()
			select {
			case seen.news <- struct{}{}:
			default:
			}
		}) // ends with the test, or with the daemon
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return seen
}

// event waits for an event of a kind that holds, and returns the first.
func (b *cardBench) event(kind, environment string, holds func(api.Event) bool) api.Event {
	b.t.Helper()
	limit := time.NewTimer(waitLong)
	defer limit.Stop()
	for {
		b.events.mu.Lock()
		index := slices.IndexFunc(b.events.all, func(event api.Event) bool {
			return event.Kind == kind && (environment == "" || event.Environment == environment) && (holds == nil || holds(event))
		})
		var found api.Event
		if index >= 0 {
			found = b.events.all[index]
		}
		b.events.mu.Unlock()
		if index >= 0 {
			return found
		}
		select {
		case <-b.events.news:
		case <-limit.C:
			b.events.mu.Lock()
			defer b.events.mu.Unlock()
			for _, event := range b.events.all {
				b.t.Logf("%s %s#%d %s %v", event.Kind, event.Environment, event.Generation, event.Cause, event.Terms)
			}
			b.t.Fatalf("waited too long for %s of %s", kind, environment)
		}
	}
}

func caused(cause string) func(api.Event) bool {
	return func(event api.Event) bool { return event.Cause == cause }
}

// work is a call of MemoryWork that computes until it is let go.
type work struct {
	*started
	t       *testing.T
	pid     int           // of its worker, once it runs
	running chan struct{} // closed when its model is loaded and it computes
	until   string        // the pipe whose end it waits for
}

// begin has a worker load a model and compute with it.
func (b *cardBench) begin(environment string, sizeMiB int, more map[string]any) *work {
	b.t.Helper()
	folder := b.t.TempDir()
	began := filepath.Join(folder, "started")
	w := &work{t: b.t, running: make(chan struct{}), until: filepath.Join(folder, "until")}
	for _, pipe := range []string{began, w.until} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	pipe, err := os.OpenFile(began, os.O_RDWR|syscall.O_NONBLOCK, 0) // both ends: nobody waits for the other's opening
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if line, err := bufio.NewReader(pipe).ReadString('\n'); err == nil {
			_, _ = fmt.Sscan(line, &w.pid)
			close(w.running)
		}
	}()
	b.t.Cleanup(func() {
		_ = pipe.Close()
		<-ended
	})
	inputs := map[string]any{"name": "model", "size_mib": sizeMiB, "started": began, "until": w.until}
	for name, value := range more {
		inputs[name] = value
	}
	w.started = begin(testContext(b.t), b.client, api.Call{Environment: environment, Node: "MemoryWork", Inputs: inputs})
	return w
}

// runs waits until it computes.
func (w *work) runs() {
	w.t.Helper()
	select {
	case <-w.running:
	case <-w.done:
		w.t.Fatalf("the call ended before it computed: %v", w.err)
	case <-time.After(waitLong):
		w.t.Fatal("the call does not compute")
	}
}

// letGo has a computation end; it may just be beginning.
func (w *work) letGo() {
	w.t.Helper()
	select {
	case <-w.running: // whatever has become of the call since
	default:
		w.runs()
	}
	pipe, err := os.OpenFile(w.until, os.O_WRONLY, 0) // waits until it reads
	if err != nil {
		w.t.Fatal(err)
	}
	_ = pipe.Close()
}

// cardReport is what a node of the pack says of its process.
type cardReport struct {
	PID        int                `json:"pid"`
	Held       int64              `json:"held"`
	Free       int64              `json:"free"`
	PinCeiling float64            `json:"pin_ceiling"`
	Pinned     int64              `json:"pinned"`
	Reserve    float64            `json:"reserve"`
	Models     map[string]float64 `json:"models"`
}

// report asks a worker what it holds.
func (b *cardBench) report(environment string) (report cardReport) {
	b.t.Helper()
	result, err := b.client.Call(testContext(b.t), api.Call{Environment: environment, Node: "MemoryReport", Inputs: map[string]any{}})
	if err != nil {
		b.t.Fatal(err)
	}
	defer result.Close()
	var values []cardReport
	if err := json.Unmarshal(result.Value, &values); err != nil || len(values) != 1 {
		b.t.Fatalf("it reports %s: %v", result.Value, err)
	}
	return values[0]
}

// budget looks at the accounts.
func (b *cardBench) budget() *api.Budget {
	b.t.Helper()
	budget, err := b.client.Budget(testContext(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	return budget
}
