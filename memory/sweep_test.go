package memory

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func worker(name string, phase Phase, idle time.Duration, held Bytes) WorkerState {
	return WorkerState{
		Party: Party{"s", name, 1}, Phase: phase, IdleSince: noon.Add(-idle), PromptOver: true,
		Held: []Holding{{"card", held}},
	}
}

func kinds(plan Plan) (found []string) {
	for _, action := range plan.Actions {
		found = append(found, fmt.Sprintf("%s %s %s", action.Kind, action.Party.Environment, action.Cause))
	}
	return found
}

func TestASweepReleasesTheIdleAndReapsTheForgotten(t *testing.T) {
	needed := worker("needed", Released, time.Hour, 0)
	needed.StandIns = 1
	asked := worker("asked", Ready, 90*time.Second, GiB)
	asked.AskedAt = noon.Add(-10 * time.Second)
	unanswered := worker("unanswered", Ready, 90*time.Second, GiB)
	unanswered.AskedAt = noon.Add(-30 * time.Second)
	workers := []WorkerState{
		worker("fresh", Ready, 59*time.Second, GiB),
		worker("idle", Ready, 60*time.Second, GiB),
		worker("released", Released, 29*time.Minute, 0),
		worker("forgotten", Released, 30*time.Minute, 0),
		worker("computing", Busy, 2*time.Hour, GiB),
		worker("starting", Starting, 2*time.Hour, 0),
		worker("stopping", Stopping, 2*time.Hour, GiB),
		worker("dead", Gone, 2*time.Hour, GiB),
		needed, asked, unanswered,
	}
	plan := Sweep(noon, workers, DefaultLimits(), nil)
	want := "[full_release idle idle reap forgotten idle_long full_release unanswered idle]"
	if got := fmt.Sprint(kinds(plan)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if want := noon.Add(time.Second); !plan.Next.Equal(want) {
		t.Errorf("the next clock ends at %v, want %v (the fresh worker's)", plan.Next, want)
	}
	if got, want := plan.Actions[0].String(), "full_release of s/idle#1, because idle: idle 1m0s, limit 1m0s, held 1.00 GiB"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestZeroSwitchesAClockOff(t *testing.T) {
	workers := []WorkerState{worker("idle", Ready, 24*time.Hour, GiB)}
	limits := DefaultLimits()
	limits.Reap = 0
	if got := fmt.Sprint(kinds(Sweep(noon, workers, limits, nil))); got != "[full_release idle idle]" {
		t.Errorf("without reaping: %s", got)
	}
	limits.IdleRelease = 0
	if plan := Sweep(noon, workers, limits, nil); len(plan.Actions) != 0 || !plan.Next.IsZero() {
		t.Errorf("without clocks: %s, next %v", plan, plan.Next)
	}
}

func TestATightCardTakesFromWorkersWhosePromptIsOverAndNoMoreThanItLacks(t *testing.T) {
	limits := DefaultLimits()
	running := worker("running", Ready, 50*time.Second, 6*GiB)
	running.PromptOver = false
	elsewhere := worker("elsewhere", Ready, 55*time.Second, 6*GiB)
	elsewhere.Held[0].Device = "other card"
	workers := []WorkerState{
		worker("young", Ready, 5*time.Second, 4*GiB), running, elsewhere,
		worker("old", Ready, 40*time.Second, 2*GiB), worker("computing", Busy, 55*time.Second, 4*GiB),
	}
	card := CardState{Device: "card", Total: 24 * GiB, Free: 256 * MiB}
	if got := fmt.Sprint(kinds(Sweep(noon, workers, limits, []CardState{card}))); got != "[full_release old card_tight]" {
		t.Errorf("one is enough: %s", got)
	}
	card.Wanted = 3 * GiB
	if got := fmt.Sprint(kinds(Sweep(noon, workers, limits, []CardState{card}))); got != "[full_release old card_tight full_release young card_tight]" {
		t.Errorf("a lease holds more: %s", got)
	}
	workers[3].AskedAt = noon.Add(-time.Second)
	card.Wanted = 0
	if plan := Sweep(noon, workers, limits, []CardState{card}); len(plan.Actions) != 0 {
		t.Errorf("what was asked a second ago counts as coming: %s", plan)
	}
}

func TestMemoryThatNoReleaseMovesEndsTheProcess(t *testing.T) {
	stuck := worker("stuck", Released, 2*time.Minute, 4*GiB)
	held := worker("held by a handle", Released, 2*time.Minute, 4*GiB)
	held.Handles = 1
	workers := []WorkerState{stuck, held, worker("small", Released, 3*time.Minute, 512*MiB)}
	tight := []CardState{{Device: "card", Total: 24 * GiB, Free: 100 * MiB}}
	roomy := []CardState{{Device: "card", Total: 24 * GiB, Free: 10 * GiB}}
	limits := DefaultLimits()
	for _, test := range []struct {
		rule  EndStuck
		cards []CardState
		want  string
	}{
		{EndStuckNever, tight, "[]"},
		{EndStuckWhenTight, roomy, "[]"},
		{EndStuckWhenTight, tight, "[end_idle stuck stuck]"},
		{EndStuckAlways, roomy, "[end_idle stuck stuck]"},
	} {
		limits.EndStuck = test.rule
		if got := fmt.Sprint(kinds(Sweep(noon, workers, limits, test.cards))); got != test.want {
			t.Errorf("%s with %v free: %s, want %s", test.rule, test.cards[0].Free, got, test.want)
		}
	}
}

func TestAClockThatJumpsBackMakesNobodyIdle(t *testing.T) {
	workers := []WorkerState{worker("ahead", Ready, -time.Hour, GiB), {Party: Party{"s", "unknown", 1}, Phase: Ready}}
	if plan := Sweep(noon, workers, DefaultLimits(), nil); len(plan.Actions) != 0 {
		t.Errorf("released on a clock that jumped: %s", plan)
	}
}

// anyWorkers draws workers with every phase, times on both sides of now, and absurd reports.
func anyWorkers(t *rapid.T) []WorkerState {
	count := rapid.IntRange(0, 12).Draw(t, "workers")
	workers := make([]WorkerState, count)
	for i := range workers {
		workers[i] = WorkerState{
			Party:      Party{"s", fmt.Sprint("w", i), 1},
			Phase:      rapid.SampledFrom([]Phase{Starting, Ready, Busy, Released, Stopping, Gone}).Draw(t, "phase"),
			IdleSince:  noon.Add(-time.Duration(rapid.Int64Range(-int64(time.Hour), int64(2*time.Hour)).Draw(t, "idle"))),
			PromptOver: rapid.Bool().Draw(t, "over"),
			StandIns:   rapid.IntRange(-1, 2).Draw(t, "stand-ins"),
			Handles:    rapid.IntRange(-1, 2).Draw(t, "handles"),
			Held:       []Holding{{"card", Bytes(rapid.OneOf(rapid.Int64Range(-int64(GiB), int64(30*GiB)), rapid.Int64()).Draw(t, "held"))}},
		}
		if rapid.Bool().Draw(t, "asked") {
			workers[i].AskedAt = noon.Add(-time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Minute)).Draw(t, "asked at")))
		}
	}
	return workers
}

func TestASweepNeverTouchesWhatItMustNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := anyWorkers(t)
		card := CardState{Device: "card", Total: 24 * GiB,
			Free:   Bytes(rapid.Int64Range(-int64(GiB), int64(24*GiB)).Draw(t, "free")),
			Wanted: Bytes(rapid.Int64Range(0, int64(8*GiB)).Draw(t, "wanted"))}
		limits := DefaultLimits()
		plan := Sweep(noon, workers, limits, []CardState{card})
		byName := map[Party]*WorkerState{}
		for i := range workers {
			byName[workers[i].Party] = &workers[i]
		}
		left := addBytes(card.Free, -card.Wanted)
		for _, action := range plan.Actions {
			target := byName[action.Party]
			if target == nil {
				t.Fatalf("%s: nobody of that name", action)
			}
			delete(byName, action.Party) // a second action for the same worker finds nothing
			if !target.Phase.Idle() {
				t.Fatalf("%s, but it is %s", action, target.Phase)
			}
			if len(action.Terms) == 0 || action.Cause == "" {
				t.Fatalf("%s explains nothing", action)
			}
			switch action.Kind {
			case Reap:
				if target.StandIns > 0 || noon.Sub(target.IdleSince) < limits.Reap {
					t.Fatalf("%s, but it is needed or was idle for %v", action, noon.Sub(target.IdleSince))
				}
			case FullRelease:
				if target.Phase == Released {
					t.Fatalf("%s twice", action)
				}
				if action.Cause == CauseCardTight && (!target.PromptOver || left >= limits.TightFree) {
					t.Fatalf("%s, but its prompt runs or %s are left", action, left)
				}
			case EndIdle:
				if target.Handles > 0 || target.StandIns > 0 || !target.PromptOver {
					t.Fatalf("%s, but somebody needs it", action)
				}
			}
			left = addBytes(left, target.HeldOn("card"))
		}
	})
}

func TestLimitsThatContradictThemselvesAreNamed(t *testing.T) {
	if err := DefaultLimits().Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, limits := range []Limits{{IdleRelease: -1, EndStuck: EndStuckNever}, {EndStuck: "sometimes"}} {
		if limits.Check() == nil {
			t.Errorf("%+v passed", limits)
		}
	}
}

func TestSizesAreReadAsOperatorsWriteThem(t *testing.T) {
	for text, want := range map[string]Size{
		"8GiB": {Bytes: 8 * GiB}, " 512 MiB ": {Bytes: 512 * MiB}, "1.5GB": {Bytes: 1_500_000_000},
		"800000000": {Bytes: 800_000_000}, "40%": {Percent: 40}, "12.5 %": {Percent: 12.5}, "3B": {Bytes: 3},
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "0", "0%", "101%", "%", "8 apples", "NaN", "1e30GiB", "Inf%", "0.1B"} {
		if size, err := ParseSize(text); err == nil {
			t.Errorf("%q was read as %+v", text, size)
		}
	}
	if got := (Size{Percent: 40}).Of(10 * GiB); got != 4*GiB {
		t.Errorf("40%% of 10 GiB: %s", got)
	}
}

func TestBytesPrintInTheLargestUnitThatFits(t *testing.T) {
	for value, want := range map[Bytes]string{
		0: "0 B", 1023: "1023 B", GiB + GiB/2: "1.50 GiB", -3 * MiB: "-3.00 MiB", 2 * TiB: "2.00 TiB",
		math.MinInt64: "-8388608.00 TiB",
	} {
		if got := value.String(); got != want {
			t.Errorf("%d: %q, want %q", int64(value), got, want)
		}
	}
}

func BenchmarkSweep(b *testing.B) {
	for _, count := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			workers := make([]WorkerState, count)
			for i := range workers {
				phase := []Phase{Ready, Ready, Busy, Released}[random.IntN(4)]
				workers[i] = worker(fmt.Sprint("environment-", i), phase, time.Duration(random.Int64N(int64(40*time.Minute))), Bytes(random.Int64N(int64(GiB))))
			}
			cards := []CardState{{Device: "card", Total: 80 * GiB, Free: 0, Wanted: 40 * GiB}}
			b.ReportAllocs()
			for b.Loop() {
				Sweep(noon, workers, DefaultLimits(), cards)
			}
		})
	}
}
