package supervisor

import (
	"context"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	t.Cleanup(cancel)
	return ctx, cancel
}

func TestTheLastEventsAreKeptAndTheCountOfOthersIsTold(t *testing.T) {
	t.Parallel()
	log := newEventLog()
	for range eventCapacity + 10 {
		log.add(api.Event{Kind: "test"})
	}
	var got []uint64
	_, last, dropped := log.replay(5, false, func(event api.Event) { got = append(got, event.Sequence) })
	if last != eventCapacity+10 || dropped != 5 || len(got) != eventCapacity || got[0] != 11 || got[len(got)-1] != last {
		t.Errorf("last %d, dropped %d, %d events from %d to %d", last, dropped, len(got), got[0], got[len(got)-1])
	}
	got = nil
	if _, last, dropped := log.replay(last+5, false, func(event api.Event) { got = append(got, event.Sequence) }); len(got) != 0 || dropped != 0 || last == 0 {
		t.Errorf("beyond the end: %v, %d dropped", got, dropped)
	}
}

func TestTheLifeOfAWorkerIsTold(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
	wireError(t, err, wire.KindWorkerDied)
	mustCall(t, client, "Echo", nil)
	if _, err := client.Stop(testContext(t), api.StopParams{}); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var sequence uint64
	result, err := client.Events(testContext(t), api.EventsParams{}, func(event api.Event) {
		if event.Sequence != sequence+1 {
			t.Errorf("event %d follows %d", event.Sequence, sequence)
		}
		sequence = event.Sequence
		if event.Environment == "pack" {
			kinds = append(kinds, event.Kind)
			if event.Kind == "worker.gone" && event.Cause == "" {
				t.Errorf("no cause: %+v", event)
			}
		}
	})
	if err != nil || result.Last != sequence {
		t.Fatalf("got %+v, %v", result, err)
	}
	expected := []string{"worker.starting", "worker.busy", "worker.gone", "worker.starting", "worker.busy", "worker.stopping", "worker.gone"}
	if len(kinds) != len(expected) {
		t.Fatalf("got %v", kinds)
	}
	for i := range expected {
		if kinds[i] != expected[i] {
			t.Fatalf("got %v, expected %v", kinds, expected)
		}
	}
}
