package memory

import "fmt"

// Caps are an operator's limits on one worker; what is not set is not limited.
type Caps struct {
	VRAM     Size `json:"vram"`     // on any one card
	Pinned   Size `json:"pinned"`   // page-locked RAM
	Resident Size `json:"resident"` // RAM of the process tree, shared memory files of ours not counted
}

// Over lays one set of limits over another: the settings file over the manifest.
func (c Caps) Over(below Caps) Caps {
	pick := func(above, below Size) Size {
		if above.Set() {
			return above
		}
		return below
	}
	return Caps{pick(c.VRAM, below.VRAM), pick(c.Pinned, below.Pinned), pick(c.Resident, below.Resident)}
}

// Limit is a set of caps in bytes; 0 is no limit.
type Limit struct {
	VRAM     Bytes `json:"vram"`
	Pinned   Bytes `json:"pinned"`
	Resident Bytes `json:"resident"`
}

// Resolve turns shares into bytes of a card and of the RAM, and says in sentences what contradicts itself or leaves too
// little to load anything.
func (c Caps) Resolve(card, ram Bytes, reserve float64) (Limit, []string) {
	limit := Limit{VRAM: c.VRAM.Of(card), Pinned: c.Pinned.Of(ram), Resident: c.Resident.Of(ram)}
	var remarks []string
	remark := func(format string, values ...any) { remarks = append(remarks, fmt.Sprintf(format, values...)) }
	least := addBytes(DefaultRules().ContextFloor, ceilBytes(MinimumInferenceMemory(max(0, reserve))))
	if limit.VRAM > 0 && card > 0 {
		switch {
		case limit.VRAM < least:
			remark("the VRAM cap of %s is less than the %s that a context and upstream's minimum for computing take: nothing can be loaded under it", limit.VRAM, least)
		case limit.VRAM > card:
			remark("the VRAM cap of %s is more than the card's %s and limits nothing", limit.VRAM, card)
		}
	}
	if limit.Pinned > 0 && limit.Pinned < PinFloor {
		remark("the pinned cap of %s is below %s: models larger than it load slowly, since their host buffers are cut", limit.Pinned, PinFloor)
	}
	if limit.Resident > 0 && limit.Pinned > limit.Resident {
		remark("the pinned cap of %s is more than the resident cap of %s, of which it is a part: %s is used for both", limit.Pinned, limit.Resident, limit.Resident)
		limit.Pinned = limit.Resident
	}
	if limit.Resident > 0 && limit.Resident < 512*MiB {
		remark("the resident cap of %s is less than the 180 to 550 MB that a worker takes when it is warm and idle", limit.Resident)
	}
	return limit, remarks
}

// CapHeadroom is the pager's headroom that keeps a paged process under a VRAM cap, in bytes. The pager's own limit lies at
// the card's size less its headroom.
func CapHeadroom(card, vram Bytes) Bytes {
	if vram <= 0 {
		return PagerFloor
	}
	return min(max(PagerFloor, addBytes(card, -vram)), PagerHeadroomLimit)
}

// residentAlarm is the share of a resident cap at which a release is asked, so that the cgroup's limit, which ends the
// process, is not what the worker meets first.
const residentAlarm = 0.9

// ResidentState is what one worker keeps in RAM.
type ResidentState struct {
	Party    Party `json:"party"`
	Phase    Phase `json:"phase"`
	Resident Bytes `json:"resident"`
	Shared   Bytes `json:"shared"` // pages of our memory files, charged to whoever touched them first
	Pinned   Bytes `json:"pinned"`
	Cap      Bytes `json:"cap"` // 0: none
}

// HoldResident asks workers near their resident cap to let go: pins first, everything next.
func HoldResident(workers []ResidentState) Plan {
	var plan Plan
	for _, worker := range workers {
		used := addBytes(worker.Resident, -max(0, worker.Shared))
		alarm := Bytes(float64(worker.Cap) * residentAlarm)
		if worker.Cap <= 0 || used <= alarm || !worker.Phase.Idle() && worker.Phase != Busy {
			continue
		}
		action := Action{Party: worker.Party, Cause: "resident_cap", Terms: Terms{Amount("resident", worker.Resident),
			Amount("shared files of ours", worker.Shared), Amount("cap", worker.Cap), Amount("asked from", alarm), Amount("pinned", worker.Pinned)}}
		switch over := used - alarm; {
		case worker.Pinned > 0:
			action.Kind, action.Bytes = ReleasePins, min(worker.Pinned, max(over, smallestPinSlice))
		case worker.Phase == Ready:
			action.Kind = FullRelease
		default:
			continue // it computes, or has let go of everything: the cgroup is what is left
		}
		plan.Actions = append(plan.Actions, action)
	}
	return plan
}
