package budget

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestTwoLoadsAtTheSameInstantAreNotPromisedTheSameBytes(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	first, second := b.worker("first"), b.worker("second")
	b.busy(first)
	b.busy(second)
	const weights = 12 * gib // with a tenth and computing, 60 % of the card
	one, two := first.ask("1", weights, nil), second.ask("2", weights, nil)
	winner, loser, answers, id := first, second, two, "1"
	var got LeaseAnswer
	select {
	case got = <-one:
	case got = <-two:
		winner, loser, answers, id = second, first, one, "2"
	}
	if got.Verdict != memory.Granted || got.Lease < weights {
		t.Fatalf("the first got %+v", got)
	}
	b.event("memory.waiting", loser.party.Environment)
	card := b.view().Cards[0]
	if len(card.Leases) != 1 || len(card.Waiting) != 1 || card.Promised != int64(got.Lease) {
		t.Fatalf("one load waits for the other: %+v", card)
	}
	winner.loaded(id, weights)
	b.keeper.Finished(winner.party, Finished{ID: ID(id)})
	b.idle(winner)
	if got := b.answered(answers); got.Verdict != memory.Granted {
		t.Errorf("the second got %+v", got)
	}
	var asked Release
	if err := json.Unmarshal(winner.heard(MethodRelease, 1), &asked); err != nil || asked.Kind != memory.PartialRelease || asked.Device.Device != "cuda:0" {
		t.Errorf("the first was asked for %+v, %v", asked, err)
	}
	event := b.event("memory.asked_release", winner.party.Environment)
	if terms := event.Terms["terms"].(memory.Terms); event.Terms["device"] != "GPU-0000" || len(terms) < 5 {
		t.Errorf("the event lacks its sum: %+v", event)
	}
}

func TestAWorkerThatDiesWithALeaseGivesItBack(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	dies, waits := b.worker("dies"), b.worker("waits")
	b.busy(dies)
	b.busy(waits)
	if got := b.answered(dies.ask("1", 15*gib, nil)); got.Verdict != memory.Granted {
		t.Fatalf("got %+v", got)
	}
	answers := waits.ask("2", 15*gib, nil)
	b.event("memory.waiting", "waits")
	b.keeper.Gone(dies.party)
	if got := b.answered(answers); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	if card := b.view().Cards[0]; len(card.Leases) != 1 || card.Leases[0].Environment != "waits" {
		t.Errorf("leases: %+v", card.Leases)
	}
}

func TestAnIdleWorkerIsAskedBeforeTheHostOfAnother(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	host := b.join(memory.Host("a"), nil)
	other := b.join(memory.Host("b"), nil)
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	host.hold("host's", 10*gib)
	other.hold("other's", 10*gib)
	b.keeper.Prompt("b", json.RawMessage(`{"prompt_id":"p","state":"end"}`))
	b.keeper.Prompt("a", json.RawMessage(`{"prompt_id":"q","state":"begin","environments":["pack"]}`))
	b.busy(worker)
	if got := b.answered(worker.ask("1", 6*gib, nil)); got.Verdict != memory.Granted {
		t.Fatalf("got %+v", got)
	}
	var asked Release
	if err := json.Unmarshal(host.heard(MethodRelease, 1), &asked); err != nil || asked.Kind != memory.FreeMemory || asked.KeepEnvironment != "pack" {
		t.Errorf("its own host was asked for %+v, %v", asked, err)
	}
	if b.count("memory.asked_release") != 1 {
		t.Error("another session's host was asked without need")
	}
}

func TestWhatNeverAnswersIsSkippedAndShown(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Rules.WorkerAnswer = 20 * time.Millisecond })
	silent, willing, asks := b.worker("silent"), b.worker("willing"), b.worker("asks")
	silent.silent = true
	silent.hold("big", 11*gib)
	willing.hold("small", 10*gib)
	b.busy(asks)
	if got := b.answered(asks.ask("1", 9*gib, nil)); got.Verdict != memory.Granted {
		t.Fatalf("got %+v", got)
	}
	b.event("memory.release_unanswered", "silent")
	shown := false
	for _, holder := range b.view().Cards[0].Holders {
		shown = shown || holder.Environment == "silent" && holder.Unresponsive
	}
	if !shown {
		t.Errorf("it is not shown: %+v", b.view().Cards[0].Holders)
	}
}

func TestAProcessWithoutTheseMethodsIsAskedOnce(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.Limits.IdleRelease, c.Sweep = time.Millisecond, 20*time.Millisecond })
	deaf := b.join(memory.Party{Session: "operator", Environment: "deaf", Generation: 1}, func(m *Member) { m.IdleRelease = time.Millisecond })
	deaf.serve = func(string, json.RawMessage) (any, error) { return nil, errUnknown }
	deaf.heard(MethodRelease, 1)
	again := b.join(memory.Party{Session: "operator", Environment: "again", Generation: 1}, func(m *Member) { m.IdleRelease = time.Millisecond })
	again.heard(MethodRelease, 1) // sweeps go on
	b.await("its phase", func() bool { return len(b.released) > 0 })
	if len(deaf.hears[MethodRelease]) != 1 || b.released[0] != again.party {
		t.Errorf("asked %d times; released %v", len(deaf.hears[MethodRelease]), b.released)
	}
}

func TestALoadOnTheProcessorNeedsNoRoom(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	worker := b.worker("pack")
	if got := b.answered(worker.ask("1", 100*gib, func(l *Lease) { l.Device = Device{Device: "cpu"} })); got.Verdict != memory.Granted || got.Reserve != float64(400*mib) {
		t.Errorf("got %+v", got)
	}
	if got := b.answered((&double{bench: b, party: memory.Party{Session: "nobody"}}).ask("1", gib, nil)); got.Verdict != memory.Dropped {
		t.Errorf("nobody got %+v", got)
	}
}

func TestReportsThatCannotBeAreRefusedOrRepaired(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	worker := b.worker("liar")
	worker.hold("model", 8*gib)
	b.keeper.Sweep()
	for _, said := range []Census{
		{Sequence: 1}, // late or doubled
		{Sequence: 2, Pinned: -5, Devices: []DeviceCensus{{DeviceCensus: memory.DeviceCensus{Device: "cuda:0", Held: -1 << 40, Context: true}}}},
		{Sequence: 3, Resident: math.MaxInt64, Devices: []DeviceCensus{{DeviceCensus: memory.DeviceCensus{Device: "cuda:0", Held: math.MaxInt64, Streams: 1 << 40, Context: true}}}},
		{Sequence: 4, Devices: []DeviceCensus{{DeviceCensus: memory.DeviceCensus{Device: "cuda:0", Context: true}}}}, // says 0
	} {
		b.keeper.Census(worker.party, said)
	}
	b.keeper.Census(memory.Party{Session: "operator", Environment: "liar", Generation: 9}, Census{Sequence: 1})
	for range 3 { // seen by the driver, twice in a row
		b.answered(worker.ask("x", 0, func(l *Lease) { l.ID = ID(time.Now().String()) }))
	}
	if got := b.count("memory.objection"); got < 3 {
		t.Errorf("%d objections", got)
	}
	b.event("memory.report_contradicts_driver", "liar")
	holder := b.view().Cards[0].Holders[0]
	if !holder.Contradicted || holder.Charge != int64(8*gib+context0) {
		t.Errorf("it is charged by the driver: %+v", holder)
	}
}

func TestAForeignProcessThatTakesHalfTheCardIsSeenAndNotBudgeted(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	worker := b.worker("pack")
	worker.hold("old", 2*gib)
	b.machine.change(func() { b.machine.foreign["GPU-0000"] = 12 * gib })
	b.busy(worker)
	got := b.answered(worker.ask("1", 16*gib, nil))
	if got.Verdict != memory.Short || got.Lease > 12*gib {
		t.Errorf("got %+v", got)
	}
	if card := b.view().Cards[0]; card.Unattributed != int64(12*gib) {
		t.Errorf("held by nobody we know: %d", card.Unattributed)
	}
}

func TestWithoutADriverTheProcessesOwnReadingsCount(t *testing.T) {
	b := start(t, newMachine(), func(c *Config) { c.OpenCards = nil })
	worker, other := b.worker("pack"), b.worker("other")
	worker.name, other.name = Device{"cuda:0", ""}, Device{"cuda:0", ""}
	b.busy(worker)
	read := func(free memory.Bytes) func(*Lease) {
		return func(l *Lease) { l.OwnFree, l.OwnTotal = free, 24*gib }
	}
	if got := b.answered(worker.ask("1", 10*gib, read(23*gib))); got.Verdict != memory.Granted {
		t.Fatalf("got %+v", got)
	}
	b.busy(other)
	answers := other.ask("2", 14*gib, read(23*gib)) // nothing is loaded yet, but promised
	b.event("memory.waiting", "other")
	if card := b.view().Cards[0]; card.Source != string(memory.FromWorker) || card.Device != "cuda:0" {
		t.Errorf("%+v", card)
	}
	b.keeper.Finished(worker.party, Finished{ID: "1"})
	b.idle(worker)
	if got := b.answered(answers); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
}

func TestWithoutAnyReadingALoadGoesOnAndIsBookedAsForced(t *testing.T) {
	b := start(t, newMachine(), func(c *Config) {
		c.OpenCards = func(context.Context) (Cards, error) { return nil, errors.New("no library") }
		c.Rules.ReadWait = 10 * time.Millisecond
	})
	worker := b.worker("pack")
	worker.name = Device{"cuda:0", ""}
	b.busy(worker)
	if got := b.answered(worker.ask("1", 10*gib, nil)); got.Verdict != memory.Forced || got.Cause != memory.CauseNoReading {
		t.Errorf("got %+v", got)
	}
	if got := b.view().CardsError; got != "no library" {
		t.Errorf("%q", got)
	}
}

func TestADriverThatFailsMidwayIsReplacedByTheBooksUntilItAnswersAgain(t *testing.T) {
	for name, failure := range map[string]error{"fails": errors.New("NVML: unknown error"), "hangs": &probe.HangError{After: time.Second}} {
		t.Run(name, func(t *testing.T) {
			b := start(t, newMachine(24*gib), func(c *Config) { c.Rules.ReadWait = 10 * time.Millisecond })
			worker := b.worker("pack")
			worker.hold("model", 4*gib)
			b.busy(worker)
			b.answered(worker.ask("0", gib, nil))
			b.machine.change(func() { b.machine.fails = failure })
			b.keeper.post(func() { b.keeper.read(func() {}) })
			b.event("memory.cards_unreadable", "")
			answers := worker.ask("1", 25*gib, nil) // needs a fresh picture
			got := b.answered(answers)
			if got.Verdict == "" || b.view().CardsError == "" {
				t.Errorf("got %+v", got)
			}
			b.machine.change(func() { b.machine.fails = nil })
			b.answered(worker.ask("2", gib, nil))
			b.event("memory.cards_read_again", "")
			if card := b.view().Cards[0]; card.Source != string(memory.FromDriver) {
				t.Errorf("%+v", card)
			}
		})
	}
}

func TestACardThatFallsOffIsShownAndComesBack(t *testing.T) {
	b := start(t, newMachine(24*gib, 8*gib), nil)
	worker := b.worker("pack")
	b.busy(worker)
	b.machine.change(func() { b.machine.cards[1].Err = errors.New("GPU is lost") })
	b.answered(worker.ask("1", gib, nil)) // the other card works
	b.event("memory.card_lost", "")
	if got := b.view().Cards[1].Error; got != "GPU is lost" {
		t.Errorf("%q", got)
	}
	b.machine.change(func() { b.machine.cards[1].Err = nil })
	b.answered(worker.ask("2", gib, nil))
	b.event("memory.card_back", "")
	if got := b.view().Cards[1].Error; got != "" {
		t.Errorf("%q", got)
	}
}

// contend has one worker hold 16 of 24 GiB, as "1", and another wait for 10, as "2".
func contend(t *testing.T) (b *bench, holds, waits *double, answers chan LeaseAnswer) {
	b = start(t, newMachine(24*gib), nil)
	holds, waits = b.worker("holds"), b.worker("waits")
	b.busy(holds)
	b.busy(waits)
	b.answered(holds.ask("1", 16*gib, nil))
	answers = waits.ask("2", 10*gib, nil)
	b.event("memory.waiting", "waits")
	return b, holds, waits, answers
}

func TestALeaseThatIsAskedForAgainAnswersEveryRequest(t *testing.T) {
	b, holds, waits, first := contend(t)
	second := waits.ask("2", 10*gib, nil)
	b.view()
	b.keeper.Finished(holds.party, Finished{ID: "1"})
	if one, two := b.answered(first), b.answered(second); one.Verdict != memory.Granted || one.Lease != two.Lease {
		t.Errorf("got %+v and %+v", one, two)
	}
	if leases := b.view().Cards[0].Leases; len(leases) != 1 {
		t.Errorf("%+v", leases)
	}
	if again := b.answered(waits.ask("2", 10*gib, nil)); again.Verdict != memory.Granted {
		t.Errorf("asked after the answer: %+v", again)
	}
}

func TestALoadThatNoLongerWaitsGoesOnAndIsBooked(t *testing.T) {
	b, _, waits, answers := contend(t)
	b.keeper.Withdraw(waits.party, "2")
	card := b.view().Cards[0]
	if len(card.Waiting) != 0 || len(card.Leases) != 2 || !card.Leases[1].Forced {
		t.Errorf("%+v", card)
	}
	limited := waits.ask("3", 16*gib, func(l *Lease) { l.WaitMS = 20 })
	if got := b.answered(limited); got.Verdict != memory.Forced || got.Cause != memory.CauseDeadline {
		t.Errorf("got %+v", got)
	}
	select {
	case got := <-answers:
		t.Errorf("what was withdrawn was answered: %+v", got)
	default:
	}
}

func TestALeaseOfAnEarlierSupervisorIsKeptAsOneThatMayNotFit(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	device := Device{"cuda:0", b.machine.cards[0].PCI}
	computing := func(environment string, generation uint64, answer censusAnswer) *double {
		return b.join(memory.Party{Session: "operator", Environment: environment, Generation: generation}, func(m *Member) {
			m.Adopted = true
			m.Line.(*double).serve = func(method string, _ json.RawMessage) (any, error) {
				switch method {
				case MethodAskCensus:
					return answer, nil
				case api.MethodPing:
					return map[string]any{"lane_busy": true, "depth": 1}, nil
				}
				return nil, nil
			}
		})
	}
	b.machine.take(101, "GPU-0000", 6*gib)
	said := Census{Sequence: 7, Devices: []DeviceCensus{{DeviceCensus: memory.DeviceCensus{Device: "cuda:0", Held: 6 * gib, Context: true}}}}
	adopted := computing("old", 3, censusAnswer{Census: &said, Leases: []livingLease{{ID: "9", Device: device, Bytes: 10 * gib}}})
	b.keeper.post(func() { b.keeper.askCensus(b.keeper.members[adopted.party]) }) // and once more, which changes nothing
	b.event("memory.lease_restored", "old")
	card := b.view().Cards[0]
	if len(card.Leases) != 1 || !card.Leases[0].Forced || card.Promised != int64(10*gib) {
		t.Errorf("%+v", card)
	}
	b.machine.take(102, "GPU-0000", 3*gib)
	working := computing("working", 1, censusAnswer{Leases: []livingLease{{ID: "1", Device: device, Bytes: 5 * gib, Working: true}}})
	b.event("memory.lease_restored", "working")
	if card := b.view().Cards[0]; card.Promised != int64(12*gib) { // 10 and what is still to come of 5
		t.Errorf("%+v", card)
	}
	b.keeper.Finished(working.party, Finished{ID: "1"})
	b.keeper.Finished(adopted.party, Finished{ID: "9"})
	if card := b.view().Cards[0]; len(card.Leases) != 0 {
		t.Errorf("%+v", card.Leases)
	}
}

func TestWhatComputingTookIsAdviceToTheNextSupervisor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "estimates.json")
	for run := range 2 {
		b := start(t, newMachine(24*gib), func(c *Config) { c.File = file })
		worker := b.worker("pack")
		worker.census()
		b.busy(worker)
		got := b.answered(worker.ask("1", gib, nil))
		if want := memory.Bytes(run) * 3 * gib; got.Advice != want {
			t.Errorf("run %d: advice %s, want %s", run, got.Advice, want)
		}
		b.keeper.Finished(worker.party, Finished{ID: "1", Peak: 3 * gib})
		worker.extra = func(c *Census) { c.Attention = memory.Attention{Name: "flash", Compact: true} }
		worker.census()
		if other := b.answered(worker.ask("2", gib, nil)); other.Advice != 0 {
			t.Errorf("what was measured under another attention backend was mixed in: %s", other.Advice)
		}
		b.stop()
	}
}

func TestAnotherAttentionBackendThanTheHostsIsSaid(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	host := b.join(memory.Host("a"), nil)
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.census()
	host.extra = func(c *Census) { c.Attention = memory.Attention{Name: "flash", Compact: true} }
	host.census()
	event := b.event("memory.attention_differs", "pack")
	if want := "attention pytorch here, flash in the host: activation estimates are 7.50 times the host's"; event.Cause != want {
		t.Errorf("%q", event.Cause)
	}
	remarks := findParty(b.view(), "pack").Memory.Remarks
	if len(remarks) != 1 || remarks[0] != event.Cause {
		t.Errorf("%v", remarks)
	}
}

func findParty(budget api.Budget, environment string) *api.BudgetParty {
	for i := range budget.Parties {
		if budget.Parties[i].Environment == environment {
			return &budget.Parties[i]
		}
	}
	return &api.BudgetParty{}
}
