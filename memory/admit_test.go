package memory

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// bench drives books by hand: one card of 24 GiB that does what its leases and releases say.
type bench struct {
	*testing.T
	books   *Books
	now     time.Time
	free    Bytes
	answers map[string]Answer
	actions []Action
	events  []Event
	reads   int
	next    time.Time
}

func newBench(t *testing.T, free Bytes, parties ...Party) *bench {
	b := &bench{T: t, books: NewBooks(DefaultRules()), now: noon, free: free, answers: map[string]Answer{}}
	for _, party := range parties {
		b.books.Join(b.now, party)
		b.take(b.books.Phase(b.now, party, Ready, true))
	}
	b.read()
	return b
}

func (b *bench) take(out Outcome) {
	b.Helper()
	for _, answer := range out.Answers {
		if _, twice := b.answers[answer.Ask]; twice {
			b.Errorf("ask %s was answered twice", answer.Ask)
		}
		b.answers[answer.Ask] = answer
	}
	b.actions = append(b.actions, out.Actions...)
	b.events = append(b.events, out.Events...)
	b.reads += len(out.Read)
	b.next = out.Next
}

func (b *bench) read() {
	b.Helper()
	b.take(b.books.Reading(b.now, Reading{Device: "card", At: b.now, Source: FromDriver, Total: 24 * GiB, Free: b.free}))
}

// later moves the clock, ticks, and reads the card.
func (b *bench) later(d time.Duration) {
	b.Helper()
	b.now = b.now.Add(d)
	b.take(b.books.Tick(b.now))
	b.read()
}

// hold reports that a party holds bytes and takes them from the card.
func (b *bench) hold(party Party, sequence uint64, held Bytes) {
	b.Helper()
	b.take(b.books.Census(b.now, Census{Party: party, Sequence: sequence, Devices: []DeviceCensus{{Device: "card", Held: held, Overhead: 1}}}))
}

func (b *bench) busy(party Party) {
	b.Helper()
	b.take(b.books.Phase(b.now, party, Busy, false))
}

func (b *bench) ask(id string, party Party, weights Bytes) {
	b.Helper()
	b.take(b.books.Ask(b.now, Ask{ID: id, Party: party, Device: "card", Context: true, Load: Load{Weights: weights, Minimum: -1}}))
}

// answered is "verdict/cause" of an ask, or "waits".
func (b *bench) answered(id string) string {
	answer, ok := b.answers[id]
	if !ok {
		return "waits"
	}
	return string(answer.Verdict) + "/" + answer.Cause
}

func (b *bench) want(got, want string) {
	b.Helper()
	if got != want {
		b.Errorf("got %s, want %s", got, want)
	}
}

func (b *bench) asked() string {
	var lines []string
	for _, action := range b.actions {
		lines = append(lines, fmt.Sprintf("%s %s %s", action.Kind, action.Party, action.Bytes))
	}
	b.actions = nil
	return strings.Join(lines, "; ")
}

var (
	hostA, hostB     = Host("a"), Host("b")
	one, two, three  = Party{"a", "one", 1}, Party{"a", "two", 1}, Party{"a", "three", 1}
	foreignHostsWork = Party{"b", "other", 1}
)

func TestTwoLoadsThatAskAtOnceAreNotPromisedTheSameBytes(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	b.busy(one)
	b.busy(two)
	b.ask("1", one, 14*GiB)
	b.ask("2", two, 14*GiB)
	b.want(b.answered("1"), "granted/fits")
	b.want(b.answered("2"), "waits")
	// the first load ends, computes, and its call ends: then it can be asked
	b.free -= 14 * GiB
	b.hold(one, 1, 14*GiB)
	b.take(b.books.Resident(b.now, "1", -1))
	b.read()
	b.want(b.answered("2"), "waits")
	b.want(b.asked(), "")
	b.take(b.books.Phase(b.now, one, Ready, true))
	b.read()
	b.want(b.asked(), "partial_release a/one#1 6.45 GiB") // 15.4 + 0.8 - 10 and the slack
	b.free += 6*GiB + 512*MiB
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Device: "card", Freed: 6*GiB + 512*MiB, Held: 14*GiB - 6*GiB - 512*MiB}))
	b.want(b.answered("2"), "waits")
	b.read()
	b.want(b.answered("2"), "granted/fits")
	b.want(b.asked(), "")
}

func TestALeaseCoversTheComputationUntilTheCallEnds(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	b.busy(one)
	b.busy(two)
	b.take(b.books.Ask(b.now, Ask{ID: "1", Party: one, Device: "card", Context: true, Load: Load{Weights: 10 * GiB, Activation: float64(6 * GiB), Minimum: -1}}))
	b.want(b.answered("1"), "granted/fits")
	b.free -= 10 * GiB
	b.hold(one, 1, 10*GiB)
	b.take(b.books.Resident(b.now, "1", -1))
	b.read()
	// 14 GiB are free, 6 of them for the computation that has not begun
	b.ask("2", two, 7*GiB)
	b.want(b.answered("2"), "waits")
	b.take(b.books.Phase(b.now, one, Ready, false))
	b.read()
	b.want(b.answered("2"), "granted/fits")
}

func TestAnAskForMoreThanTheCardTakesWhatIsThere(t *testing.T) {
	b := newBench(t, 20*GiB, one)
	b.busy(one)
	b.ask("1", one, 40*GiB)
	b.want(b.answered("1"), "short/nothing_left")
	if lease := b.answers["1"].Lease; lease != 20*GiB {
		t.Errorf("the lease holds %s of the 20 GiB that are free", lease)
	}
}

func TestReleasesAreAskedInTheOrderOfTheirCost(t *testing.T) {
	b := newBench(t, 0, hostA, hostB, one, two, three, foreignHostsWork)
	b.take(b.books.Phase(b.now, two, Ready, false))
	b.take(b.books.Phase(b.now, foreignHostsWork, Ready, false))
	for _, party := range []Party{hostA, hostB} {
		b.take(b.books.Census(b.now, Census{Party: party, Sequence: 1, Devices: []DeviceCensus{{Device: "card", Held: 2 * GiB, Overhead: 1,
			Models: []ModelCensus{{Name: "m", Size: 2 * GiB, Resident: 2 * GiB}}}}}))
	}
	b.hold(one, 1, 2*GiB)
	b.hold(two, 1, 3*GiB)
	b.hold(foreignHostsWork, 1, 1*GiB)
	b.read()
	b.busy(three)
	b.ask("1", three, 20*GiB)
	b.want(b.asked(), "partial_release a/one#1 2.00 GiB; partial_release a/two#1 3.00 GiB; free_memory a/host 2.00 GiB; "+
		"partial_release b/other#1 1.00 GiB; free_memory b/host 2.00 GiB")
}

func TestOfWhatIsIdleTheModelThatIsUsedAgainLastGoesFirstAndTheOthersAreKept(t *testing.T) {
	b := newBench(t, 0, hostA, one, two)
	census := func(party Party, sequence uint64, models ...string) {
		device := DeviceCensus{Device: "card", Overhead: 1}
		for _, name := range models {
			device.Models = append(device.Models, ModelCensus{Name: name, Size: 4 * GiB, Resident: 4 * GiB})
			device.Held += 4 * GiB
		}
		b.take(b.books.Census(b.now, Census{Party: party, Sequence: sequence, Devices: []DeviceCensus{device}}))
	}
	load := func(party Party, model string) {
		b.take(b.books.Phase(b.now, party, Busy, false))
		b.read()
		id := fmt.Sprint(party, model, b.now.Unix())
		b.take(b.books.Ask(b.now, Ask{ID: id, Party: party, Device: "card", Context: true, Models: []string{model}, Load: Load{Minimum: -1}}))
		b.take(b.books.Phase(b.now, party, Ready, false))
		b.now = b.now.Add(5 * time.Second)
	}
	// a workflow: the host encodes, the host draws, one refines, two upscales
	for prompt := range 3 {
		b.books.Prompt(b.now, "a", "workflow")
		b.free = 24 * GiB
		b.read()
		load(hostA, "encoder")
		load(hostA, "painter")
		load(one, "refiner")
		if prompt < 2 {
			load(two, "upscaler")
			b.books.Prompt(b.now, "a", "")
			b.now = b.now.Add(20 * time.Second)
		}
	}
	// the third time round two's turn has come, and the card is full: the encoder is needed soonest, the refiner last
	census(hostA, 1, "encoder", "painter")
	census(one, 1, "refiner")
	b.free = 0
	b.read()
	b.busy(two)
	b.actions = nil
	b.ask("last", two, 2*GiB)
	b.want(b.asked(), "partial_release a/one#1 3.25 GiB")
	b.take(b.books.Gone(b.now, one))
	b.read()
	// of the host, which is all that is left, the painter is used later than the encoder
	if len(b.actions) != 1 || b.actions[0].Kind != FreeMemory || fmt.Sprint(b.actions[0].Keep) != "[encoder]" {
		t.Errorf("%v", b.actions)
	}
}

func TestAReleaseAsksForNoMoreThanIsShortAndTheSlack(t *testing.T) {
	b := newBench(t, 8*GiB, one, two, three)
	b.hold(one, 1, 8*GiB)
	b.hold(two, 1, 8*GiB)
	b.read()
	b.busy(three)
	b.ask("1", three, 9*GiB) // 9.9 + 0.8: 2.7 short
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
	b.read()
	b.want(b.asked(), "") // it was asked already
}

func TestAPartyThatDoesNotAnswerIsPassedOver(t *testing.T) {
	b := newBench(t, 8*GiB, one, two, three)
	b.hold(one, 1, 8*GiB)
	b.hold(two, 1, 8*GiB)
	b.read()
	b.busy(three)
	b.ask("1", three, 9*GiB)
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
	b.later(DefaultRules().WorkerAnswer)
	b.want(b.asked(), "partial_release a/two#1 2.95 GiB")
	if view := b.books.View()[0]; !view.Holders[0].Unresponsive {
		t.Errorf("the silent one is not shown: %+v", view.Holders)
	}
	// its late receipt is still welcome
	b.free += 3 * GiB
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Device: "card", Freed: 3 * GiB, Held: 5 * GiB}))
	b.read()
	b.want(b.answered("1"), "granted/fits")
}

func TestAPartyThatDidNotAnswerIsAskedAgainLater(t *testing.T) {
	b := newBench(t, 8*GiB, one, two, three)
	b.hold(one, 1, 8*GiB)
	b.hold(two, 1, 8*GiB)
	b.read()
	b.busy(two)
	b.busy(three)
	b.ask("1", three, 9*GiB)
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
	b.later(DefaultRules().WorkerAnswer)
	b.want(b.asked(), "")
	if wake := b.now.Add(DefaultRules().Forgive); !b.next.Equal(wake) {
		t.Errorf("woken at %v, want %v", b.next, wake)
	}
	b.later(DefaultRules().Forgive)
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
}

func TestAPartyWithoutMoreToGiveIsAskedForEverythingAndThenLeftAlone(t *testing.T) {
	b := newBench(t, 8*GiB, one, three)
	b.hold(one, 1, 16*GiB)
	b.read()
	b.busy(three)
	b.ask("1", three, 9*GiB)
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Device: "card", Freed: 0, Held: 16 * GiB}))
	b.read()
	b.want(b.asked(), "full_release a/one#1 2.95 GiB")
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Device: "card", Freed: 100 * MiB, Held: 16*GiB - 100*MiB}))
	b.read()
	b.want(b.asked(), "")
	b.want(b.answered("1"), "short/nothing_left")
}

func TestAReceiptThatTheDriverContradictsIsNotBelievedTwice(t *testing.T) {
	b := newBench(t, 8*GiB, one, three)
	b.hold(one, 1, 16*GiB)
	look := func() {
		b.take(b.books.Reading(b.now, Reading{Device: "card", At: b.now, Source: FromDriver, Total: 24 * GiB, Free: b.free, Attributed: true,
			Processes: map[Party]Bytes{one: 16 * GiB}}))
	}
	look()
	b.busy(three)
	b.ask("1", three, 9*GiB)
	b.want(b.asked(), "partial_release a/one#1 2.95 GiB")
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Device: "card", Freed: 3 * GiB, Held: 13 * GiB}))
	look()
	b.want(b.asked(), "")
	b.want(b.answered("1"), "short/nothing_left")
}

func TestLoadsThatWaitForEachOthersBytesGoOnAtOnceTheYoungestFirst(t *testing.T) {
	b := newBench(t, 0, one, two)
	for _, party := range []Party{one, two} {
		b.hold(party, 1, 12*GiB)
		b.busy(party)
	}
	b.read()
	keep := func(id string, party Party) {
		b.take(b.books.Ask(b.now, Ask{ID: id, Party: party, Device: "card", Context: true, Keep: 12 * GiB, Load: Load{Weights: 4 * GiB, Minimum: -1}}))
	}
	keep("old", one)
	b.want(b.answered("old"), "waits") // the other one computes, and will end
	keep("young", two)
	b.want(b.answered("young"), "forced/cycle_of_waits")
	b.want(b.answered("old"), "waits")
	if cycle := b.answers["young"].Terms.String(); !strings.Contains(cycle, "cycle a/two#1 on card -> a/one#1 on card -> a/two#1") {
		t.Errorf("the circle is not named: %s", cycle)
	}
	b.take(b.books.Phase(b.now, two, Ready, true))
	b.read()
	b.want(b.asked(), "partial_release a/two#1 5.45 GiB")
}

func TestALargeAskIsNotStarvedBySmallOnes(t *testing.T) {
	rules := DefaultRules()
	b := newBench(t, 6*GiB, one, two, three)
	b.hold(one, 1, 18*GiB)
	b.busy(one)
	b.read()
	b.busy(two)
	b.ask("large", two, 10*GiB)
	b.want(b.answered("large"), "waits")
	granted := 0
	for i := range 2 * rules.Overtakes {
		b.busy(three)
		id := fmt.Sprint("small ", i)
		b.ask(id, three, GiB)
		if b.answered(id) == "granted/fits" {
			granted++
		}
		b.take(b.books.Phase(b.now, three, Ready, true))
		b.read()
	}
	if granted != rules.Overtakes {
		t.Errorf("%d small asks passed the large one, want %d", granted, rules.Overtakes)
	}
}

func TestAWaitEndsAtItsDeadline(t *testing.T) {
	b := newBench(t, 2*GiB, one, two)
	b.hold(one, 1, 20*GiB)
	b.busy(one)
	b.read()
	b.busy(two)
	b.ask("1", two, 8*GiB)
	b.want(b.answered("1"), "waits")
	b.later(DefaultRules().AskWait - time.Second)
	b.want(b.answered("1"), "waits")
	b.later(time.Second)
	b.want(b.answered("1"), "forced/deadline")
}

func TestALeaseEndsWithItsProcessAndWhenNothingIsHeardOfItsLoad(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	for _, party := range []Party{one, two} {
		b.busy(party)
	}
	b.ask("1", one, 12*GiB)
	b.ask("2", two, 12*GiB)
	b.want(b.answered("2"), "waits")
	b.take(b.books.Gone(b.now, one))
	b.read()
	b.want(b.answered("2"), "granted/fits")
	for range 10 { // a load that shows signs of life keeps its lease
		b.later(DefaultRules().LoadLapse - time.Second)
		b.books.Progress(b.now, two)
	}
	if leases := b.books.View()[0].Leases; len(leases) != 1 {
		t.Fatalf("%d leases live", len(leases))
	}
	b.later(DefaultRules().LoadLapse)
	if leases := b.books.View()[0].Leases; len(leases) != 0 {
		t.Errorf("%d leases live after the load fell silent", len(leases))
	}
}

func TestAnAskThatArrivesTwiceGetsOneLease(t *testing.T) {
	b := newBench(t, 24*GiB, one)
	b.busy(one)
	b.ask("1", one, 8*GiB)
	first := b.answers["1"]
	again := b.books.Ask(b.now, Ask{ID: "1", Party: one, Device: "card", Load: Load{Weights: 8 * GiB, Minimum: -1}})
	if len(again.Answers) != 1 || again.Answers[0].Lease != first.Lease || len(b.books.View()[0].Leases) != 1 {
		t.Errorf("again: %+v, leases %+v", again.Answers, b.books.View()[0].Leases)
	}
}

func TestAnAskFromADeadGenerationGetsAnAnswerAndNoLease(t *testing.T) {
	b := newBench(t, 24*GiB, one)
	b.take(b.books.Gone(b.now, one))
	b.books.Join(b.now, Party{"a", "one", 2})
	b.ask("1", one, 8*GiB)
	b.want(b.answered("1"), "dropped/stale")
	if leases := b.books.View()[0].Leases; len(leases) != 0 {
		t.Errorf("leases %+v", leases)
	}
}

func TestWithoutAReadingOurOwnBooksStandIn(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	b.hold(one, 1, 10*GiB)
	b.free -= 14 * GiB // four of them foreign
	b.read()
	b.now = b.now.Add(time.Minute)
	b.busy(two)
	b.ask("1", two, 8*GiB)
	b.want(b.answered("1"), "waits") // for a fresh look
	b.now = b.now.Add(DefaultRules().ReadWait)
	b.take(b.books.Tick(b.now))
	b.want(b.answered("1"), "granted/fits")
	if terms := b.answers["1"].Terms; !strings.Contains(terms.String(), "free 10.00 GiB") || !strings.Contains(terms.String(), "read from books") {
		t.Errorf("terms %s", terms)
	}
}

func TestAnAskOnACardThatNobodyCouldEverReadGoesOn(t *testing.T) {
	books := NewBooks(DefaultRules())
	books.Join(noon, one)
	out := books.Ask(noon, Ask{ID: "1", Party: one, Device: "nowhere", Load: Load{Weights: GiB, Minimum: -1}})
	if len(out.Answers) != 0 || fmt.Sprint(out.Read) != "[nowhere]" {
		t.Fatalf("%+v", out)
	}
	out = books.Tick(out.Next)
	if len(out.Answers) != 1 || out.Answers[0].Cause != CauseNoReading {
		t.Errorf("%+v", out.Answers)
	}
}

func TestAnAnswersReserveLeavesAloneWhatOthersWerePromised(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	b.busy(one)
	b.busy(two)
	b.ask("1", one, 10*GiB)
	b.take(b.books.Ask(b.now, Ask{ID: "2", Party: two, Device: "card", Context: true, Load: Load{Weights: 4 * GiB, Minimum: -1, Reserve: float64(400 * MiB)}}))
	if got, want := b.answers["2"].Reserve, float64(400*MiB)+float64(b.answers["1"].Lease); got != want {
		t.Errorf("reserve %f, want %f", got, want)
	}
}

func TestAnOperatorsCapLimitsAnAskAndIsSaidWhenNothingFits(t *testing.T) {
	b := newBench(t, 24*GiB, one)
	b.books.Cap(one, 6*GiB)
	b.busy(one)
	b.ask("1", one, 10*GiB)
	b.want(b.answered("1"), "granted/fits")
	if got := b.answers["1"].Lease; got != 6*GiB {
		t.Errorf("lease %s", got)
	}
	b.books.Cap(one, 500*MiB)
	b.ask("2", one, 10*GiB)
	if last := b.events[len(b.events)-1]; !strings.Contains(fmt.Sprint(b.events), EventCap) {
		t.Errorf("the cap is too small to compute anything, and nothing says so: %+v", last)
	}
}

func TestIdlePagersAreAskedBeforeSomebodyElsesFaultNeedsTheirPages(t *testing.T) {
	paged := func(b *bench, party Party, held Bytes) {
		b.take(b.books.Census(b.now, Census{Party: party, Sequence: 1, Devices: []DeviceCensus{{Device: "card", Held: held, Overhead: 1,
			Models: []ModelCensus{{Name: "m", Size: held, Resident: held, Paged: true}}}}}))
	}
	b := newBench(t, 300*MiB, one, two)
	paged(b, one, 12*GiB)
	paged(b, two, 11*GiB)
	b.read()
	b.take(b.books.Relieve(b.now))
	b.want(b.asked(), "") // nobody computes, so nobody faults
	b.busy(two)
	b.take(b.books.Relieve(b.now))
	b.want(b.asked(), "partial_release a/one#1 468.00 MiB")
}

func TestOnAProcessLocalCardAnAnswersReserveIsWhatTheProcessCannotSee(t *testing.T) {
	b := newBench(t, 10*GiB, one, two)
	b.hold(one, 1, 4*GiB)
	b.take(b.books.Reading(b.now, Reading{Device: "card", At: b.now, Source: FromDriver, Total: 24 * GiB, Free: 10 * GiB, ProcessLocal: true}))
	b.busy(one)
	b.ask("1", one, 2*GiB)
	// it reads 20 GiB free (24 less its own 4, to the byte of overhead), of which 10 are there
	if got, want := b.answers["1"].Reserve, float64(10*GiB-1); got != want {
		t.Errorf("reserve %f, want %f", got, want)
	}
	b.books.Cap(one, 5*GiB)
	b.ask("2", one, 2*GiB)
	if got, want := b.answers["2"].Reserve, float64(19*GiB); got != want {
		t.Errorf("under a cap of 5 GiB: reserve %f, want %f", got, want)
	}
}
