package budget

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// takings are the events by which something is taken from a party.
var takings = []string{
	"memory.asked_release", "memory." + string(memory.FullRelease), "memory." + string(memory.PartialRelease),
	"memory." + string(memory.ReleasePins), "worker.reaped", "worker.ended_idle",
}

// Chains finds what led to each time that memory was taken from an environment's workers ("" is everybody), and what came
// of it, in the order in which it happened: who lacked how much, what was asked of whom, the receipt, and the answer. The
// newest chain comes last; events that many of one load's askings share are in the first of their chains.
func Chains(events []api.Event, environment string) [][]api.Event {
	var chains [][]api.Event
	told := make(map[uint64]bool)
	for i := range events {
		event := &events[i]
		if !slices.Contains(takings, event.Kind) || environment != "" && event.Environment != environment {
			continue
		}
		var chain []api.Event
		for _, one := range append(whoAsked(events[:i], event), *event) {
			if !told[one.Sequence] {
				told[one.Sequence] = true
				chain = append(chain, one)
			}
		}
		for _, one := range whatCame(events[i+1:], event) {
			if !told[one.Sequence] {
				told[one.Sequence] = true
				chain = append(chain, one)
			}
		}
		chains = append(chains, chain)
	}
	return chains
}

// whoAsked is the wait of the load for which something is taken, and before it that for adopted workers, if it had to.
func whoAsked(before []api.Event, taking *api.Event) (led []api.Event) {
	name, isAsk := strings.CutPrefix(taking.Cause, "ask ")
	if !isAsk {
		return nil
	}
	for i := len(before) - 1; i >= 0; i-- {
		if !strings.HasPrefix(name, partyOf(&before[i]).String()+"/") {
			continue
		}
		switch before[i].Kind {
		case "memory." + memory.EventWaiting:
			if len(led) == 0 {
				led = []api.Event{before[i]}
			}
		case "memory.kept_back":
			return append([]api.Event{before[i]}, led...)
		case "memory." + memory.EventAnswered:
			return led // of a load before
		}
	}
	return led
}

// whatCame is a taking's receipt, or that there was none, and the answer to the load for which it was.
func whatCame(after []api.Event, taking *api.Event) (came []api.Event) {
	name, isAsk := strings.CutPrefix(taking.Cause, "ask ")
	answered, receipt := !isAsk, false
	for i := range after {
		event := &after[i]
		same := partyOf(event) == partyOf(taking)
		switch {
		case same && !receipt && slices.Contains([]string{"memory.receipt", "memory.released", "memory.released_in_part", "memory.release_failed", "memory." + memory.EventUnanswered}, event.Kind):
			receipt = strings.HasPrefix(event.Kind, "memory.receipt") || !isAsk || event.Kind == "memory."+memory.EventUnanswered
			came = append(came, *event)
		case !answered && (event.Kind == "memory."+memory.EventAnswered || event.Kind == "memory."+memory.EventWaiting) && strings.HasPrefix(name, partyOf(event).String()+"/"):
			answered = event.Kind == "memory."+memory.EventAnswered
			came = append(came, *event)
		case same && slices.Contains(takings, event.Kind):
			receipt = true // what follows is about that one
		}
		if receipt && answered {
			break
		}
	}
	return came
}

func partyOf(event *api.Event) memory.Party {
	return memory.Party{Session: event.Session, Environment: event.Environment, Generation: event.Generation}
}

// TermsOf is the sum behind an event, also of one that came over the wire.
func TermsOf(event *api.Event) memory.Terms {
	encoded, err := json.Marshal(event.Terms["terms"])
	var terms memory.Terms
	if err != nil || json.Unmarshal(encoded, &terms) != nil {
		return nil
	}
	return terms
}
