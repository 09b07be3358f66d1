package supervisor

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
)

// bigCard is what tests share, unless they say otherwise.
var bigCard = fakecard.Spec{Name: "Fake_24", Total: 24 << 30, Driver: 454 << 20}

// largeModel takes 60 % of bigCard with what computing takes.
const largeModel = 12500 // MiB

func TestTwoWorkersThatWantMostOfTheCardAtOnceBothFinish(t *testing.T) {
	b := startCards(t, bigCard, []string{"one", "two"}, nil)
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
	card := b.budget().Cards[0]
	if len(card.Waiting) != 1 || len(card.Leases) != 1 || card.Name != "Fake_24" || card.Source != string(memory.FromDriver) || !card.Attributed {
		t.Errorf("the card while one waits: %+v", card)
	}
	first.letGo()
	if err := first.wait(t); err != nil {
		t.Error(err)
	}
	second.letGo()
	if err := second.wait(t); err != nil {
		t.Error(err)
	}
	granted := b.event("memory.answered", waits.Environment, nil)
	asked := b.event("memory.asked_release", "", nil)
	if !strings.HasPrefix(granted.Cause, "granted/") || asked.Environment == waits.Environment {
		t.Errorf("the one that waited was answered %q, and %s was asked", granted.Cause, asked.Environment)
	}
	b.events.mu.Lock()
	chains := budget.Chains(b.events.all, asked.Environment)
	b.events.mu.Unlock()
	chains = slices.DeleteFunc(chains, func(chain []api.Event) bool { // pins above a cap may have been asked back as well
		return !slices.ContainsFunc(chain, func(event api.Event) bool { return event.Kind == asked.Kind })
	})
	if len(chains) != 1 || len(chains[0]) < 3 {
		t.Fatalf("why it was asked: %v", chains)
	}
	for i := range chains[0] {
		event := &chains[0][i]
		if len(budget.TermsOf(event)) == 0 {
			t.Errorf("%s comes without its sum", event.Kind)
		}
		t.Logf("%s of %s, %s: %s", event.Kind, event.Environment, event.Cause, budget.TermsOf(event))
	}
}

func TestAnIdleWorkerGivesItsMemoryBackAfterItsTime(t *testing.T) {
	b := startCards(t, bigCard, []string{"idle"}, func(o *testOptions) { o.IdleRelease = 100 * time.Millisecond })
	call := b.begin("idle", 4096, nil)
	call.letGo()
	if err := call.wait(t); err != nil {
		t.Fatal(err)
	}
	b.event("memory.full_release", "idle", caused(memory.CauseIdle))
	b.event("worker.released", "idle", nil)
	released := b.event("memory.released", "idle", nil)
	t.Logf("receipt: %v", released.Terms)
	worker := onlyWorker(t, b.client, "idle")
	if worker.State != string(Released) || worker.Memory == nil || len(worker.Memory.Models) != 0 {
		t.Errorf("%s, %+v", worker.State, worker.Memory)
	}
	if report := b.report("idle"); report.Held > 512<<20 {
		t.Errorf("it still holds %d bytes", report.Held)
	}
	if worker := onlyWorker(t, b.client, "idle"); worker.Calls != 2 || worker.PythonPID == 0 {
		t.Errorf("it is the same process, and works: %+v", worker)
	}
}

func TestATightCardTakesAnIdleWorkersMemoryAtOnce(t *testing.T) {
	b := startCards(t, bigCard, []string{"idle"}, func(o *testOptions) { o.TightFree = 400 << 20 })
	call := b.begin("idle", 4096, nil)
	call.letGo()
	if err := call.wait(t); err != nil {
		t.Fatal(err)
	}
	if err := b.card.Foreign(0, 20<<30-300<<20); err != nil {
		t.Fatal(err)
	}
	b.event("memory.full_release", "idle", caused(memory.CauseCardTight))
	b.event("worker.released", "idle", nil)
	if report := b.report("idle"); report.Held > 512<<20 {
		t.Errorf("it still holds %d bytes", report.Held)
	}
	if card := b.budget().Cards[0]; card.Unattributed < 19<<30 {
		t.Errorf("what the foreign process holds: %+v", card)
	}
}

func TestPinsAreSplitAmongWorkersAndAgainWhenOneLeaves(t *testing.T) {
	b := startCards(t, bigCard, []string{"one", "two"}, nil)
	use := func(environment string) {
		t.Helper()
		call := b.begin(environment, 512, nil)
		call.letGo()
		if err := call.wait(t); err != nil {
			t.Fatal(err)
		}
	}
	use("one")
	b.event("memory.pin_cap", "one", nil)
	use("two")
	b.event("memory.pin_cap", "two", nil)
	caps := func() (sum int64, budget int64, byName map[string]int64) {
		known := b.budget()
		byName = map[string]int64{}
		for _, party := range known.Parties {
			sum += party.Memory.PinCap
			byName[party.Environment] = party.Memory.PinCap
		}
		return sum, known.Pins.Budget, byName
	}
	var before map[string]int64
	eventually(t, "both caps", func() bool {
		sum, budget, byName := caps()
		if sum > budget {
			t.Fatalf("%v promised of %d", byName, budget)
		}
		before = byName
		return byName["one"] > budget/4 && byName["two"] > budget/4
	})
	if report := b.report("one"); int64(report.PinCeiling) != before["one"] {
		t.Errorf("in the process %f is in force, sent were %d", report.PinCeiling, before["one"])
	}
	if _, err := b.client.Stop(testContext(t), api.StopParams{Environment: "two"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one that is left to get more", func() bool {
		_, _, byName := caps()
		return byName["one"] > before["one"]
	})
	_, budget, after := caps()
	t.Logf("budget %d, of two: %v, of one: %v", budget, before, after)
}

func TestACapOnTheCardHolds(t *testing.T) {
	for _, manager := range []string{"ledger", "pager"} {
		t.Run(manager, func(t *testing.T) {
			const limit = 8 << 30
			b := startCards(t, bigCard, []string{"capped", "tiny"}, func(o *testOptions) {
				o.Environments[0].Options = manifest.Options{Memory: manifest.MemoryOptions{VRAM: &manifest.Amount{Bytes: limit}}}
				o.Environments[1].Options = manifest.Options{Memory: manifest.MemoryOptions{VRAM: &manifest.Amount{Bytes: 256 << 20}}}
				if manager == "pager" {
					for i := range o.Environments {
						o.Environments[i].Variables["COMFY_ENV_WORKER_AIMDO"] = "1"
					}
				}
			})
			call := b.begin("capped", largeModel, map[string]any{"activation_mib": 512})
			call.runs()
			held := int64(0)
			for _, holder := range b.budget().Cards[0].Holders {
				if holder.Environment == "capped" {
					held = holder.Charge
				}
			}
			eventually(t, "the driver's word on it", func() bool {
				for _, holder := range b.budget().Cards[0].Holders {
					if holder.Environment == "capped" && holder.Driver != nil {
						held = *holder.Driver
					}
				}
				return held > 1<<30
			})
			if held > limit+256<<20 {
				t.Errorf("it holds %s of a cap of 8 GiB", memory.Bytes(held))
			}
			call.letGo()
			if err := call.wait(t); err != nil {
				t.Error(err)
			}
			t.Logf("held %s of a cap of %s, of a model of %d MiB", memory.Bytes(held), memory.Bytes(limit), largeModel)
			if manager == "pager" {
				return
			}
			tiny := b.begin("tiny", 64, nil)
			remark := b.event("memory.cap_remark", "tiny", nil)
			if !strings.Contains(remark.Cause, "nothing can be loaded under it") {
				t.Errorf("%q", remark.Cause)
			}
			tiny.letGo() // upstream loads as little as possible and goes on
			if err := tiny.wait(t); err != nil {
				t.Log(err)
			}
		})
	}
}

func TestAWorkerKilledWithALeaseLeavesNothingPromised(t *testing.T) {
	b := startCards(t, bigCard, []string{"dies", "waits"}, nil)
	dies := b.begin("dies", largeModel, nil)
	dies.runs()
	waits := b.begin("waits", largeModel, nil)
	b.event("memory.waiting", "waits", nil)
	if err := syscall.Kill(dies.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := dies.wait(t); err == nil {
		t.Error("its call was answered")
	}
	waits.letGo()
	if err := waits.wait(t); err != nil {
		t.Error(err)
	}
	ended := b.event("memory.lease_ended", "dies", caused(memory.CauseGone))
	granted := b.event("memory.answered", "waits", nil)
	t.Logf("its lease: %v; the other: %s", ended.Terms, granted.Cause)
	if !strings.HasPrefix(granted.Cause, "granted/") {
		t.Errorf("answered %q", granted.Cause)
	}
}

func TestReleaseReachesAnIdleWorkerAndNotOneThatComputes(t *testing.T) {
	b := startCards(t, bigCard, []string{"pack"}, nil)
	call := b.begin("pack", 4096, nil)
	call.runs()
	released, err := b.client.Release(testContext(t), api.ReleaseParams{})
	if err != nil || len(released) != 1 || !released[0].Busy || released[0].Freed != 0 {
		t.Errorf("while it computes: %+v, %v", released, err)
	}
	call.letGo()
	if err := call.wait(t); err != nil {
		t.Fatal(err)
	}
	released, err = b.client.Release(testContext(t), api.ReleaseParams{Environment: "pack", Bytes: 1 << 30})
	if err != nil || len(released) != 1 || released[0].Freed < 1<<30 || released[0].Freed > 2<<30 {
		t.Errorf("a part: %+v, %v", released, err)
	}
	released, err = b.client.Release(testContext(t), api.ReleaseParams{Environment: "pack"})
	if err != nil || len(released) != 1 || released[0].Error != "" || released[0].Freed < 2<<30 {
		t.Errorf("everything: %+v, %v", released, err)
	}
	if report := b.report("pack"); report.Held > 512<<20 || len(report.Models) != 0 {
		t.Errorf("it keeps %+v", report)
	}
}

func TestADriverThatHangsOrLosesACardHoldsUpNoLoad(t *testing.T) {
	b := startCards(t, bigCard, []string{"pack"}, nil)
	do := func(name string) {
		t.Helper()
		call := b.begin("pack", 512, map[string]any{"name": name})
		call.letGo()
		if err := call.wait(t); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	do("before")
	if err := b.card.Lose(0); err != nil {
		t.Fatal(err)
	}
	b.event("memory.card_lost", "", nil)
	if err := b.card.Restore(0); err != nil {
		t.Fatal(err)
	}
	b.event("memory.card_back", "", nil)
	if err := b.card.Fail("nvmlDeviceGetComputeRunningProcesses_v3", 999); err != nil {
		t.Fatal(err)
	}
	do("without its list of processes")
	if err := b.card.Hang("nvmlDeviceGetMemoryInfo_v2"); err != nil {
		t.Fatal(err)
	}
	do("while it hangs")
	b.event("memory.cards_unreadable", "", func(event api.Event) bool { return strings.Contains(event.Cause, "has not answered") })
	if known := b.budget(); known.CardsError == "" {
		t.Errorf("the hanging driver is not shown: %+v", known)
	}
	if err := b.card.Clear(); err != nil {
		t.Fatal(err)
	}
}

func TestLeasesOutliveTheSupervisor(t *testing.T) {
	b := startCards(t, bigCard, []string{"computes", "waits"}, func(o *testOptions) { o.Orphan = waitLong })
	computes := b.begin("computes", largeModel, nil)
	computes.runs()
	if err := b.daemon.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.daemon.command.Wait() // killed
	if err := computes.wait(t); err == nil {
		t.Error("its call was answered though the supervisor died")
	}
	b.daemon = startSeparateDaemon(t, b.options)
	b.connect()
	b.event("worker.adopted", "computes", nil)
	restored := b.event("memory.lease_restored", "computes", nil)
	t.Logf("restored: %s", budget.TermsOf(&restored))
	orphan := b.event("memory.orphan_computes", "computes", nil)
	t.Logf("computes: %s", budget.TermsOf(&orphan))
	waits := b.begin("waits", largeModel, nil)
	b.event("memory.waiting", "waits", nil)
	computes.letGo()
	waits.letGo()
	b.event("memory.orphan_ended", "computes", nil)
	if err := waits.wait(t); err != nil {
		t.Error(err)
	}
}

func TestAWorkerThatKeepsWhatNoReleaseMovesEndsOnATightCard(t *testing.T) {
	b := startCards(t, bigCard, []string{"keeps"}, func(o *testOptions) { o.TightFree, o.EndStuck = 400<<20, memory.EndStuckWhenTight })
	result, err := b.client.Call(testContext(t), api.Call{Environment: "keeps", Node: "MemoryHold", Inputs: map[string]any{"size_mib": 4096}})
	if err != nil {
		t.Fatal(err)
	}
	result.Close()
	if err := b.card.Foreign(0, 20<<30-500<<20); err != nil {
		t.Fatal(err)
	}
	b.event("memory.full_release", "keeps", caused(memory.CauseCardTight))
	ended := b.event("worker.ended_idle", "keeps", nil)
	t.Logf("%s: %s", ended.Cause, budget.TermsOf(&ended))
	b.event("worker.gone", "keeps", nil)
	if report := b.report("keeps"); report.Held > 512<<20 {
		t.Errorf("its replacement holds %d bytes", report.Held)
	}
}
