package supervisor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	allStates = []State{Starting, Ready, Busy, Released, Stopping, Gone, Backoff, Quarantined}
	allKinds  = []Kind{CallArrived, CallAnswered, CallWithdrawn, Loaded, StartRefused, ReleasedAll, StopAsked, Exited, Tick, ResetAsked}
)

func TestTheTableNamesEveryStateAndEachRowCanBeReached(t *testing.T) {
	var text strings.Builder
	if err := PrintTransitions(&text); err != nil {
		t.Fatal(err)
	}
	for _, state := range allStates {
		if !strings.Contains(text.String(), string(state)) {
			t.Errorf("the table lacks %s", state)
		}
		if state.alive() && !slices.ContainsFunc(Transitions, func(row Transition) bool { return row.From == state && row.On == Exited && row.If.Name == "" }) {
			t.Errorf("a worker that is %s may end, and the table does not say what then", state)
		}
	}
	for i, row := range Transitions {
		if !slices.Contains(allStates, row.From) || !slices.Contains(allStates, row.To) || !slices.Contains(allKinds, row.On) {
			t.Errorf("row %d has an unknown word: %+v", i, row)
		}
		for _, earlier := range Transitions[:i] {
			if earlier.From == row.From && earlier.On == row.On && earlier.If.Name == "" {
				t.Errorf("row %d is never reached: %s, %s, %s", i, row.From, row.On, row.If.Name)
			}
		}
	}
}

func TestTheOrdinaryLifeOfAWorker(t *testing.T) {
	now := time.Unix(1000, 0)
	limits := DefaultCrashLimits()
	record := newRecord(1, nil, 0, now)
	for i, life := range []struct {
		message Message
		state   State
		actions []Action
		depth   int
		queued  int
	}{
		{Message{Kind: CallArrived}, Starting, []Action{Enqueue}, 0, 1},
		{Message{Kind: CallArrived}, Starting, []Action{Enqueue}, 0, 2},
		{Message{Kind: CallWithdrawn}, Starting, nil, 0, 1},
		{Message{Kind: Loaded}, Busy, []Action{Flush}, 1, 0},
		{Message{Kind: CallArrived}, Busy, []Action{Forward}, 2, 0},
		{Message{Kind: CallAnswered}, Busy, nil, 1, 0},
		{Message{Kind: CallAnswered}, Ready, nil, 0, 0},
		{Message{Kind: ReleasedAll}, Released, nil, 0, 0},
		{Message{Kind: CallArrived}, Busy, []Action{Forward}, 1, 0},
		{Message{Kind: StopAsked}, Stopping, []Action{FailSent, Stop}, 0, 0},
		{Message{Kind: CallArrived}, Stopping, []Action{Enqueue}, 0, 1},
		{Message{Kind: Exited}, Gone, []Action{Replace}, 0, 0},
	} {
		now = now.Add(time.Second)
		var actions []Action
		record, actions = Step(record, life.message, now, limits)
		if record.State != life.state || !slices.Equal(actions, life.actions) || record.Depth != life.depth || record.Queued != life.queued {
			t.Fatalf("step %d, %s: got %+v and %v", i, life.message.Kind, record, actions)
		}
	}
}

func TestCrashesWithinTheWindowCountAndOlderOnesDoNot(t *testing.T) {
	limits := Limits{Backoff: []time.Duration{0, time.Second}, CrashWindow: time.Minute, CrashCount: 3}
	now := time.Unix(1000, 0)
	crash := func(crashes []time.Time) Record {
		record, _ := Step(Record{State: Ready, Crashes: crashes}, Message{Kind: Exited}, now, limits)
		return record
	}
	if record := crash(nil); record.State != Gone || len(record.Crashes) != 1 {
		t.Errorf("the first crash: %+v", record)
	}
	if record := crash([]time.Time{now.Add(-30 * time.Second)}); record.State != Backoff || !record.BackoffUntil.Equal(now.Add(time.Second)) {
		t.Errorf("the second crash: %+v", record)
	}
	if record := crash([]time.Time{now.Add(-40 * time.Second), now.Add(-30 * time.Second)}); record.State != Quarantined {
		t.Errorf("the third crash: %+v", record)
	}
	if record := crash([]time.Time{now.Add(-90 * time.Second), now.Add(-70 * time.Second)}); record.State != Gone || len(record.Crashes) != 1 {
		t.Errorf("a crash long after others: %+v", record)
	}
	record, _ := Step(Record{State: Ready}, Message{Kind: StopAsked, Cause: "asked"}, now, limits)
	record, _ = Step(record, Message{Kind: Exited}, now, limits)
	if record.State != Gone || len(record.Crashes) != 0 {
		t.Errorf("an end that was asked for counts as a crash: %+v", record)
	}
	record, _ = Step(Record{State: Busy, Depth: 1}, Message{Kind: StopAsked, Force: true, Crash: true}, now, limits)
	record, _ = Step(record, Message{Kind: Exited}, now, limits)
	if len(record.Crashes) != 1 {
		t.Errorf("the end of a worker that had to be killed does not count: %+v", record)
	}
}

// TestNoCallIsLostOrAnsweredTwice drives records with any messages, replacements included, and counts calls.
func TestNoCallIsLostOrAnsweredTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Start: 10 * time.Second, Backoff: []time.Duration{0, time.Second, 5 * time.Second},
			CrashWindow: time.Minute, CrashCount: rapid.IntRange(0, 4).Draw(t, "crash count"),
		}
		now := time.Unix(1000, 0)
		record := Record{State: Gone}
		var queued, sent int // as the loop keeps them
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "milliseconds")) * time.Millisecond)
			message := Message{
				Kind:  rapid.SampledFrom(allKinds).Draw(t, "message"),
				Force: rapid.Bool().Draw(t, "force"), Crash: rapid.Bool().Draw(t, "crash"),
			}
			if message.Kind == CallAnswered && sent == 0 || message.Kind == CallWithdrawn && queued == 0 {
				continue // the loop has no call to say this about
			}
			before := record
			var actions []Action
			record, actions = Step(record, message, now, limits)
			open := queued + sent
			switch message.Kind {
			case CallArrived:
				open++
			case CallAnswered:
				sent--
				open--
			case CallWithdrawn:
				queued--
				open--
			}
			taken := 0
			for _, action := range actions {
				switch action {
				case Forward:
					sent++
					taken++
				case Enqueue:
					queued++
					taken++
				case Refuse:
					open--
					taken++
				case Flush:
					sent += queued
					queued = 0
				case FailQueued:
					open -= queued
					queued = 0
				case FailSent:
					open -= sent
					sent = 0
				case Replace:
					record = newRecord(before.Generation+1, record.Crashes, queued, now)
				}
			}
			if message.Kind == CallArrived && taken != 1 {
				t.Fatalf("a call that met a worker that was %s was taken %d times: %v", before.State, taken, actions)
			}
			if open != queued+sent {
				t.Fatalf("%d calls are open, %d queued and %d sent: %s, %s", open, queued, sent, before.State, message.Kind)
			}
			if record.Queued != queued || record.Depth != sent {
				t.Fatalf("the record counts %d and %d, the loop %d and %d: %s, %s", record.Queued, record.Depth, queued, sent, before.State, message.Kind)
			}
			if (record.State == Ready || record.State == Released) && sent > 0 || record.State == Busy && sent == 0 {
				t.Fatalf("%s with %d calls sent", record.State, sent)
			}
			if record.State == Quarantined && queued > 0 || record.State == Gone && queued > 0 {
				t.Fatalf("%d calls wait for a worker that is %s", queued, record.State)
			}
			if !record.State.alive() && sent > 0 {
				t.Fatalf("%d calls are in flight to a worker that is %s", sent, record.State)
			}
		}
	})
}
