package memory

import (
	"cmp"
	"slices"
	"time"
)

// Tiers of release, in order of what they cost whoever is asked.
const (
	tierPromptOver = iota // workers that no running prompt uses
	tierAsker             // other models of the asking process itself
	tierHost              // the asking session's host, through its own free_memory
	tierSamePrompt        // idle workers of the asking session
	tierOtherIdle         // idle workers of other sessions whose prompt runs
	tierWaiting           // other models of processes that wait for a lease
	tierOtherHost         // other sessions' hosts, at their next moment
	noTier                // not now: it computes, starts, stops, or gave all it has
)

// tierNames are what events call the tiers.
var tierNames = [noTier]string{
	"worker whose prompt is over", "other models of the asking process", "the asking session's host",
	"idle worker of this session", "idle worker of another session", "other models of a waiting process", "another session's host",
}

// tier says where a party stands in line for an ask.
func (b *Books) tier(w *waiter, h *holder) int {
	m := h.member
	switch {
	case h.dry && !h.wantFull, h.unresponsive:
		return noTier
	case m == w.member:
		return tierAsker
	case m.waits > 0:
		return tierWaiting
	case m.party.IsHost() && m.party.Session == w.ask.Party.Session:
		return tierHost
	case m.party.IsHost():
		return tierOtherHost
	case !m.phase.Idle():
		return noTier
	case m.promptOver:
		return tierPromptOver
	case m.party.Session == w.ask.Party.Session:
		return tierSamePrompt
	}
	return tierOtherIdle
}

// releasable is what a party could give on its card: what it is charged, less its context, and less what it needs for
// the load that it waits for. Of a host only models and idle cache can go. What is not worth a message is nothing.
func (b *Books) releasable(h *holder) Bytes {
	give := h.charge
	if h.reported.Context || h.driver > 0 {
		give -= min(give, b.rules.ContextFloor)
	}
	if h.member.party.IsHost() {
		give = min(give, addBytes(h.reported.residentModels(), h.reported.TorchIdle))
	}
	if h.member.waits > 0 {
		give -= min(give, h.keptForLoads())
	}
	if give < max(1, b.rules.SmallestRelease) {
		return 0
	}
	return give
}

// keptForLoads is what a party keeps on its card for the loads that it waits for there, as far as it is charged for it.
func (h *holder) keptForLoads() (kept Bytes) {
	for _, w := range h.card.queue {
		if w.member == h.member {
			kept = addBytes(kept, w.ask.Keep)
		}
	}
	return min(kept, h.charge)
}

// reach is how much could be free for an ask on its card if everybody else had finished and given all they can, in
// bytes. An ask for more than that is an ask for that: upstream loads in part.
func (b *Books) reach(w *waiter) Bytes {
	reach := w.card.reading.Free
	for _, h := range w.card.holders {
		if !b.promising(h) {
			continue
		}
		reach = addBytes(reach, b.releasable(h))
		if h.member != w.member && h.member.waits > 0 {
			reach = addBytes(reach, h.keptForLoads())
		}
	}
	return reach
}

// promising tells whether what a party holds can be expected to come back while an ask waits: because it can be asked,
// or because it computes and can be asked afterwards.
func (b *Books) promising(h *holder) bool {
	if h.unresponsive || h.dry && !h.wantFull {
		return false
	}
	switch h.member.phase {
	case Ready, Released, Busy:
		return true
	}
	return false
}

// planReleases asks others for what an ask lacks, the cheapest first, and never for more than that and Slack. What was
// asked before and not answered yet counts as coming. Tiers after lastTier are spared.
func (b *Books) planReleases(now time.Time, w *waiter, short Bytes, lastTier int, out *Outcome) {
	for _, h := range w.card.holders {
		if h.pending != nil {
			short = addBytes(short, -h.pending.bytes)
		}
	}
	if short <= 0 {
		return
	}
	type candidate struct {
		holder *holder
		tier   int
		give   Bytes
		next   time.Time
	}
	var candidates []candidate
	for _, h := range w.card.holders {
		if h.pending != nil || now.Before(h.restUntil) {
			continue
		}
		tier := b.tier(w, h)
		give := b.releasable(h)
		if tier > lastTier || give == 0 {
			continue
		}
		candidates = append(candidates, candidate{h, tier, give, h.member.reuse.Next(now)})
	}
	slices.SortFunc(candidates, func(x, y candidate) int {
		return cmp.Or(
			cmp.Compare(x.tier, y.tier),
			y.next.Compare(x.next), // what is used again last goes first
			cmp.Compare(y.give, x.give),
			x.holder.member.party.Compare(y.holder.member.party),
		)
	})
	for _, candidate := range candidates {
		if short <= 0 {
			return
		}
		bytes := min(candidate.give, addBytes(short, b.rules.Slack))
		b.askRelease(now, w, candidate.holder, candidate.tier, bytes, short, out)
		short = addBytes(short, -bytes)
	}
}

func (b *Books) askRelease(now time.Time, w *waiter, h *holder, tier int, bytes, short Bytes, out *Outcome) {
	kind := PartialRelease
	switch {
	case h.member.party.IsHost():
		kind = FreeMemory
	case h.wantFull && tier == tierPromptOver:
		kind = FullRelease
	}
	h.pending = &pendingRelease{kind: kind, bytes: bytes, at: now}
	action := Action{Kind: kind, Party: h.member.party, Device: w.card.device, Bytes: bytes, Cause: "ask " + w.ask.ID, Terms: Terms{
		Fact("for", w.ask.Party.String()), Amount("needed", w.need.total), Amount("free", w.card.reading.Free),
		Amount("still short", short), Amount("could give", b.releasable(h)), Fact("line", tierNames[tier])}}
	out.Actions = append(out.Actions, action)
	out.Events = append(out.Events, Event{Kind: EventAsked, Party: action.Party, Device: action.Device, Cause: action.Cause,
		Terms: append(Terms{Fact("kind", string(kind)), Amount("asked", bytes)}, action.Terms...)})
}

// Receipt is what a party measured that it gave back.
type Receipt struct {
	Party  Party  `json:"party"`
	Device string `json:"device"` // empty: of a full release, all devices
	Freed  Bytes  `json:"freed"`  // by its own measure, before and after
	Held   Bytes  `json:"held"`   // what it holds now; below 0: it did not say
}

// Receipt takes the answer to a release. The card is read again before anything is decided on it.
func (b *Books) Receipt(now time.Time, receipt Receipt) Outcome {
	var out Outcome
	m := b.members[receipt.Party]
	if m == nil {
		out.Events = append(out.Events, Event{Kind: EventObjection, Party: receipt.Party, Device: receipt.Device, Cause: ObjectionUnknown,
			Terms: Terms{Amount("freed", receipt.Freed)}})
		return b.done(out)
	}
	if receipt.Device == "" {
		m.askedAt = time.Time{}
	}
	for _, h := range m.holders {
		if receipt.Device == "" || h.card.device == receipt.Device {
			b.takeReceipt(now, h, receipt, &out)
		}
	}
	b.renew(now, m)
	return b.settle(now, out)
}

func (b *Books) takeReceipt(now time.Time, h *holder, receipt Receipt, out *Outcome) {
	freed := min(max(0, receipt.Freed), h.charge)
	terms := Terms{Amount("freed", receipt.Freed)}
	if h.pending != nil {
		terms = append(terms, Amount("asked", h.pending.bytes), Span("took", elapsed(h.pending.at, now)))
		short := float64(freed) < float64(float64(h.pending.bytes)*b.rules.DryShare)
		switch {
		case !short:
			h.wantFull = false
		case h.pending.kind == PartialRelease && h.member.promptOver && !h.wantFull:
			h.wantFull = true
		default:
			h.dry, h.wantFull = true, false
		}
		if freed < h.pending.bytes || elapsed(h.answeredAt, now) < b.rules.Debounce && !h.answeredAt.IsZero() {
			h.restUntil = now.Add(b.rules.Debounce)
		}
		if h.wantFull {
			h.restUntil = time.Time{} // the next rung follows at once
		}
		h.pending = nil
		h.claimed, h.claimBase = freed, h.driver
	}
	h.unresponsive, h.answeredAt = false, now
	if receipt.Held >= 0 {
		h.reported.Held = min(receipt.Held, plausible)
		terms = append(terms, Amount("held now", receipt.Held))
	} else {
		h.reported.Held = max(0, h.reported.Held-freed)
	}
	h.reportedAt = now
	h.recharge(&b.rules)
	out.Events = append(out.Events, Event{Kind: EventReceipt, Party: h.member.party, Device: h.card.device, Cause: "released", Terms: terms})
	b.wantReading(now, h.card, out)
}

// checkClaim compares a receipt with the first reading after it: a party that says it freed what the driver still sees
// has nothing more to give.
func (h *holder) checkClaim(at time.Time, rules *Rules, out *Outcome) {
	if h.claimed == 0 || at.Before(h.answeredAt) {
		return
	}
	if h.driver >= 0 && h.claimBase >= 0 {
		seen := addBytes(h.claimBase, -h.driver)
		if float64(seen) < float64(float64(h.claimed)*rules.DryShare) && !h.member.phase.computes() {
			h.dry, h.wantFull = true, false
			out.Events = append(out.Events, Event{Kind: EventLie, Party: h.member.party, Device: h.card.device, Cause: "receipt",
				Terms: Terms{Amount("said to be freed", h.claimed), Amount("seen by the driver", seen)}})
		}
	}
	h.claimed = 0
}

// giveUpReleases stops counting on releases that nobody answered: others are asked instead, and a late receipt is still
// welcome.
func (b *Books) giveUpReleases(now time.Time, c *card, out *Outcome) {
	for _, h := range c.holders {
		if !now.Before(h.restUntil) {
			h.restUntil = time.Time{}
		}
		if h.pending == nil || elapsed(h.pending.at, now) < b.patience(h) {
			continue
		}
		out.Events = append(out.Events, Event{Kind: EventUnanswered, Party: h.member.party, Device: c.device, Cause: string(h.pending.kind),
			Terms: Terms{Amount("asked", h.pending.bytes), Span("waited", elapsed(h.pending.at, now))}})
		h.pending, h.unresponsive = nil, true
	}
}

// patience is how long a party may take over a release.
func (b *Books) patience(h *holder) time.Duration {
	if h.member.party.IsHost() {
		return b.rules.HostAnswer
	}
	return b.rules.WorkerAnswer
}

// HostTarget is the memory_required that a host's free_memory needs so that the card as a whole gets short more bytes
// free: its own reading, which may be blind to other processes, and the shortfall. Equivalently, the free bytes wanted on
// the card plus (the host's reading less the card's). In bytes; never below what makes upstream free nothing.
func HostTarget(short, hostReading Bytes) Bytes {
	if short <= 0 {
		return 0
	}
	return addBytes(short, hostReading)
}
