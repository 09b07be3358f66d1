package memory

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// kindsOf are the events of an outcome as "kind/cause".
func kindsOf(out Outcome) string {
	var words []string
	for _, event := range out.Events {
		words = append(words, event.Kind+"/"+event.Cause)
	}
	return strings.Join(words, " ")
}

func TestReportsThatAreLateDoubledOrFromADeadGenerationAreDropped(t *testing.T) {
	b := newBench(t, 24*GiB, one)
	report := func(party Party, sequence uint64, held Bytes) string {
		return kindsOf(b.books.Census(b.now, Census{Party: party, Sequence: sequence, Devices: []DeviceCensus{{Device: "card", Held: held, Overhead: 1}}}))
	}
	b.want(report(one, 5, 4*GiB), "")
	b.want(report(one, 5, 9*GiB), "objection/doubled")
	b.want(report(one, 4, 9*GiB), "objection/late")
	b.want(report(Party{"a", "one", 0}, 6, 9*GiB), "objection/unknown_party")
	if holders := b.books.View()[0].Holders; len(holders) != 1 || holders[0].Reported != 4*GiB+1 {
		t.Errorf("%+v", holders)
	}
	b.want(report(one, 0, 9*GiB), "objection/late") // the first number is 5 by now
	b.take(b.books.Gone(b.now, one))
	b.want(report(one, 7, 9*GiB), "objection/unknown_party")
	if holders := b.books.View()[0].Holders; len(holders) != 0 {
		t.Errorf("the dead still hold: %+v", holders)
	}
}

func TestNegativeAndAbsurdFiguresAreRepairedAndShown(t *testing.T) {
	b := newBench(t, 24*GiB, one)
	out := b.books.Census(b.now, Census{Party: one, Sequence: 1, Pinned: -1, LargestModel: math.MaxInt64, PinCeiling: math.NaN(), Devices: []DeviceCensus{{
		Device: "card", Held: math.MaxInt64, Overhead: math.MaxInt64, Streams: -3, LargestTensor: math.MinInt64, Models: []ModelCensus{{Name: "m", Size: -1, Resident: 1 << 60}}}}})
	b.want(kindsOf(out), "objection/repaired")
	if holder := b.books.View()[0].Holders[0]; holder.Charge != 24*GiB {
		t.Errorf("charged %s on a card of 24 GiB", holder.Charge)
	}
	for _, name := range []string{"held on card", "largest tensor on card", "size of m", "residency of m", "pinned", "largest model", "streams on card"} {
		if _, ok := out.Events[0].Terms.Amount(name); !ok {
			t.Errorf("%s is not shown: %s", name, out.Events[0].Terms)
		}
	}
}

func TestAWorkerThatSaysNothingIsChargedByTheDriverAndShown(t *testing.T) {
	b := newBench(t, 24*GiB, one, two)
	b.hold(one, 1, 0)
	look := func(attributed bool) string {
		b.now = b.now.Add(time.Second)
		out := b.books.Reading(b.now, Reading{Device: "card", At: b.now, Source: FromDriver, Total: 24 * GiB, Free: 15 * GiB, Driver: GiB,
			Attributed: attributed, Processes: map[Party]Bytes{one: 8 * GiB}})
		return kindsOf(out)
	}
	b.want(look(true), "") // once may be a load between report and reading
	b.want(look(true), "report_contradicts_driver/charged_by_driver")
	b.want(look(true), "")
	view := b.books.View()[0]
	if holder := view.Holders[0]; holder.Charge != 8*GiB || !holder.Contradicted {
		t.Errorf("%+v", holder)
	}
	if view.Unattributed != 0 {
		t.Errorf("%s are nobody's", view.Unattributed)
	}
	// where the driver's processes are not ours, the difference is nobody's, and charged to the card
	b.want(look(false), "")
	view = b.books.View()[0]
	if holder := view.Holders[0]; holder.Charge != 1 || holder.Driver >= 0 || view.Unattributed != 8*GiB-1 {
		t.Errorf("%+v, %s unattributed", holder, view.Unattributed)
	}
}

func TestReadingsThatNoCardCanGiveAreRefused(t *testing.T) {
	b := newBench(t, 20*GiB, one)
	for _, reading := range []Reading{
		{Device: "card", Total: 24 * GiB, Free: -1}, {Device: "card", Total: 24 * GiB, Free: 25 * GiB}, {Device: "card"}, {Total: GiB},
		{Device: "card", Total: 1 << 62}, {Device: "card", Total: GiB, Driver: -1},
	} {
		reading.At = b.now
		b.want(kindsOf(b.books.Reading(b.now, reading)), "reading_refused/absurd")
	}
	b.want(kindsOf(b.books.Reading(b.now, Reading{Device: "card", At: b.now.Add(-time.Second), Source: FromDriver, Total: 24 * GiB})), "")
	if free := b.books.View()[0].Reading.Free; free != 20*GiB {
		t.Errorf("%s free after an older reading", free)
	}
}

func TestAWorkersOwnReadingStandsInForTheDriversWhereItIsDeviceWide(t *testing.T) {
	device := DeviceCensus{Device: "card", OwnFree: 10 * GiB, OwnTotal: 23 * GiB}
	reading, ok := device.OwnReading(noon)
	if !ok || reading.Source != FromWorker || reading.Free != 10*GiB || reading.Total != 23*GiB {
		t.Errorf("%+v, %v", reading, ok)
	}
	device.ProcessLocal = true
	if _, ok := device.OwnReading(noon); ok {
		t.Error("a process that sees only itself reads the card")
	}
	if _, ok := (&DeviceCensus{Device: "card"}).OwnReading(noon); ok {
		t.Error("a process that did not look reads the card")
	}
}

func TestAWorkerThatComputesIsNeverAskedAndAHostIsAskedAtItsNextMoment(t *testing.T) {
	b := newBench(t, 2*GiB, hostB, one, two, three)
	b.hold(one, 1, 8*GiB)
	b.hold(two, 1, 8*GiB)
	b.take(b.books.Census(b.now, Census{Party: hostB, Sequence: 1, Devices: []DeviceCensus{{Device: "card", Held: 4 * GiB, Overhead: 1,
		Models: []ModelCensus{{Name: "m", Size: 4 * GiB, Resident: 4 * GiB}}}}}))
	b.read()
	b.busy(one)
	b.busy(hostB)
	b.take(b.books.Phase(b.now, two, Stopping, true))
	b.busy(three)
	b.ask("1", three, 10*GiB)
	b.want(b.asked(), "free_memory b/host 4.00 GiB")
	b.take(b.books.Phase(b.now, one, Ready, false)) // its call ends: now it is asked
	b.want(b.asked(), "partial_release a/one#1 6.05 GiB")
}

func TestAHostsTargetMakesAProcessLocalReadingDeviceWide(t *testing.T) {
	// the card has 2 GiB free, the host reads 20: to get 3 more it must be told to want 23
	if got := HostTarget(3*GiB, 20*GiB); got != 23*GiB {
		t.Errorf("%s", got)
	}
	if got := HostTarget(0, 20*GiB); got != 0 {
		t.Errorf("nothing is short, and still: %s", got)
	}
}

func TestTheBooksTellASweepWhatItNeeds(t *testing.T) {
	b := newBench(t, 4*GiB, hostA, one, two)
	b.hold(one, 1, 8*GiB)
	b.busy(two)
	b.ask("1", two, 2*GiB)
	b.books.Need(one, 2, 1)
	b.books.Asked(b.now, one)
	workers := b.books.Workers()
	if len(workers) != 2 || workers[0].Party != one || workers[0].HeldOn("card") != 8*GiB+1 || workers[0].StandIns != 2 || workers[0].Handles != 1 ||
		workers[0].AskedAt != b.now || workers[1].Phase != Busy {
		t.Errorf("%+v", workers)
	}
	lease := b.answers["1"].Lease
	if got := fmt.Sprint(b.books.Cards()); got != fmt.Sprint([]CardState{{"card", 24 * GiB, 4 * GiB, lease}}) {
		t.Errorf("%s", got)
	}
	b.take(b.books.Receipt(b.now, Receipt{Party: one, Freed: 8 * GiB, Held: 0}))
	if again := b.books.Workers(); !again[0].AskedAt.IsZero() {
		t.Error("a receipt for everything does not end the release")
	}
}

func TestAWorkflowsLastRunIsThePlanOfTheNext(t *testing.T) {
	var r rhythm
	at := noon
	run := func(workflow string, models ...string) {
		r.prompt(at, workflow)
		for _, model := range models {
			at = at.Add(10 * time.Second)
			r.use(at, used{"e", model})
		}
		at = at.Add(10 * time.Second)
		r.prompt(at, "")
		at = at.Add(20 * time.Second)
	}
	run("w", "first", "second", "third")
	run("w", "first", "second", "third") // 60 s a period
	r.prompt(at, "w")
	start := at
	ahead := func(model string) string {
		next, ok := r.next(at, used{"e", model})
		if !ok {
			return "unknown"
		}
		return next.Sub(start).String()
	}
	for _, test := range []struct{ model, want string }{{"first", "10s"}, {"second", "20s"}, {"third", "30s"}, {"other", "unknown"}} {
		if got := ahead(test.model); got != test.want {
			t.Errorf("at the start, %s comes in %s, want %s", test.model, got, test.want)
		}
	}
	at = at.Add(12 * time.Second)
	r.use(at, used{"e", "first"})
	at = at.Add(8 * time.Second)
	r.use(at, used{"e", "second"})
	for _, test := range []struct{ model, want string }{{"first", "1m10s"}, {"second", "1m20s"}, {"third", "30s"}} {
		if got := ahead(test.model); got != test.want {
			t.Errorf("after the second, %s comes at %s, want %s", test.model, got, test.want)
		}
	}
	at = at.Add(time.Minute) // overdue
	if next, _ := r.next(at, used{"e", "third"}); !next.Equal(at) {
		t.Errorf("what is overdue comes %v from now", next.Sub(at))
	}
}

func TestWorkflowsOfASessionAreRememberedWithinBounds(t *testing.T) {
	var r rhythm
	for i := range 3 * plansKept {
		r.prompt(noon.Add(time.Duration(i)*time.Minute), fmt.Sprint("workflow ", i))
		for range usesKept + 10 {
			r.use(noon.Add(time.Duration(i)*time.Minute), used{"e", "m"})
		}
	}
	if len(r.plans) != plansKept {
		t.Errorf("%d workflows are kept", len(r.plans))
	}
	for _, plan := range r.plans {
		if len(plan.uses) > usesKept {
			t.Errorf("%d uses are kept", len(plan.uses))
		}
	}
	b := newBench(t, 24*GiB, one)
	for i := range modelsKept + 50 {
		b.now = b.now.Add(time.Second)
		b.read()
		b.busy(one)
		b.take(b.books.Ask(b.now, Ask{ID: fmt.Sprint(i), Party: one, Device: "card", Models: []string{fmt.Sprint("model ", i)}, Load: Load{Minimum: -1}}))
		b.take(b.books.Phase(b.now, one, Ready, true))
	}
	if kept := len(b.books.members[one].models); kept != modelsKept {
		t.Errorf("%d models of a party are kept", kept)
	}
}

func TestWhoRunsNoPromptsIsGuessedByTheIntervalsOfItsUses(t *testing.T) {
	var r Reuse
	at := noon
	for range 4 {
		r.Used(at)
		at = at.Add(time.Minute)
	}
	if got := r.Next(r.Last.Add(10 * time.Second)).Sub(r.Last); got != time.Minute {
		t.Errorf("in its rhythm it comes after %v", got)
	}
	if got := r.Next(r.Last.Add(70 * time.Second)).Sub(r.Last); got != 70*time.Second {
		t.Errorf("overdue it comes after %v", got)
	}
	if got := r.Next(r.Last.Add(10 * time.Minute)).Sub(r.Last); got != 20*time.Minute {
		t.Errorf("out of its rhythm it comes after %v", got)
	}
	r.Used(noon.Add(-time.Hour)) // a clock that jumped back
	if r.Last.Before(noon) || r.Interval != time.Minute {
		t.Errorf("%+v", r)
	}
}

func TestRulesThatMakeNoSenseAreNamed(t *testing.T) {
	if err := DefaultRules().Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, spoil := range map[string]func(*Rules){
		"slack": func(r *Rules) { r.Slack = -1 }, "ask wait": func(r *Rules) { r.AskWait = 0 }, "overtakes": func(r *Rules) { r.Overtakes = -1 },
		"dry share": func(r *Rules) { r.DryShare = 2 }, "load lapse": func(r *Rules) { r.LoadLapse = -time.Second },
	} {
		rules := DefaultRules()
		spoil(&rules)
		if err := rules.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlansAndTermsPrintForPeopleAndMachines(t *testing.T) {
	plan := Plan{Actions: []Action{{Kind: FreeMemory, Party: hostA, Device: "card", Bytes: GiB, For: one, Keep: []string{"m"}, Cause: "ask 1",
		Terms: Terms{Amount("short", GiB), Count("loads", 2), Fact("line", "a host"), {Name: "age", Unit: UnitMilliseconds, Value: 1500, Text: "stale"}}}}}
	if got, want := plan.String(), "free_memory of a/host, 1.00 GiB on card for a/one#1, keeping m, because ask 1: short 1.00 GiB, loads 2, line a host, age 1.5s (stale)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := plan.JSON(), `{"actions":[{"kind":"free_memory","party":{"session":"a"},"device":"card","bytes":1073741824,"for":{"session":"a","environment":"one","generation":1},"keep":["m"],"cause":"ask 1",`+
		`"terms":[{"name":"short","unit":"bytes","value":1073741824},{"name":"loads","unit":"count","value":2},{"name":"line","unit":"text","text":"a host"},`+
		`{"name":"age","unit":"milliseconds","value":1500,"text":"stale"}]}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (Plan{}).String(); got != "nothing to do" {
		t.Errorf("an empty plan prints %q", got)
	}
}
