package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestAnIdleWorkerIsReleasedAfterItsTimeAndEndedAfterItsOtherTime(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 20 * time.Millisecond })
	quick := b.join(memory.Party{Session: "operator", Environment: "quick", Generation: 1}, func(m *Member) { m.IdleRelease = 30 * time.Millisecond })
	slow := b.join(memory.Party{Session: "operator", Environment: "slow", Generation: 1}, func(m *Member) { m.IdleRelease = time.Hour })
	short := b.join(memory.Party{Session: "operator", Environment: "short", Generation: 1}, func(m *Member) { m.Reap = 30 * time.Millisecond })
	quick.hold("model", 8*gib)
	slow.hold("model", 8*gib)
	event := b.event("memory.full_release", "quick")
	if event.Cause != memory.CauseIdle {
		t.Errorf("%+v", event)
	}
	b.event("memory.released", "quick")
	b.await("both", func() bool { return len(b.released) == 1 && len(b.ended) > 0 })
	if b.released[0] != quick.party || b.ended[0].Party != short.party || b.ended[0].Kind != memory.Reap {
		t.Errorf("released %v, ended %v", b.released, b.ended)
	}
	b.await("the card to be read again", func() bool {
		b.mu.Unlock()
		defer b.mu.Lock()
		return findParty(b.view(), "quick").Memory.VRAM <= int64(context0)
	})
}

func TestATightCardReleasesAtOnceWhosePromptIsOver(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 20 * time.Millisecond })
	host := b.join(memory.Host("a"), nil)
	host.census()
	used := b.join(memory.Party{Session: "a", Environment: "used", Generation: 1}, nil)
	over := b.join(memory.Party{Session: "a", Environment: "over", Generation: 1}, nil)
	b.keeper.Prompt("a", json.RawMessage(`{"prompt_id":"1","state":"begin","workflow":"w","environments":["used","over"]}`))
	used.hold("model", 11*gib)
	over.hold("model", 12*gib)
	b.machine.change(func() { b.machine.foreign["GPU-0000"] = gib / 4 })
	b.keeper.Prompt("a", json.RawMessage(`{"prompt_id":"1","state":"end","queued_environments":["used"]}`))
	event := b.event("memory.full_release", "")
	if event.Environment != "over" || event.Cause != memory.CauseCardTight {
		t.Errorf("%+v", event)
	}
	over.heard(MethodRelease, 1)
	over.heard(MethodPrompt, 2)
}

func TestAWorkerThatKeepsPlainModulesIsEndedWhenTheCardIsTight(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 20 * time.Millisecond })
	stuck := b.worker("stuck")
	stuck.serve = func(method string, _ json.RawMessage) (any, error) {
		if method != MethodRelease {
			return nil, nil
		}
		handles := 0
		return Receipt{Kind: memory.FullRelease, Stuck: 20 * gib, Raw: map[string]memory.Bytes{"HoldsATensor": 20 * gib}, Handles: &handles}, nil
	}
	b.machine.take(stuck.pid, "GPU-0000", 20*gib)
	b.machine.change(func() { b.machine.foreign["GPU-0000"] = 4 * gib })
	stuck.census()
	b.keeper.Sweep()
	event := b.event("memory.released", "stuck")
	if text := fmt.Sprint(event.Terms["terms"]); !strings.Contains(text, "plain modules of HoldsATensor 20.00 GiB") {
		t.Errorf("the event does not say what it keeps: %s", text)
	}
	b.await("its end", func() bool { return len(b.ended) > 0 })
	if b.ended[0].Kind != memory.EndIdle {
		t.Errorf("%+v", b.ended[0])
	}
}

func TestTheIdleTimeOfASilentWorkerCountsFromItsLastCall(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	silent := b.worker("silent")
	before := time.Now()
	for range 1000 { // calls of a pack that touches no card: noted, and nobody is woken
		b.busy(silent)
		b.idle(silent)
	}
	var since time.Time
	b.keeper.inside(context.Background(), func() { since = b.keeper.books.Workers()[0].IdleSince })
	if since.Before(before) {
		t.Errorf("idle since %s, its calls ended after %s", since, before)
	}
}

func TestThePinnedBudgetIsSplitAgainAsWorkersComeAndGo(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 10 * time.Millisecond })
	const budget = 40 * gib
	host := b.join(memory.Host("a"), nil)
	host.ceiling = float64(budget)
	host.extra = func(c *Census) { own := float64(budget); c.MaxPinned = &own }
	host.census()
	promised := func() (sum int64, caps map[string]int64) {
		caps = map[string]int64{}
		for _, party := range b.view().Parties {
			caps[party.Environment] = party.Memory.PinCap
			sum += party.Memory.PinCap
		}
		return sum, caps
	}
	settled := func(what string, holds func(map[string]int64) bool) {
		t.Helper()
		b.await(what, func() bool {
			b.mu.Unlock()
			defer b.mu.Lock()
			sum, caps := promised()
			if sum > int64(budget) {
				t.Fatalf("%d promised of %d: %v", sum, int64(budget), caps)
			}
			return holds(caps)
		})
	}
	settled("the host's cap", func(caps map[string]int64) bool { return caps[""] > int64(30*gib) })
	workers := map[string]*double{}
	for i, name := range []string{"one", "two", "three"} {
		worker := b.join(memory.Party{Session: "a", Environment: name, Generation: 1}, nil)
		worker.ceiling, worker.pinned = float64(58*gib), memory.Bytes(i)*gib
		workers[name] = worker
		worker.hold("model", gib)
		worker.census()
	}
	settled("the split among three", func(caps map[string]int64) bool {
		return caps["one"] > int64(4*gib) && caps["two"] > int64(4*gib) && caps["three"] > int64(4*gib) && caps[""] < int64(24*gib)
	})
	var sent Assignment
	if err := json.Unmarshal(workers["one"].heard(MethodAssign, 1), &sent); err != nil || sent.PinCap == nil || *sent.PinCap <= 0 {
		t.Errorf("sent %+v, %v", sent, err)
	}
	_, before := promised()
	b.keeper.Gone(workers["one"].party)
	b.keeper.Gone(workers["two"].party)
	settled("the split after two left", func(caps map[string]int64) bool {
		_, gone := caps["one"]
		return !gone && caps["three"] > before["three"]
	})
	b.event("memory.pin_cap", "three")
}

func TestPinsAboveACapAreAskedBackAndUnderPressureFromAll(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 10 * time.Millisecond })
	host := b.join(memory.Host("a"), nil)
	host.ceiling = float64(20 * gib)
	host.census()
	over := b.join(memory.Party{Session: "a", Environment: "over", Generation: 1}, func(m *Member) { m.Caps.Pinned = memory.Size{Bytes: 4 * gib} })
	over.ceiling, over.pinned = float64(58*gib), 6*gib
	over.hold("model", gib)
	event := b.event("memory.release_pins", "over")
	if event.Cause != "above_cap" {
		t.Errorf("%+v", event)
	}
	b.await("its pins", func() bool { over.mu.Lock(); defer over.mu.Unlock(); return over.pinned <= 4*gib })
	b.machine.change(func() { b.machine.ram.Available = gib })
	b.await("pressure", func() bool {
		for _, event := range b.events {
			if event.Kind == "memory.release_pins" && event.Cause == "ram_short" {
				return true
			}
		}
		return false
	})
}

func TestAContainersLimitBelowWhatIsPinnedAlreadyIsWorkedTowards(t *testing.T) {
	m := newMachine(24 * gib)
	m.ram = probe.Machine{RAM: memory.RAM{Total: 10 * gib, Available: gib}, Physical: 64 * gib, Limit: 10 * gib, LimitedBy: "/docker/x"}
	b := start(t, m, func(c *Config) { c.Sweep = 10 * time.Millisecond })
	host := b.join(memory.Host("a"), nil)
	host.ceiling, host.pinned = float64(57*gib), 6*gib // as if the machine's RAM were its own
	host.hold("model", gib)
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.ceiling = float64(57 * gib)
	worker.hold("model", gib)
	b.event("memory.release_pins", "")
	b.await("the host's pins", func() bool { host.mu.Lock(); defer host.mu.Unlock(); return host.pinned < 6*gib })
	b.await("caps within the limit", func() bool {
		b.mu.Unlock()
		defer b.mu.Lock()
		known, sum := b.view(), int64(0)
		for _, party := range known.Parties {
			sum += party.Memory.PinCap
		}
		return sum > 0 && sum <= known.Pins.Budget && known.Pins.Budget <= int64(9*gib) && known.RAM.LimitedBy == "/docker/x"
	})
}

func TestCapsAreInForceAndWhatIsWrongWithThemIsSaidFirst(t *testing.T) {
	var high, most memory.Bytes
	b := start(t, newMachine(24*gib), func(c *Config) { c.Sweep = 10 * time.Millisecond })
	limited := func(x, y memory.Bytes) { b.note(func() { high, most = x, y }) }
	percent := func(share float64) memory.Size { return memory.Size{Percent: share} }
	worker := b.join(memory.Party{Session: "operator", Environment: "capped", Generation: 1}, func(m *Member) {
		m.Caps = memory.Caps{VRAM: percent(50), Pinned: percent(50), Resident: memory.Size{Bytes: 8 * gib}}
		m.Weigh = func(context.Context) (resident, shared memory.Bytes, err error) { return 10 * gib, gib, nil }
		m.HoldRAM = func(a, b memory.Bytes) error { limited(a, b); return nil }
	})
	worker.ceiling = float64(58 * gib)
	worker.hold("model", 4*gib)
	b.busy(worker)
	got := b.answered(worker.ask("1", 20*gib, func(l *Lease) { l.Paged = true }))
	if got.Verdict == "" || got.Lease > 8*gib || got.Headroom < 12*gib {
		t.Errorf("under a cap of 12 GiB with 4 GiB held it got %+v", got)
	}
	if got.Reserve < float64(400*mib) {
		t.Errorf("reserve %f", got.Reserve)
	}
	b.idle(worker)
	b.event("memory.cap_remark", "capped") // 32 GiB pinned within 8 GiB
	b.event("memory.full_release", "capped")
	b.await("the kernel's limit", func() bool { return high == 8*gib && most == 9*gib })
	memoryOf := findParty(b.view(), "capped").Memory
	if memoryOf.VRAMCap != int64(12*gib) || memoryOf.ResidentCap != int64(8*gib) || memoryOf.PinnedCap != int64(8*gib) || len(memoryOf.Remarks) != 1 {
		t.Errorf("%+v", memoryOf)
	}
	tiny := b.join(memory.Party{Session: "operator", Environment: "tiny", Generation: 1}, func(m *Member) {
		m.Caps.VRAM = memory.Size{Bytes: 512 * mib}
		m.HoldRAM = func(memory.Bytes, memory.Bytes) error { return errors.New("no control group") }
	})
	b.event("memory.cap_remark", "tiny")
	b.busy(tiny)
	b.answered(tiny.ask("1", gib, nil))
	b.event("memory.cap_too_small", "tiny") // before the load goes on and fails
	b.await("a line in its log", func() bool {
		return slices.ContainsFunc(b.notes, func(line string) bool { return len(line) > 20 && line[:8] == "memory: " })
	})
}

func TestProcessesThatSeeOnlyTheirOwnAreToldWhatOthersHold(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.ProcessLocal = true })
	host := b.join(memory.Host("a"), nil)
	host.extra = func(c *Census) { own := float64(600 * mib); c.Reserve, c.Headroom = &own, 256*mib }
	host.census()
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.hold("model", 6*gib)
	var sent Assignment
	reserve := func(want memory.Bytes) {
		t.Helper()
		b.await("the host's reserve", func() bool {
			for _, params := range host.hears[MethodAssign] {
				sent = Assignment{}
				if json.Unmarshal(params, &sent) == nil && sent.Reserve != nil && memory.Bytes(*sent.Reserve) == want {
					return true
				}
			}
			return false
		})
	}
	reserve(600*mib + 6*gib + context0)
	if sent.Headroom == nil || *sent.Headroom != 256*mib+6*gib+context0 {
		t.Errorf("headroom %v", sent.Headroom)
	}
	worker.mu.Lock()
	worker.models[0].Resident = 0 // says less: nothing shrinks without a receipt
	worker.mu.Unlock()
	worker.census()
	b.view()
	worker.mu.Lock()
	worker.models[0].Resident = 6 * gib
	worker.mu.Unlock()
	worker.census()
	granted := b.keeper.Release(context.Background(), []Wish{{Party: worker.party, Kind: memory.FullRelease, Cause: "test"}})
	if granted[0].Error != "" || granted[0].Freed != 6*gib {
		t.Fatalf("%+v", granted)
	}
	reserve(600*mib + context0)
	for _, params := range host.hears[MethodAssign][:len(host.hears[MethodAssign])-1] {
		var earlier Assignment
		if json.Unmarshal(params, &earlier) == nil && earlier.Reserve != nil && *earlier.Reserve < float64(600*mib+6*gib) {
			t.Errorf("a reserve of %f was sent before the receipt", *earlier.Reserve)
		}
	}
	b.keeper.Gone(worker.party)
	reserve(600 * mib)
}

func TestOnDeviceWideCardsNothingIsPublished(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	host := b.join(memory.Host("a"), nil)
	host.extra = func(c *Census) { own := float64(400 * mib); c.Reserve = &own }
	host.census()
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.hold("model", 6*gib)
	var residency Residency
	if err := json.Unmarshal(host.heard(MethodResidency, 1), &residency); err != nil || len(residency.Models) != 1 || residency.Models[0].Resident != 6*gib || residency.Models[0].Device != "cuda:0" {
		t.Errorf("the host was told %+v, %v", residency, err)
	}
	b.view()
	if len(host.hears[MethodAssign]) != 0 {
		t.Errorf("the host was sent %s", host.hears[MethodAssign])
	}
}

func TestAHostsWishReachesAnIdleWorkerAndNotOneThatComputes(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	b.join(memory.Host("a"), nil)
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.hold("large", 6*gib)
	worker.hold("small", 2*gib)
	b.busy(worker)
	ctx := context.Background()
	if got := b.keeper.Unload(ctx, "a", Unload{Environment: "pack", All: true}); !got.Busy || got.Freed != 0 {
		t.Errorf("while it computes: %+v", got)
	}
	b.idle(worker)
	if got := b.keeper.Unload(ctx, "a", Unload{Environment: "pack", Models: []string{"small"}}); got.Freed != 2*gib || got.Busy {
		t.Errorf("one model: %+v", got)
	}
	if got := b.keeper.Unload(ctx, "a", Unload{Environment: "pack", Bytes: gib}); got.Freed != gib {
		t.Errorf("bytes: %+v", got)
	}
	if got := b.keeper.Unload(ctx, "a", Unload{Environment: "pack", All: true}); got.Freed != 5*gib {
		t.Errorf("all: %+v", got)
	}
	if got := b.keeper.Unload(ctx, "a", Unload{Environment: "absent", All: true}); got != (Unloaded{}) {
		t.Errorf("nobody: %+v", got)
	}
	if worker.party != b.released[len(b.released)-1] {
		t.Errorf("released: %v", b.released)
	}
}

func TestAWorkerThatStartsInTheMiddleOfAPromptIsToldOfIt(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	b.join(memory.Host("a"), nil)
	b.keeper.Prompt("a", json.RawMessage(`{"prompt_id":"1","state":"begin","workflow":"w","environments":["pack"],"ram_headroom":5}`))
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	b.view()
	var told map[string]any
	if err := json.Unmarshal(worker.heard(MethodPrompt, 1), &told); err != nil || told["ram_headroom"] != float64(5) {
		t.Errorf("it was told %v", told)
	}
	if findParty(b.view(), "pack").Memory.PromptOver {
		t.Error("its prompt runs")
	}
	b.keeper.Need("a", Need{Environment: "pack", StandIns: 2, Handles: 1})
	if got := findParty(b.view(), "pack").Memory.StandIns; got != 2 {
		t.Errorf("%d stand-ins", got)
	}
}

func TestBytesOfAProcesssChildrenAreItsOwn(t *testing.T) {
	parents := map[int]int{900: 800, 800: 101, 950: 1}
	b := start(t, newMachine(24*gib), func(c *Config) {
		c.Parent = func(pid int) (int, bool) { parent, ok := parents[pid]; return parent, ok }
	})
	worker := b.worker("pack")
	worker.census()
	b.machine.take(900, "GPU-0000", 3*gib)
	b.machine.take(950, "GPU-0000", 2*gib)
	b.answered(worker.ask("1", gib, nil))
	card := b.view().Cards[0]
	if card.Holders[0].Charge != int64(3*gib) || card.Unattributed != int64(2*gib) {
		t.Errorf("%+v", card)
	}
}

func TestDevicesAreFoundByIdentityAndByWhatAProcessSees(t *testing.T) {
	m := newMachine(24*gib, 24*gib)
	m.cards[1].Name = "Double" // of one kind, so that numbers are certain
	b := start(t, m, nil)
	second := b.join(memory.Party{Session: "operator", Environment: "second", Generation: 1}, func(m *Member) { m.Environ = []string{"CUDA_VISIBLE_DEVICES=1"} })
	b.busy(second)
	for name, device := range map[string]Device{"by number": {"cuda:0", ""}, "by place": {"cuda:0", "00000000:02:00.0"}, "by UUID": {"cuda:0", "GPU-0001"}} {
		b.answered(second.ask(name, gib, func(l *Lease) { l.Device = device }))
		for _, card := range b.view().Cards {
			if (card.Device == "GPU-0001") != (len(card.Leases) == 1) {
				t.Errorf("%s: %+v", name, card)
			}
		}
	}
}

func TestTheCommandsReleaseSaysWhyNothingCame(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	busy, idle := b.worker("busy"), b.worker("idle")
	busy.hold("model", gib)
	idle.hold("model", gib)
	b.busy(busy)
	ctx := context.Background()
	got := b.keeper.Release(ctx, []Wish{
		{Party: busy.party, Kind: memory.FullRelease}, {Party: idle.party, Kind: memory.PartialRelease, Bytes: gib / 2},
		{Party: memory.Party{Session: "operator", Environment: "gone"}, Kind: memory.FullRelease},
	})
	if !got[0].Busy || got[1].Freed != gib/2 || got[2].Error == "" {
		t.Errorf("%+v", got)
	}
	b.stop()
	if got := b.keeper.Release(ctx, []Wish{{Party: idle.party}}); got[0].Error == "" {
		t.Errorf("%+v", got)
	}
	if _, ok := b.keeper.View(ctx); ok {
		t.Error("closed accounts were shown")
	}
}

// BenchmarkAdmission is what asking for room adds to a call when nothing has to be released: from the request's arrival
// to its answer, with a reading of the card in between.
func BenchmarkAdmission(b *testing.B) {
	bench := start(b, newMachine(24*gib), func(c *Config) { c.Event = func(event api.Event) {} })
	worker := bench.worker("pack")
	worker.census()
	for i := 0; b.Loop(); i++ {
		bench.answered(worker.ask(fmt.Sprint(i), gib, nil))
	}
}

// BenchmarkSweep looks at everybody once, idle workers with models on one card.
func BenchmarkSweep(b *testing.B) {
	for _, count := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			bench := start(b, newMachine(24*gib), func(c *Config) { c.Event = func(api.Event) {} })
			for i := range count {
				worker := bench.join(memory.Party{Session: fmt.Sprint("session ", i%10), Environment: fmt.Sprint("pack ", i), Generation: 1},
					func(m *Member) { m.IdleRelease, m.Reap = time.Hour, 2*time.Hour })
				worker.models = []memory.ModelCensus{{Name: "model", Size: mib, Resident: mib}}
				worker.ceiling = float64(58 * gib)
				worker.census()
			}
			bench.view()
			b.ResetTimer()
			for b.Loop() {
				bench.keeper.inside(context.Background(), func() { bench.keeper.sweep(time.Now()) })
			}
		})
	}
}
