package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"pgregory.net/rapid"
)

// within is how much more than the oracle ours may evict, idle releases included.
const within = 1.2

func total(r Result) memory.Bytes { return r.Evicted + r.IdleReleased }

// whole is the number of prompts of a scenario.
func whole(scenario Scenario) (prompts int) {
	w := &world{scenario: scenario, clock: newClock(scenario.Seed)}
	for i, spec := range scenario.Sessions {
		prompts += len(w.newSession(i, spec).prompts)
	}
	return prompts
}

func TestTheStandardWorkloads(t *testing.T) {
	// what goes wrong without a coordinator, by workload; each must go right with ours
	trouble := map[string]func(Result) int{
		"burst":         func(r Result) int { return r.OutOfMemory },
		"two hosts":     func(r Result) int { return r.OutOfMemory },
		"RAM-tight":     func(r Result) int { return r.KilledForRAM },
		"process-local": func(r Result) int { return r.Slowed },
		"paged":         func(r Result) int { return r.OutOfMemory },
	}
	var results []Result
	for _, scenario := range Standard() {
		independent, ours, oracle := Run(scenario, Independent), Run(scenario, Coordinated), Run(scenario, Oracle)
		results = append(results, independent, ours, oracle)
		if measure := trouble[scenario.Name]; measure != nil && measure(independent) == 0 {
			t.Errorf("%s: nothing goes wrong without a coordinator, so the workload proves nothing", scenario.Name)
		}
		if ratio := float64(total(ours)) / float64(total(oracle)); ratio > within {
			t.Errorf("%s: %s evicted, %.2f times the oracle's %s", scenario.Name, total(ours), ratio, total(oracle))
		}
		if ours.PinsOver > 0 || ours.KilledForRAM > 0 || ours.PinsLate > 0 {
			t.Errorf("%s: the pinned budget was exceeded %d times, %d kills, %d late", scenario.Name, ours.PinsOver, ours.KilledForRAM, ours.PinsLate)
		}
		if scenario.Faults.WorkerLife > 0 {
			if ours.OutOfMemory > independent.OutOfMemory/20 || ours.Failed > 2*oracle.Failed {
				t.Errorf("%s: %v\nwithout a coordinator: %v\nthe oracle: %v", scenario.Name, ours, independent, oracle)
			}
			continue
		}
		if ours.OverAdmitted+ours.OutOfMemory+ours.Slowed+ours.Withdrawn+ours.Failed > 0 || ours.Overcommitted > 0 {
			t.Errorf("%s: something went wrong though nothing fails: %v", scenario.Name, ours)
		}
		if prompts := whole(scenario); ours.Prompts != prompts {
			t.Errorf("%s: %d of %d prompts succeeded", scenario.Name, ours.Prompts, prompts)
		}
	}
	var table strings.Builder
	if err := WriteTable(&table, results); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	for _, scenario := range Standard() {
		scenario.Duration = 30 * time.Minute
		for _, mode := range []Mode{Independent, Coordinated, Oracle} {
			first, again := Run(scenario, mode), Run(scenario, mode)
			if first.Trace != again.Trace || first.Events != again.Events || total(first) != total(again) {
				t.Errorf("%s, %s: two runs differ: %d events and %x, %d events and %x", scenario.Name, mode, first.Events, first.Trace, again.Events, again.Trace)
			}
			other := scenario
			other.Seed++
			if Run(other, mode).Trace == first.Trace {
				t.Errorf("%s, %s: another seed gives the same run", scenario.Name, mode)
			}
		}
	}
}

func TestWhateverCanBeReadOfTheCardNothingIsPromisedTwice(t *testing.T) {
	for _, driver := range []Driver{DriverAttributed, DriverWhole, DriverMissing, DriverUnreadable} {
		for _, scenario := range Standard()[:3] {
			scenario.Duration = time.Hour
			scenario.Faults.Driver = driver
			if r := Run(scenario, Coordinated); r.OverAdmitted+r.OutOfMemory+r.Failed > 0 || r.Prompts != whole(scenario) {
				t.Errorf("%s, driver %q: %v", scenario.Name, driver, r)
			}
		}
	}
}

func TestAForeignProcessThatTakesHalfTheCardIsLivedWith(t *testing.T) {
	scenario := Standard()[0]
	scenario.Duration = 2 * time.Hour
	scenario.Faults.Foreign = []Foreign{{Card: 0, From: 30 * time.Minute, Till: 70 * time.Minute, Bytes: 12 * memory.GiB}}
	// it comes between two computations, so what it takes is free then
	r := Run(scenario, Coordinated)
	if r.Prompts+r.Failed != whole(scenario) || r.Failed > 3 {
		t.Errorf("%v", r)
	}
	if r.Short == 0 {
		t.Errorf("loads larger than what is left were not cut short: %v", r)
	}
}

// anyFaults draws what goes wrong.
func anyFaults(t *rapid.T) Faults {
	share := func(name string, most float64) float64 {
		return rapid.Float64Range(0, most).Draw(t, name) * float64(rapid.IntRange(0, 1).Draw(t, name+" at all"))
	}
	life := func(name string, least time.Duration) time.Duration {
		if rapid.Bool().Draw(t, name+" at all") {
			return least + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, name))
		}
		return 0
	}
	return Faults{
		WorkerLife: life("worker life", time.Minute), HostLife: life("host life", 10*time.Minute),
		Lost: share("lost", 0.05), Late: share("late", 0.3), LateBy: 5 * time.Second, Skew: share("skew", 0.5), Silent: share("silent", 0.5),
		Driver: rapid.SampledFrom([]Driver{DriverAttributed, DriverWhole, DriverMissing, DriverUnreadable}).Draw(t, "driver"),
	}
}

func TestEveryAskIsAnsweredWhateverGoesWrong(t *testing.T) {
	scenarios := Standard()
	rapid.Check(t, func(t *rapid.T) {
		scenario := scenarios[rapid.IntRange(0, len(scenarios)-1).Draw(t, "workload")]
		scenario.Seed = rapid.Uint64().Draw(t, "seed")
		scenario.Duration = 10 * time.Minute
		scenario.Faults = anyFaults(t)
		scenario.Rules.AskWait = time.Minute // a lost message costs this
		r := Run(scenario, Coordinated)
		if prompts := whole(scenario); r.Prompts+r.Failed != prompts {
			t.Fatalf("%d of %d prompts came to an end: %v", r.Prompts+r.Failed, prompts, r)
		}
		if limit := scenario.Rules.AskWait + 6*time.Second; r.WaitMost > limit {
			t.Fatalf("somebody waited %v", r.WaitMost)
		}
		if r.PinsOver > 0 {
			t.Fatalf("the pinned budget was exceeded in %d sweeps", r.PinsOver)
		}
		if r.KilledForRAM > 0 {
			t.Fatalf("the kernel killed %d processes", r.KilledForRAM)
		}
		orderly := scenario.Faults.Lost == 0 && scenario.Faults.Late == 0 && scenario.Faults.Skew == 0
		readable := scenario.Faults.Driver == DriverAttributed || scenario.Faults.Driver == DriverWhole
		if orderly && readable && (r.OverAdmitted > 0 || r.OutOfMemory > r.ForcedOutOfMemory) {
			t.Fatalf("promised twice though every message arrived and the card was read: %v", r)
		}
	})
}

func TestACrowdOfThousandsIsPlayedInSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("a crowd takes some seconds")
	}
	scenario := Crowd()
	scenario.Duration = 30 * time.Minute
	start := time.Now()
	r := Run(scenario, Coordinated)
	t.Logf("%d processes, %d events, %s of virtual time in %s", r.Processes, r.Events, r.Elapsed.Round(time.Minute), time.Since(start).Round(time.Millisecond))
	if r.Processes < 2000 {
		t.Errorf("only %d processes lived", r.Processes)
	}
	if r.OverAdmitted+r.OutOfMemory > 0 || r.Prompts == 0 {
		t.Errorf("%v", r)
	}
}

func TestTheTableNamesEveryModeUnderItsWorkload(t *testing.T) {
	var table strings.Builder
	err := WriteTable(&table, []Result{{Scenario: "calm", Mode: Independent, Prompts: 7, WaitMean: 1500 * time.Microsecond}, {Scenario: "calm", Mode: Oracle}})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(table.String(), "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], "calm") || !strings.Contains(lines[2], "independent") || !strings.Contains(lines[2], "1.5ms") || !strings.Contains(lines[3], "oracle") {
		t.Errorf("%d lines:\n%s", len(lines), table.String())
	}
	if err := WriteTable(failingWriter{}, []Result{{Scenario: "calm"}}); err == nil {
		t.Error("a table that could not be written was not noticed")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }

func BenchmarkAVirtualHour(b *testing.B) {
	for _, scenario := range Standard()[:3] {
		scenario.Duration = time.Hour
		b.Run(strings.ReplaceAll(scenario.Name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				Run(scenario, Coordinated)
			}
		})
	}
}
