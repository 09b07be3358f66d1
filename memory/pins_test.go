package memory

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyPinners draws processes with caps in force whose sum is within what the budget would be.
func anyPinners(t *rapid.T) []Pinner {
	var pinners []Pinner
	amount := func(name string, most Bytes) Bytes { return Bytes(rapid.Int64Range(0, int64(most)).Draw(t, name)) }
	for i := range rapid.IntRange(1, 3).Draw(t, "hosts") {
		pinners = append(pinners, Pinner{Party: Host(fmt.Sprint("h", i)), Ceiling: float64(amount("ceiling", 200*GiB)) - float64(GiB)})
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "workers") {
		pinners = append(pinners, Pinner{Party: Party{"h0", fmt.Sprint("w", i), 1}, Live: rapid.Bool().Draw(t, "live")})
	}
	room := PinBudget(pinners, PinRAM{})
	for i := range pinners {
		pinner := &pinners[i]
		pinner.InForce = amount("in force", room)
		room -= pinner.InForce
		pinner.Pinned = amount("pinned", 2*pinner.InForce+GiB)
		pinner.LargestModel = amount("largest", 40*GiB)
		pinner.Stable = rapid.IntRange(0, 3).Draw(t, "stable")
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			pinner.Limit = amount("limit", 20*GiB)
		}
	}
	return pinners
}

func TestTheSumOfPinCapsNeverExceedsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pinners := anyPinners(t)
		plan := SplitPins(pinners, PinRAM{})
		sum := Bytes(0)
		set := map[Party]PinCap{}
		for _, cap := range plan.Set {
			if cap.Bytes <= 0 && cap.Cause != CausePinNone {
				t.Fatalf("%s would leak its pins: %+v", cap.Party, cap)
			}
			set[cap.Party] = cap
		}
		for i := range pinners { // a cap that shrinks is in force until the process says so
			sum += max(pinners[i].most(), set[pinners[i].Party].Bytes)
			if limit := pinners[i].Limit; limit > 0 && set[pinners[i].Party].Bytes > limit {
				t.Fatalf("%s got %s above the operator's %s", pinners[i].Party, set[pinners[i].Party].Bytes, limit)
			}
		}
		if plan.Budget == 0 && len(plan.Set) > 0 {
			t.Fatalf("nobody pins, and still: %+v", plan.Set)
		}
		if plan.Budget > 0 && sum > plan.Budget {
			t.Fatalf("%s promised of %s", sum, plan.Budget)
		}
	})
}

func TestPinCapsKeepTheirOrderOfPrecedence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pinners := anyPinners(t)
		budget := PinBudget(pinners, PinRAM{})
		if budget <= Bytes(len(pinners))*smallestCap*32 {
			return
		}
		spare := sparePins(budget)
		caps := desiredCaps(pinners, budget)
		most := func(i int) Bytes {
			most := budget - spare
			if limit := pinners[i].Limit; limit > 0 {
				most = min(most, limit)
			}
			if ceiling := pinners[i].Ceiling; ceiling > 0 {
				most = min(most, Bytes(ceiling))
			}
			return most
		}
		var sum, held, largest, floors Bytes
		for i := range pinners {
			sum += caps[i]
			held += max(smallestCap, min(most(i), pinners[i].Pinned))
			largest += max(smallestCap, min(most(i), max(pinners[i].Pinned, pinners[i].LargestModel)))
			floors += max(smallestCap, min(most(i), max(pinners[i].Pinned, pinners[i].LargestModel, PinFloor)))
		}
		if sum > budget-spare {
			t.Fatalf("%s of %s", sum, budget-spare)
		}
		for i := range pinners {
			switch {
			case caps[i] < min(smallestCap, most(i)):
				t.Fatalf("%s has %s", pinners[i].Party, caps[i])
			case held <= budget-spare && caps[i] < min(most(i), pinners[i].Pinned):
				t.Fatalf("%s has %s and holds %s, though all fits", pinners[i].Party, caps[i], pinners[i].Pinned)
			case largest <= budget-spare && caps[i] < min(most(i), pinners[i].LargestModel):
				t.Fatalf("%s has %s for a model of %s, though all fits", pinners[i].Party, caps[i], pinners[i].LargestModel)
			case floors <= budget-spare && caps[i] < min(most(i), PinFloor):
				t.Fatalf("%s has %s, below the floor, though all fits", pinners[i].Party, caps[i])
			}
		}
	})
}

// pinWorld plays processes that obey their caps, late and with lost messages.
type pinWorld struct {
	pinners []Pinner
	above   map[Party]int
}

func TestWhatIsPinnedAboveACapIsGoneWithinThreeSweepsAndCapsInForceNeverExceedTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := pinWorld{above: map[Party]int{}}
		world.pinners = append(world.pinners, Pinner{Party: Host("h"), Ceiling: float64(57 * GiB)})
		for step := range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				world.pinners = append(world.pinners, Pinner{Party: Party{"h", fmt.Sprint("w", step), 1}, Live: true})
			case 1:
				if last := len(world.pinners) - 1; last > 0 {
					world.pinners = append(world.pinners[:1], world.pinners[2:]...)
				}
			default:
				pinner := &world.pinners[rapid.IntRange(0, len(world.pinners)-1).Draw(t, "who")]
				pinner.Live = rapid.Bool().Draw(t, "live")
				if pinner.InForce > 0 {
					pinner.LargestModel = Bytes(rapid.Int64Range(0, int64(30*GiB)).Draw(t, "model"))
					pinner.Pinned = min(pinner.InForce, pinner.Pinned+pinner.LargestModel)
				}
			}
			world.sweep(t)
		}
	})
}

func (w *pinWorld) sweep(t *rapid.T) {
	plan := SplitPins(w.pinners, PinRAM{})
	find := func(party Party) *Pinner {
		for i := range w.pinners {
			if w.pinners[i].Party == party {
				return &w.pinners[i]
			}
		}
		return nil
	}
	for _, set := range plan.Set {
		pinner := find(set.Party)
		if set.Cause == CausePinNone {
			continue
		}
		pinner.Sent = set.Bytes
		if pinner.InForce == 0 { // a newcomer gets its cap with its first message
			pinner.InForce, pinner.Sent = set.Bytes, 0
		}
	}
	for i := range w.pinners {
		pinner := &w.pinners[i]
		if pinner.Sent > 0 && rapid.IntRange(0, 2).Draw(t, "acknowledged") > 0 {
			pinner.InForce, pinner.Sent = pinner.Sent, 0
		}
	}
	for _, release := range plan.Release {
		pinner := find(release.Party)
		pinner.Pinned -= min(pinner.Pinned, release.Bytes)
	}
	var sum Bytes
	for i := range w.pinners {
		pinner := &w.pinners[i]
		sum += pinner.most()
		pinner.Stable++
		pinner.Over = 0
		if pinner.InForce > 0 && pinner.Pinned > pinner.InForce {
			w.above[pinner.Party]++
			pinner.Over = w.above[pinner.Party]
		} else {
			w.above[pinner.Party] = 0
		}
		if w.above[pinner.Party] > ReclaimSweeps {
			t.Fatalf("%s holds %s above its cap of %s for %d sweeps", pinner.Party, pinner.Pinned, pinner.InForce, w.above[pinner.Party])
		}
	}
	if sum > plan.Budget {
		t.Fatalf("caps of %s are or may be in force, of %s", sum, plan.Budget)
	}
}

func capsOf(plan PinPlan) string {
	text := ""
	for _, set := range plan.Set {
		text += fmt.Sprintf("%s %s %s; ", set.Cause, set.Party, set.Bytes)
	}
	return text
}

func TestPinsAreSplitAndSplitAgainAsWorkersComeAndGo(t *testing.T) {
	budget := float64(64 * GiB) // two of which are kept for newcomers
	host := Pinner{Party: Host("h"), Ceiling: budget}
	alone := SplitPins([]Pinner{host}, PinRAM{})
	if got, want := capsOf(alone), "newcomer h/host 62.00 GiB; "; got != want {
		t.Errorf("a host alone: %s, want %s", got, want)
	}
	host.InForce = 62 * GiB
	worker := Pinner{Party: Party{"h", "w", 1}, Live: true}
	first := SplitPins([]Pinner{host, worker}, PinRAM{})
	if got, want := capsOf(first), "shrink h/host 31.00 GiB; newcomer h/w#1 2.00 GiB; "; got != want {
		t.Errorf("a worker comes: %s, want %s", got, want)
	}
	host.InForce, worker.InForce, worker.Stable = 31*GiB, 2*GiB, 1
	if got := capsOf(SplitPins([]Pinner{host, worker}, PinRAM{})); got != "" {
		t.Errorf("grew after one census: %s", got)
	}
	worker.Stable = 2
	if got, want := capsOf(SplitPins([]Pinner{host, worker}, PinRAM{})), "grow h/w#1 31.00 GiB; "; got != want {
		t.Errorf("after two censuses: %s, want %s", got, want)
	}
	worker.InForce, worker.Live, host.Stable = 31*GiB, false, 2
	if got, want := capsOf(SplitPins([]Pinner{host, worker}, PinRAM{})), "shrink h/w#1 2.00 GiB; "; got != want {
		t.Errorf("an idle worker: %s, want %s (the host grows once that is acknowledged)", got, want)
	}
	worker.Pinned = 10 * GiB
	if got, want := capsOf(SplitPins([]Pinner{host, worker}, PinRAM{})), "shrink h/w#1 10.00 GiB; "; got != want {
		t.Errorf("an idle worker that holds pins: %s, want %s", got, want)
	}
}

func TestWithoutAHostThatPinsThereAreNoCaps(t *testing.T) {
	plan := SplitPins([]Pinner{{Party: Host("h"), Ceiling: -1}, {Party: Party{"h", "w", 1}, Live: true}}, PinRAM{Limit: 64 * GiB})
	if plan.Budget != 0 || len(plan.Set) != 0 {
		t.Errorf("%+v", plan)
	}
}

func TestALimitOfTheContainerIsTheBudgetEvenWhenTheHostDoesNotSeeIt(t *testing.T) {
	pinners := []Pinner{{Party: Host("h"), Ceiling: float64(200 * GiB), InForce: 30 * GiB, Pinned: 30 * GiB}}
	plan := SplitPins(pinners, PinRAM{Limit: 16 * GiB})
	if want := 14 * GiB; plan.Budget != want {
		t.Errorf("budget %s, want %s", plan.Budget, want)
	}
	if len(plan.Release) != 1 || plan.Release[0].Bytes < 30*GiB-plan.Budget {
		t.Errorf("what is pinned above it is not asked back: %+v", plan.Release)
	}
	if got, want := PinBudget(pinners, PinRAM{Limit: 16 * GiB, Unpinned: 5*GiB + 1}), 9*GiB-smallestPinSlice; got != want {
		t.Errorf("beside 5 GiB that are not pinned: %s, want %s", got, want)
	}
	if got := PinBudget(pinners, PinRAM{Limit: 16 * GiB, Unpinned: 20 * GiB}); got <= 0 {
		t.Errorf("a container that is full already: %s, and every pin would leak", got)
	}
	pinners[0].Over = ReclaimSweeps
	if plan := SplitPins(pinners, PinRAM{Limit: 16 * GiB}); len(plan.Late) != 1 {
		t.Errorf("nobody says that it is late: %+v", plan)
	}
}

func TestPressureTakesPinsInProportion(t *testing.T) {
	pinners := []Pinner{{Party: Host("h"), Pinned: 24 * GiB}, {Party: Party{"h", "w", 1}, Pinned: 8 * GiB}, {Party: Party{"h", "tiny", 1}, Pinned: 100 * MiB}, {Party: Party{"h", "none", 1}}}
	ram := RAM{Total: 64 * GiB, Available: 0}
	plan := PinPressure(noon, time.Time{}, ram, pinners)
	var sum Bytes
	for _, action := range plan.Actions {
		sum += action.Bytes
		if action.Bytes < smallestPinSlice {
			t.Errorf("a slice of %s is not worth a message", action.Bytes)
		}
	}
	short := PinFloor + PinPressureHysteresis
	if sum < short || sum > short+Bytes(len(pinners))*smallestPinSlice {
		t.Errorf("%s asked for a shortage of %s", sum, short)
	}
	if len(plan.Actions) < 2 || plan.Actions[0].Bytes < 2*plan.Actions[1].Bytes {
		t.Errorf("not in proportion: %s", plan)
	}
	if plan := PinPressure(noon, noon.Add(-9*time.Second), ram, pinners); len(plan.Actions) != 0 || !plan.Next.Equal(noon.Add(time.Second)) {
		t.Errorf("asked again after nine seconds: %s", plan)
	}
	ram.Available = 30 * GiB
	if plan := PinPressure(noon, time.Time{}, ram, pinners); len(plan.Actions) != 0 {
		t.Errorf("no pressure: %s", plan)
	}
	ram.PressureKnown, ram.FullyStalled = true, 8
	if plan := PinPressure(noon, time.Time{}, ram, pinners); len(plan.Actions) == 0 || plan.Actions[0].Cause != "ram_stalls" {
		t.Errorf("the kernel stalls: %s", plan)
	}
}

func TestPressureIsNeverAskedOfWhoHasNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pinners []Pinner
		for i := range rapid.IntRange(0, 20).Draw(t, "count") {
			pinners = append(pinners, Pinner{Party: Party{"h", fmt.Sprint(i), 1}, Pinned: Bytes(rapid.Int64Range(-int64(GiB), int64(20*GiB)).Draw(t, "pinned"))})
		}
		ram := RAM{Total: 64 * GiB, Available: Bytes(rapid.Int64Range(-int64(GiB), int64(4*GiB)).Draw(t, "available"))}
		for _, action := range PinPressure(noon, time.Time{}, ram, pinners).Actions {
			for _, pinner := range pinners {
				if pinner.Party == action.Party && (action.Bytes <= 0 || action.Bytes > pinner.Pinned) {
					t.Fatalf("%s, which pins %s", action, pinner.Pinned)
				}
			}
		}
	})
}

func BenchmarkSplitPins(b *testing.B) {
	for _, count := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			pinners := []Pinner{{Party: Host("h"), Ceiling: float64(200 * GiB), InForce: 10 * GiB}}
			for i := range count {
				pinners = append(pinners, Pinner{Party: Party{"h", fmt.Sprint("w", i), 1}, Live: i%2 == 0, InForce: MiB, Pinned: Bytes(i) * MiB, LargestModel: 4 * GiB})
			}
			for b.Loop() {
				SplitPins(pinners, PinRAM{})
			}
		})
	}
}
