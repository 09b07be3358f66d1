package budget

import (
	"slices"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestWhyShowsWhoLackedWhatAndWhatCameOfIt(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	idle, bystander, asks := b.worker("idle"), b.worker("bystander"), b.worker("asks")
	idle.hold("model", 16*gib)
	bystander.hold("model", gib)
	b.busy(asks)
	if got := b.answered(asks.ask("1", 12*gib, nil)); got.Verdict != memory.Granted {
		t.Fatalf("got %+v", got)
	}
	b.event("memory.answered", "asks")
	b.mu.Lock()
	events := slices.Clone(b.events)
	b.mu.Unlock()
	for i := range events {
		events[i].Sequence = uint64(i + 1)
	}
	chains := Chains(events, "idle")
	if len(chains) != 1 {
		t.Fatalf("%d chains", len(chains))
	}
	var kinds []string
	for _, event := range chains[0] {
		kinds = append(kinds, strings.TrimPrefix(event.Kind, "memory.")+" of "+event.Environment)
	}
	slices.Sort(kinds[1:]) // the order in which the receipt and the wait become events is not fixed
	for _, want := range []string{"waiting of asks", "asked_release of idle", "receipt of idle", "answered of asks"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the chain lacks %q: %v", want, kinds)
		}
	}
	if needed, ok := TermsOf(&chains[0][0]).Amount("needed"); !ok || needed < 12*gib {
		t.Errorf("the sum is missing: %v", TermsOf(&chains[0][0]))
	}
	if len(Chains(events, "bystander")) != 0 || len(Chains(events, "")) != 1 {
		t.Error("others have chains")
	}
	if got := Chains([]api.Event{{Sequence: 1, Kind: "worker.reaped", Environment: "x", Cause: "idle_long"}}, "x"); len(got) != 1 || len(got[0]) != 1 {
		t.Errorf("%v", got)
	}
}
