package memory

import "slices"

import "time"

// next is when passing time alone will change something: zero if never.
func (b *Books) next() (next time.Time) {
	for _, c := range b.order {
		for _, lease := range c.leases {
			earliest(&next, lease.RenewedAt.Add(b.lapse(lease)))
		}
		if !c.wanted.IsZero() {
			earliest(&next, c.wanted.Add(b.rules.ReadWait))
		}
		for _, w := range c.queue {
			earliest(&next, w.deadline)
		}
		if c.asked == 0 && len(c.queue) == 0 {
			continue
		}
		for _, h := range c.holders {
			if h.pending != nil {
				earliest(&next, h.pending.at.Add(b.patience(h)))
				continue
			}
			if len(c.queue) > 0 && !h.restUntil.IsZero() {
				earliest(&next, h.restUntil)
			}
			if len(c.queue) > 0 && h.unresponsive {
				earliest(&next, h.silentSince.Add(b.rules.Forgive))
			}
		}
	}
	return next
}

// Relieve asks idle pagers for pages where a card is about to be full. A pager yields only when it faults itself, reads
// the card every two seconds, and leaves no more than PagerFloor to others whatever its headroom: so the pages are taken
// before somebody else's fault needs them, and no pager is counted on to notice. Call it at every sweep.
func (b *Books) Relieve(now time.Time) Outcome {
	var out Outcome
	for _, c := range b.order {
		if !c.known || !c.wanted.IsZero() || len(c.queue) > 0 || !c.pagedAndUsed() {
			continue
		}
		short := addBytes(addBytes(PagerFloor, b.rules.Slack), -b.available(c))
		if short <= 0 {
			continue
		}
		headroom := &waiter{card: c, ask: Ask{ID: "for headroom", Device: c.device}, need: need{total: PagerFloor + b.rules.Slack}}
		b.planReleases(now, headroom, short, tierIdle, &out)
	}
	return b.done(out)
}

// pagedAndUsed tells whether a process that computes on the card has paged models, whose faults need room.
func (c *card) pagedAndUsed() bool {
	for _, h := range c.holders {
		if !h.member.phase.computes() {
			continue
		}
		for i := range h.reported.Models {
			if h.reported.Models[i].Paged {
				return true
			}
		}
	}
	return false
}

// Cards is what a sweep needs to know of every card that has been read.
func (b *Books) Cards() []CardState {
	cards := make([]CardState, 0, len(b.order))
	for _, c := range b.order {
		if !c.known {
			continue
		}
		cards = append(cards, CardState{Device: c.device, Total: c.reading.Total, Free: c.reading.Free,
			Wanted: addBytes(c.reading.Free, -b.available(c))})
	}
	return cards
}

// Workers is what a sweep needs to know of every worker, ordered by party.
func (b *Books) Workers() []WorkerState { return b.AppendWorkers(nil) }

// AppendWorkers is Workers in a slice that is used again.
func (b *Books) AppendWorkers(workers []WorkerState) []WorkerState {
	workers = slices.Grow(workers, len(b.members))
	held := 0
	for _, m := range b.parties {
		held += len(m.holders)
	}
	holdings := make([]Holding, 0, held) // one allocation for all
	for _, m := range b.parties {
		if m.party.IsHost() {
			continue
		}
		state := WorkerState{Party: m.party, Phase: m.phase, IdleSince: m.idleSince, PromptOver: m.promptOver,
			StandIns: m.standIns, Handles: m.handles, AskedAt: m.askedAt}
		first := len(holdings)
		for _, h := range m.holders {
			holdings = append(holdings, Holding{h.card.device, h.charge})
		}
		state.Held = holdings[first:len(holdings):len(holdings)]
		workers = append(workers, state)
	}
	return workers
}

// HolderState is one party on one card, for status and metrics.
type HolderState struct {
	Party    Party  `json:"party"`
	Device   string `json:"device"`
	Charge   Bytes  `json:"charge"`
	Reported Bytes  `json:"reported"`
	Driver   Bytes  `json:"driver"` // below 0: the driver cannot tell
	Models   int    `json:"models"`
	// Contradicted: the driver's figure and the report differ by more than Rules.LieMargin.
	Contradicted bool `json:"contradicted,omitempty"`
	// Unresponsive: it did not answer the last release; Dry: it has no more to give.
	Unresponsive bool  `json:"unresponsive,omitempty"`
	Dry          bool  `json:"dry,omitempty"`
	Asked        Bytes `json:"asked,omitempty"` // by a release that has not been answered
}

// CardView is one card with everything that is known about it.
type CardView struct {
	Device  string        `json:"device"`
	Reading Reading       `json:"reading"`
	Known   bool          `json:"known"`
	Holders []HolderState `json:"holders"`
	Leases  []Lease       `json:"leases"`
	Waiting []Ask         `json:"waiting"`
	// Promised is what leases hold back, Available what is free beyond that; Unattributed is held by nobody we know.
	Promised     Bytes `json:"promised"`
	Available    Bytes `json:"available"`
	Unattributed Bytes `json:"unattributed"`
}

// View shows every card, ordered by device.
func (b *Books) View() []CardView {
	views := make([]CardView, 0, len(b.order))
	for _, c := range b.order {
		view := CardView{Device: c.device, Reading: c.reading, Known: c.known, Available: b.available(c)}
		view.Promised = addBytes(c.reading.Free, -view.Available)
		if c.known {
			view.Unattributed = max(0, c.unaccounted())
		}
		for _, h := range c.holders {
			state := HolderState{Party: h.member.party, Device: c.device, Charge: h.charge, Reported: h.asReported(&b.rules),
				Driver: h.driver, Models: len(h.reported.Models), Contradicted: h.contradicted >= 2, Unresponsive: h.unresponsive, Dry: h.dry}
			if h.pending != nil {
				state.Asked = h.pending.bytes
			}
			view.Holders = append(view.Holders, state)
		}
		for _, lease := range c.leases {
			view.Leases = append(view.Leases, *lease)
		}
		for _, w := range c.queue {
			view.Waiting = append(view.Waiting, w.ask)
		}
		views = append(views, view)
	}
	return views
}
