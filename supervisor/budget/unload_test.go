package budget

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

func TestAHostsLoadTakesFirstFromWorkersThatNoPromptNeeds(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	b.join(memory.Host("a"), nil)
	needed := b.join(memory.Party{Session: "a", Environment: "needed", Generation: 1}, nil)
	over := b.join(memory.Party{Session: "a", Environment: "over", Generation: 1}, nil)
	computes := b.join(memory.Party{Session: "a", Environment: "computes", Generation: 1}, nil)
	other := b.join(memory.Party{Session: "b", Environment: "other", Generation: 1}, nil)
	for _, worker := range []*double{needed, over, computes, other} {
		worker.hold("model", 4*gib)
	}
	b.busy(computes)
	b.keeper.Prompt("a", json.RawMessage(`{"prompt_id":"1","state":"begin","workflow":"w","environments":["needed"]}`))
	ctx := context.Background()
	wish := Unload{Device: Device{Device: "cuda:0"}, Bytes: 5 * gib, Stage: StageFirst, Cause: "host_pressure"}
	if got := b.keeper.Unload(ctx, "a", wish); got != (Unloaded{Freed: 4 * gib, Busy: true, Workers: 1}) {
		t.Errorf("first: %+v", got)
	}
	wish.Bytes, wish.Stage = gib, StageLast
	if got := b.keeper.Unload(ctx, "a", wish); got != (Unloaded{Freed: gib, Busy: true, Workers: 1}) {
		t.Errorf("last: %+v", got)
	}
	if got := b.keeper.Unload(ctx, "a", Unload{All: true, Cause: "unload_models"}); got.Freed != 3*gib || !got.Busy {
		t.Errorf("everything: %+v", got)
	}
}

func TestAStandInGivesNoMoreThanIsWanted(t *testing.T) {
	b := start(t, newMachine(24*gib), nil)
	b.join(memory.Host("a"), nil)
	worker := b.join(memory.Party{Session: "a", Environment: "pack", Generation: 1}, nil)
	worker.hold("only", 6*gib)
	wish := Unload{Environment: "pack", Models: []string{"only"}, Bytes: 2 * gib, Device: Device{Device: "cuda:0"}, Cause: "host_pressure"}
	if got := b.keeper.Unload(context.Background(), "a", wish); got.Freed != 2*gib {
		t.Errorf("%+v", got)
	}
	wish.Device.Device = "cuda:7"
	if got := b.keeper.Unload(context.Background(), "a", wish); got.Freed != 0 {
		t.Errorf("of another card: %+v", got)
	}
}
