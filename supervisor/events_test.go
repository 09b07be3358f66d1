package supervisor

import (
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

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
