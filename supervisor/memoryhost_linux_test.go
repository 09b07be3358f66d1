package supervisor

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
)

// memoryHost is a process that plays ComfyUI as far as memory goes: see testdata/memory_host.py.
type memoryHost struct {
	t      *testing.T
	input  io.WriteCloser
	output *bufio.Reader
}

// hostReport is what it says of itself.
type hostReport struct {
	cardReport
	StandIns []int64  `json:"stand_ins"`
	Lines    []string `json:"lines"`
}

// startHost starts a host of the bench's daemon and card.
func (b *cardBench) startHost(more ...string) *memoryHost {
	b.t.Helper()
	library, err := fakeLibrary()
	if err != nil {
		b.t.Fatal(err)
	}
	adapter, err := hostadapter.Layout(filepath.Join(filepath.Dir(b.options.Runtime), "cache"))
	if err != nil {
		b.t.Fatal(err)
	}
	environment := b.options.Environments[0]
	command := exec.Command(environment.Python, "testdata/memory_host.py", environment.ComfyUI, environment.PackDirectory)
	command.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + adapter, "PYTHONDONTWRITEBYTECODE=1", b.card.Variable(), "FAKECARD_LIBRARY=" + library.Path,
		"COMFY_SUPERVISOR_SOCKET=" + filepath.Join(b.options.Runtime, "supervisor.sock"), "HOME=" + b.t.TempDir(),
	}, more...)
	input, output := processtest.Start(b.t, command)
	b.t.Cleanup(func() {
		_ = input.Close() // its end
		if err := command.Wait(); err != nil {
			b.t.Errorf("the host ended with %v", err)
		}
	})
	return &memoryHost{b.t, input, bufio.NewReader(output)}
}

// do has the host do something.
func (h *memoryHost) do(what string, given map[string]any, answer any) {
	h.t.Helper()
	request := map[string]any{"do": what}
	for name, value := range given {
		request[name] = value
	}
	line, err := json.Marshal(request)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.input.Write(append(line, '\n')); err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	said, err := h.output.ReadBytes('\n')
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	if answer != nil {
		if err := json.Unmarshal(said, answer); err != nil {
			h.t.Fatalf("%s: %q: %v", what, said, err)
		}
	}
}

func (h *memoryHost) report() (report hostReport) {
	h.t.Helper()
	h.do("report", nil, &report)
	return report
}

// until asks for reports until one holds: what changes them arrives between two of the host's items.
func (h *memoryHost) until(what string, holds func(hostReport) bool) hostReport {
	h.t.Helper()
	deadline := testContext(h.t)
	for {
		report := h.report()
		if holds(report) {
			return report
		}
		select {
		case <-deadline.Done():
			h.t.Fatalf("waited too long for %s; the host says %+v", what, report)
		default:
		}
	}
}

// work runs a prompt of one node that loads and computes.
func (h *memoryHost) work(environment, name string, sizeMiB int) (report cardReport) {
	h.t.Helper()
	h.do("call", map[string]any{"environment": environment, "node": "MemoryWork", "name": name, "size_mib": sizeMiB}, &report)
	return report
}

func (h *memoryHost) load(name string, sizeMiB int) (report cardReport) {
	h.t.Helper()
	h.do("load", map[string]any{"name": name, "size_mib": sizeMiB}, &report)
	return report
}

const mib = 1 << 20

// managers are the two ways in which workers of ComfyUI keep models on a card.
var managers = map[string]func(*testOptions){
	"ledger": nil,
	"pager": func(o *testOptions) {
		for i := range o.Environments {
			o.Environments[i].Variables["COMFY_ENV_WORKER_AIMDO"] = "1"
		}
	},
}

func TestTwoPagedWorkersThatWantMostOfTheCardAtOnceBothFinish(t *testing.T) {
	b := startCards(t, bigCard, []string{"one", "two"}, managers["pager"])
	first, second := b.begin("one", largeModel, nil), b.begin("two", largeModel, nil)
	waits := b.event("memory.waiting", "", nil)
	if waits.Environment == "one" {
		first, second = second, first
	}
	first.runs()
	select {
	case <-second.running:
		t.Error("both were admitted")
	default:
	}
	first.letGo()
	second.letGo()
	for _, one := range []*work{first, second} {
		if err := one.wait(t); err != nil {
			t.Error(err)
		}
	}
	if asked := b.event("memory.asked_release", "", nil); asked.Environment == waits.Environment {
		t.Errorf("%s was asked to make room for itself", asked.Environment)
	}
}

func TestALoadOfTheHostTakesMemoryFromAnIdleWorker(t *testing.T) {
	for name, manager := range managers {
		t.Run(name, func(t *testing.T) { takeFromAnIdleWorker(t, manager) })
	}
}

func takeFromAnIdleWorker(t *testing.T, manager func(*testOptions)) {
	b := startCards(t, bigCard, []string{"one"}, manager)
	host := b.startHost()
	if report := host.work("one", "theirs", 14_000); report.Models["theirs"] < 14_000*mib {
		t.Fatalf("the worker's model: %+v", report)
	}
	host.until("the worker's model in the host's list", func(r hostReport) bool { return len(r.StandIns) == 1 && r.StandIns[0] >= 14_000*mib })
	if report := host.load("own", 15_000); report.Models["own"] < 15_000*mib {
		t.Errorf("the host's own model: %+v", report)
	}
	released := b.event("memory.released", "one", nil)
	t.Logf("%s: %v", released.Cause, released.Terms)
	host.until("the list without what went", func(r hostReport) bool { return len(r.StandIns) == 0 || r.StandIns[0] < 14_000*mib })
	if report := host.work("one", "theirs", 1_000); report.Held == 0 {
		t.Errorf("the worker does not go on: %+v", report)
	}
}

func TestALoadOfAWorkerTakesMemoryFromTheHostThatWaitsForIt(t *testing.T) {
	for name, manager := range managers {
		t.Run(name, func(t *testing.T) { takeFromTheHost(t, manager) })
	}
}

func takeFromTheHost(t *testing.T, manager func(*testOptions)) {
	b := startCards(t, bigCard, []string{"one"}, manager)
	host := b.startHost()
	host.load("own", 15_000)
	if report := host.work("one", "theirs", 14_000); report.Models["theirs"] < 14_000*mib {
		t.Errorf("the worker's model: %+v", report)
	}
	answered := b.event("memory.answered", "one", nil)
	t.Logf("%s: %v", answered.Cause, answered.Terms)
	if !strings.HasPrefix(answered.Cause, "granted/") {
		t.Errorf("the load was answered %q", answered.Cause)
	}
	asked := b.event("memory.asked_release", "", func(e api.Event) bool { return e.Environment == "" })
	t.Logf("the host was asked: %s %v", asked.Cause, asked.Terms)
	if report := host.report(); report.Models["own"] >= 15_000*mib {
		t.Errorf("the host still has %v", report.Models)
	}
}

func TestTheUsersWishForMemoryReachesIdleWorkers(t *testing.T) {
	for _, flag := range []string{"unload_models", "free_memory"} {
		t.Run(flag, func(t *testing.T) {
			b := startCards(t, bigCard, []string{"one", "two"}, nil)
			host := b.startHost()
			host.work("one", "a", 2_000)
			host.work("two", "b", 3_000)
			host.until("both models in the host's list", func(r hostReport) bool { return len(r.StandIns) == 2 })
			host.do("flag", map[string]any{"name": flag}, nil)
			report := host.until("nothing of workers in the host's list", func(r hostReport) bool { return len(r.StandIns) == 0 })
			if said := strings.Join(report.Lines, "\n"); !strings.Contains(said, "workers freed 4.9 GiB") {
				t.Errorf("the host's log has not what was freed:\n%s", said)
			}
		})
	}
}

func TestAProcessLocalCardIsReservedForWhatWorkersHold(t *testing.T) {
	local := fakecard.Spec{Name: "Local_24", Total: 24 << 30, ProcessLocal: true}
	b := startCards(t, local, []string{"one"}, func(o *testOptions) {
		for i := range o.Environments {
			o.Environments[i].Variables["FAKECARD_LOCAL"] = "1"
		}
	})
	host := b.startHost("FAKECARD_LOCAL=1")
	before := host.report().Reserve
	host.work("one", "theirs", 10_000)
	report := host.until("a larger reserve", func(r hostReport) bool { return r.Reserve > before })
	if grown := report.Reserve - before; grown < 10_000*mib || grown > 11_000*mib {
		t.Errorf("the reserve grew by %.0f MiB", grown/mib)
	}
}
