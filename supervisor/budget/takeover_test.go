package budget

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// adopt makes a worker of an earlier supervisor known, which computes. It answers the question for its leases with what told returns.
func (b *bench) adopt(environment string, told func() (any, error)) *double {
	b.t.Helper()
	return b.join(memory.Party{Session: "operator", Environment: environment, Generation: 1}, func(m *Member) {
		m.Adopted = true
		m.Line.(*double).serve = func(method string, _ json.RawMessage) (any, error) {
			switch method {
			case MethodAskCensus:
				return told()
			case api.MethodPing:
				return map[string]any{"lane_busy": true, "depth": 1}, nil
			}
			return nil, nil
		}
	})
}

// mostly is the configuration of a Keeper that waits for adopted workers without end.
func mostly(c *Config) { c.TakeOver = time.Hour }

func TestLoadsWaitUntilEveryAdoptedWorkerHasToldWhatItWasGranted(t *testing.T) {
	b := start(t, newMachine(24*gib), mostly)
	tells := make(chan struct{})
	device := Device{"cuda:0", b.machine.cards[0].PCI}
	loads := b.adopt("loads", func() (any, error) {
		<-tells
		return censusAnswer{Leases: []livingLease{{ID: "1", Device: device, Bytes: 16 * gib}}}, nil
	})
	again, later := b.adopt("again", func() (any, error) { return censusAnswer{}, nil }), b.worker("later")
	b.busy(again)
	b.busy(later)
	first := again.ask("2", 10*gib, nil)
	b.event("memory.kept_back", "again")
	b.await("its own leases", func() (told bool) {
		b.mu.Unlock()
		defer b.mu.Lock()
		b.keeper.inside(context.Background(), func() { told = len(b.keeper.takeover.unheard) == 1 })
		return told
	})
	second := later.ask("3", 10*gib, nil)
	kept := b.event("memory.kept_back", "later")
	if text := TermsOf(&kept).String(); kept.Cause != "adopted_unheard" || !slices.Contains(TermsOf(&kept), memory.Fact("one of them", loads.party.String())) {
		t.Errorf("%s: %s", kept.Cause, text)
	}
	card := b.view().Cards[0]
	if len(card.Waiting) != 2 || card.Waiting[0].Environment != "again" || len(card.Leases) != 0 {
		t.Errorf("while a lease is unknown: %+v", card)
	}
	close(tells)
	b.event("memory.lease_restored", "loads")
	waiting := b.event("memory.waiting", "again")
	if !slices.ContainsFunc(TermsOf(&waiting), func(term memory.Term) bool { return term.Name == "kept back" }) {
		t.Errorf("the wait does not tell that it was kept back: %s", TermsOf(&waiting))
	}
	b.event("memory.waiting", "later")
	if card = b.view().Cards[0]; card.Promised != int64(16*gib) || len(card.Waiting) != 2 || card.Waiting[0].Environment != "again" {
		t.Errorf("with the lease: %+v", card)
	}
	b.keeper.Finished(loads.party, Finished{ID: "1"})
	if got := b.answered(first); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	if got := b.answered(second); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var order []string
	for _, event := range b.events {
		if event.Kind == "memory.answered" {
			order = append(order, event.Environment)
		}
	}
	if !slices.Equal(order, []string{"again", "later"}) {
		t.Errorf("answered in the order %v", order)
	}
}

func TestAWorkerThatIsExpectedHoldsLoadsUpBeforeItIsThere(t *testing.T) {
	b := start(t, newMachine(24*gib), mostly)
	for _, come := range []bool{false, true} {
		party := memory.Party{Session: "operator", Environment: "expected", Generation: 1}
		never := b.keeper.Expect(party)
		asks := b.worker(map[bool]string{false: "before", true: "after"}[come])
		b.busy(asks)
		answer := asks.ask("1", gib, nil)
		b.event("memory.kept_back", asks.party.Environment)
		if !come {
			never()
		} else {
			b.adopt("expected", func() (any, error) { return censusAnswer{}, nil })
			never() // of another record for the same place
		}
		if got := b.answered(answer); got.Verdict != memory.Granted {
			t.Errorf("came %t: got %+v", come, got)
		}
	}
}

func TestAdoptedWorkersThatCannotTellHoldNobodyUp(t *testing.T) {
	for name, told := range map[string]error{"serves no such question": errUnknown, "is silent, and ends": errNoAnswer} {
		t.Run(name, func(t *testing.T) {
			b := start(t, newMachine(24*gib), mostly)
			expects := b.keeper.Expect(memory.Party{Session: "operator", Environment: "adopted", Generation: 1})
			defer expects()
			asks := b.worker("asks")
			b.busy(asks)
			answer := asks.ask("1", gib, nil)
			b.event("memory.kept_back", "asks")
			adopted := b.adopt("adopted", func() (any, error) { return nil, told })
			if adopted.heard(MethodAskCensus, 1); told == errNoAnswer {
				b.keeper.Gone(adopted.party)
			}
			if got := b.answered(answer); got.Verdict != memory.Granted {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestASilentAdoptedWorkerHoldsLoadsUpForALimitedTime(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.TakeOver = 20 * time.Millisecond })
	b.adopt("silent", func() (any, error) { return nil, errNoAnswer })
	asks := b.worker("asks")
	b.busy(asks)
	if got := b.answered(asks.ask("1", gib, nil)); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	b.event("memory.adopted_unheard", "silent")
}

func TestALoadIsKeptBackNoLongerThanItsProcessWaits(t *testing.T) {
	b := start(t, newMachine(24*gib), mostly)
	b.adopt("silent", func() (any, error) { return nil, errNoAnswer })
	asks := b.worker("asks")
	b.busy(asks)
	if got := b.answered(asks.ask("1", gib, func(l *Lease) { l.WaitMS = 30 })); got.Verdict != memory.Granted || got.WaitedMS == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestALoadThatIsWithdrawnWhileItIsKeptBackLeavesNothingBehind(t *testing.T) {
	b := start(t, newMachine(24*gib), mostly)
	silent := b.adopt("silent", func() (any, error) { return nil, errNoAnswer })
	asks := b.worker("asks")
	b.busy(asks)
	answer := asks.ask("1", gib, nil)
	b.event("memory.kept_back", "asks")
	b.keeper.Withdraw(asks.party, "1")
	b.keeper.Gone(silent.party)
	b.event("memory.answered", "asks")
	if card := b.view().Cards[0]; len(card.Leases) != 1 || len(card.Waiting) != 0 {
		t.Errorf("%+v", card)
	}
	b.idle(asks)
	b.event("memory.lease_ended", "asks")
	b.keeper.inside(context.Background(), func() {
		if len(b.keeper.asks) != 0 {
			t.Errorf("%d asks are kept after the call's end", len(b.keeper.asks))
		}
	})
	select {
	case got := <-answer:
		t.Errorf("what was withdrawn was answered: %+v", got)
	default:
	}
}

// gatedCards shows the cards while its gate is open.
type gatedCards struct {
	*machine
	reads chan chan struct{}
}

// Read waits for the gate.
func (g *gatedCards) Read(ctx context.Context) ([]probe.Card, error) {
	open := make(chan struct{})
	select {
	case g.reads <- open:
		<-open
	case <-ctx.Done():
	}
	return g.machine.Read(ctx)
}

func TestALeaseWhoseComputationEndsWhileTheCardIsReadIsNotRestored(t *testing.T) {
	m := newMachine(24 * gib)
	gated := &gatedCards{m, make(chan chan struct{})}
	b := start(t, m, func(c *Config) {
		mostly(c)
		c.OpenCards = func(context.Context) (Cards, error) { return gated, nil }
	})
	close(<-gated.reads) // the look at the beginning
	sweep := <-gated.reads
	b.keeper.Expect(memory.Party{Session: "operator", Environment: "ends", Generation: 1})
	ends := b.adopt("ends", func() (any, error) {
		return censusAnswer{Leases: []livingLease{{ID: "1", Device: Device{"cuda:0", m.cards[0].PCI}, Bytes: 16 * gib}}}, nil
	})
	ends.heard(MethodAskCensus, 1)
	b.await("its answer", func() (has bool) {
		b.mu.Unlock()
		defer b.mu.Lock()
		b.keeper.inside(context.Background(), func() { has = len(b.keeper.asks) == 1 })
		return has
	})
	b.keeper.Finished(ends.party, Finished{ID: "1"})
	asks := b.worker("asks")
	b.busy(asks)
	answer := asks.ask("1", 16*gib, nil)
	done := make(chan struct{})
	defer close(done)
	close(sweep)
	go func() {
		for {
			select {
			case open := <-gated.reads:
				close(open)
			case <-done:
				return
			}
		}
	}()
	if got := b.answered(answer); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	if b.count("memory.lease_restored") != 0 {
		t.Error("the lease of a computation that is over was restored")
	}
}

func TestWhyShowsThatALoadWasKeptBack(t *testing.T) {
	event := func(sequence uint64, kind, environment, cause string) api.Event {
		return api.Event{Sequence: sequence, Kind: kind, Session: "s", Environment: environment, Generation: 1, Cause: cause}
	}
	chains := Chains([]api.Event{
		event(1, "memory.kept_back", "asks", "adopted_unheard"), event(2, "memory.answered", "asks", memory.CauseFits), // an earlier load
		event(3, "memory.kept_back", "asks", "adopted_unheard"), event(4, "memory.waiting", "asks", "short_of_memory"),
		event(5, "memory.asked_release", "idle", "ask s/asks#1/7"), event(6, "memory.receipt", "idle", ""), event(7, "memory.answered", "asks", memory.CauseFits),
	}, "idle")
	var sequences []uint64
	for _, event := range chains[0] {
		sequences = append(sequences, event.Sequence)
	}
	if !slices.Equal(sequences, []uint64{3, 4, 5, 6, 7}) {
		t.Errorf("the chain is %v", sequences)
	}
}
