package budget

import (
	"context"
	"slices"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Stages of a host's wish that names no environment.
const (
	StageFirst = "first" // before the host gives up anything of its own: from workers that no prompt needs
	StageLast  = "last"  // after it has: from any idle worker
)

// Unload passes a host's wish on to its idle workers and waits for their receipts: to the worker of one environment, or,
// without a name, to all of the session's.
func (k *Keeper) Unload(ctx context.Context, session string, said Unload) Unloaded {
	var wishes []Wish
	var told Unloaded
	k.inside(ctx, func() {
		workers := k.sessionWorkers(session)
		if said.Environment != "" {
			m := k.workerOf(session, said.Environment)
			if m == nil {
				return
			}
			workers = []*member{m}
		}
		wishes, told.Busy = k.wishes(session, workers, said)
	})
	for _, granted := range k.Release(ctx, wishes) {
		told.Freed += granted.Freed
		told.Busy = told.Busy || granted.Busy
		if granted.Error == "" && !granted.Busy {
			told.Workers++
		}
	}
	return told
}

// wishes divides what a host wants among workers, and tells whether one was left alone because it computes. Nobody is asked
// for more than is wanted, but pages and weights come in pieces.
func (k *Keeper) wishes(session string, workers []*member, said Unload) (wishes []Wish, busy bool) {
	card := ""
	if host := k.members[memory.Host(session)]; host != nil && said.Device.Device != "" {
		card = k.locate(host, said.Device)
	}
	left := said.Bytes
	for _, m := range workers {
		switch {
		case m.deaf || !m.seen:
			continue // it has nothing
		case !m.phase.Idle():
			busy = true
			continue
		case said.Stage == StageFirst && !k.promptOver(m.Party):
			continue
		}
		wish := Wish{Party: m.Party, Kind: memory.FullRelease, Cause: said.Cause}
		if said.All || said.Bytes <= 0 && len(said.Models) == 0 {
			wishes = append(wishes, wish)
			continue
		}
		there, keep := m.has(k, card, said.Models)
		if said.Bytes > 0 {
			there = min(there, left)
		}
		if there <= 0 {
			continue
		}
		left -= there
		wish.Kind, wish.Bytes, wish.Keep, wish.Device = memory.PartialRelease, there, keep, card
		wishes = append(wishes, wish)
	}
	return wishes, busy
}

// has is what a worker could give back on a card, of some models or of everything, and the models that are to stay. Without
// a card it is what lies on all its devices.
func (m *member) has(k *Keeper, card string, models []string) (there memory.Bytes, keep []string) {
	for _, device := range m.census.Devices {
		if card != "" && k.cards.locate(m.Environ, Device{device.DeviceCensus.Device, device.Identity}) != card {
			continue
		}
		if len(models) == 0 {
			there += max(0, device.Held)
			continue
		}
		for _, model := range device.Models {
			if slices.Contains(models, model.Name) {
				there += max(0, model.Resident)
			} else {
				keep = append(keep, model.Name)
			}
		}
	}
	return there, keep
}
