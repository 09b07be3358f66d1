package budget

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// orphaned makes a worker known that computes for an earlier supervisor while busy is true.
func (b *bench) orphaned(environment string, busy *atomic.Bool, change func(*Member)) *double {
	return b.join(memory.Party{Session: "operator", Environment: environment, Generation: 1}, func(m *Member) {
		m.Adopted = true
		m.Line.(*double).serve = func(method string, _ json.RawMessage) (any, error) {
			if method == api.MethodPing {
				return json.RawMessage(map[bool]string{
					true: `{"lane_busy":true,"depth":1,"current":{"node":"KSampler","seconds":7.5}}`, false: `{"lane_busy":false,"depth":0,"current":null}`,
				}[busy.Load()]), nil
			}
			return nil, nil
		}
		if change != nil {
			change(m)
		}
	})
}

func TestAnAdoptedWorkerThatComputesIsAskedForNothingBeforeItIsIdle(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.OrphanPause = time.Hour })
	var busy atomic.Bool
	busy.Store(true)
	orphan := b.orphaned("orphan", &busy, func(m *Member) { m.IdleRelease = time.Hour })
	orphan.hold("model", 16*gib)
	event := b.event("memory.orphan_computes", "orphan")
	if terms := TermsOf(&event); !slices.Contains(terms, memory.Fact("node", "KSampler")) || !slices.Contains(terms, memory.Span("for", 7500*time.Millisecond)) {
		t.Errorf("%s", terms)
	}
	b.idle(orphan) // no call of this supervisor runs
	if got := findParty(b.view(), "orphan").Phase; got != string(memory.Busy) {
		t.Errorf("it counts as %s", got)
	}
	asks := b.worker("asks")
	b.busy(asks)
	answer := asks.ask("1", 12*gib, nil)
	b.event("memory.waiting", "asks") // releases are asked in the same transaction
	if granted := b.keeper.Release(context.Background(), []Wish{{Party: orphan.party, Kind: memory.FullRelease}}); !granted[0].Busy {
		t.Errorf("an operator's wish: %+v", granted)
	}
	b.mu.Lock()
	if asked := orphan.hears[MethodRelease]; len(asked) != 0 {
		t.Errorf("it was asked for %s", asked)
	}
	b.mu.Unlock()
	busy.Store(false)
	before := time.Now()
	orphan.census() // at the end of its call
	b.event("memory.orphan_ended", "orphan")
	if got := b.answered(answer); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	orphan.heard(MethodRelease, 1)
	var since time.Time
	b.keeper.inside(context.Background(), func() {
		for _, worker := range b.keeper.books.Workers() {
			if worker.Party == orphan.party {
				since = worker.IdleSince
			}
		}
	})
	if since.Before(before) {
		t.Errorf("idle since %s, its call ended after %s", since, before)
	}
	if got := findParty(b.view(), "orphan").Phase; got != string(memory.Ready) {
		t.Errorf("it counts as %s", got)
	}
}

func TestAnAdoptedWorkerThatReportsNothingIsAskedAgainWhetherItComputes(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.OrphanPause = time.Millisecond })
	var busy atomic.Bool
	busy.Store(true)
	orphan := b.orphaned("orphan", &busy, nil)
	orphan.heard(api.MethodPing, 3)
	busy.Store(false)
	b.event("memory.orphan_ended", "orphan")
	if got := findParty(b.view(), "orphan").Phase; got != string(memory.Ready) {
		t.Errorf("it counts as %s", got)
	}
	if b.count("memory.orphan_computes") != 1 {
		t.Error("that it computes was not said once")
	}
}

// awaitPhase waits until a worker counts as being in a phase.
func (b *bench) awaitPhase(environment string, want memory.Phase) {
	b.t.Helper()
	b.await(environment+" to be "+string(want), func() bool {
		b.mu.Unlock()
		defer b.mu.Lock()
		return findParty(b.view(), environment).Phase == string(want)
	})
}

func TestACallOfThisSupervisorIsNotTakenForAnEarlierOnes(t *testing.T) {
	b := start(t, newMachine(24*gib), func(c *Config) { c.OrphanPause = time.Hour })
	var busy atomic.Bool
	busy.Store(true)
	called := make(chan struct{})
	worker := b.orphaned("worker", &busy, func(m *Member) {
		serve := m.Line.(*double).serve
		m.Line.(*double).serve = func(method string, params json.RawMessage) (any, error) {
			<-called
			return serve(method, params)
		}
	})
	b.busy(worker)
	b.awaitPhase("worker", memory.Busy)
	b.view()
	close(called)
	b.await("the answer while the call runs", func() (answered bool) {
		b.mu.Unlock()
		defer b.mu.Lock()
		b.keeper.inside(context.Background(), func() {
			o := b.keeper.takeover.orphans[b.keeper.members[worker.party]]
			answered = o == nil || o.heard && !o.asking
		})
		return answered
	})
	busy.Store(false)
	b.idle(worker) // which brings the next question
	b.awaitPhase("worker", memory.Ready)
	if b.count("memory.orphan_computes") != 0 {
		t.Error("a call of this supervisor was taken for an earlier one's")
	}
	b.busy(worker)
	b.awaitPhase("worker", memory.Busy)
	b.idle(worker)
	b.awaitPhase("worker", memory.Ready)
}

func TestALeaseThatAnIdleAdoptedWorkerStillNamesIsOver(t *testing.T) {
	b := start(t, newMachine(24*gib), mostly)
	tells := make(chan struct{})
	var busy atomic.Bool
	b.orphaned("idle", &busy, func(m *Member) {
		d := m.Line.(*double)
		serve := d.serve
		d.serve = func(method string, params json.RawMessage) (any, error) {
			if method != MethodAskCensus {
				return serve(method, params)
			}
			<-tells
			return censusAnswer{Leases: []livingLease{{ID: "1", Device: d.name, Bytes: 16 * gib}}}, nil
		}
	})
	asks := b.worker("asks")
	b.busy(asks)
	answer := asks.ask("1", 16*gib, nil)
	b.event("memory.kept_back", "asks")
	close(tells)
	if got := b.answered(answer); got.Verdict != memory.Granted {
		t.Errorf("got %+v", got)
	}
	b.awaitPhase("idle", memory.Ready)
}

func TestAnAdoptedWorkerWhoseLaneIsNotKnownIsWhereItsSupervisorSaysThatItIs(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	old := b.join(memory.Party{Session: "operator", Environment: "old", Generation: 1}, func(m *Member) { m.Adopted = true })
	old.heard(api.MethodPing, 1) // which it does not serve
	b.awaitPhase("old", memory.Ready)
}
