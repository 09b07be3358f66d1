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
	kept, _, last, dropped := log.replay(5, nil)
	for _, event := range kept {
		got = append(got, event.Sequence)
	}
	if last != eventCapacity+10 || dropped != 5 || len(got) != eventCapacity || got[0] != 11 || got[len(got)-1] != last {
		t.Errorf("last %d, dropped %d, %d events from %d to %d", last, dropped, len(got), got[0], got[len(got)-1])
	}
	if kept, _, last, dropped := log.replay(last+5, nil); len(kept) != 0 || dropped != 0 || last == 0 {
		t.Errorf("beyond the end: %v, %d dropped", kept, dropped)
	}
}
