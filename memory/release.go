package memory

import (
	"cmp"
	"slices"
	"time"
)

// Tiers of release, in order of what they cost whoever is asked. Within a tier the cheapest is what is used again last.
const (
	tierPromptOver = iota // workers that no running prompt uses
	// tierIdle is what a running prompt will come back to: the asking session's host through its own free_memory, idle
	// workers, the asker's other models. Asking the host before all workers would evict what is used in a second for what
	// is used in a minute: 1.24 times the oracle's bytes instead of 1.15 on the simulator's process-local workload.
	tierIdle
	tierWaiting   // other models of processes that wait for a lease
	tierOtherHost // other sessions' hosts, at their next moment
	noTier        // not now: it computes, starts, stops, or gave all it has
)

// tierNames are what events call the tiers.
var tierNames = [noTier]string{
	"worker whose prompt is over", "idle, by its next use", "other models of a waiting process", "another session's host",
}

// tier says where a party stands in line for an ask.
func (b *Books) tier(w *waiter, h *holder) int {
	m := h.member
	switch {
	case h.dry && !h.wantFull, h.unresponsive:
		return noTier
	case m == w.member:
		return tierIdle
	case m.waits > 0:
		return tierWaiting
	case m.party.IsHost() && m.party.Session == w.ask.Party.Session:
		return tierIdle
	case m.party.IsHost():
		return tierOtherHost
	case !m.phase.Idle():
		return noTier
	case m.promptOver:
		return tierPromptOver
	}
	return tierIdle
}

// releasable is what a party could give on its card: what it is charged, less its context, and less what it needs for
// the load that it waits for. Of a host only models and idle cache can go, and what the driver sees beyond its report: a
// host reports between nodes, so that may be a model that it has loaded since. What is not worth a message is nothing.
func (b *Books) releasable(h *holder) Bytes {
	give := h.charge
	if h.reported.Context || h.driver > 0 {
		give -= min(give, b.rules.ContextFloor)
	}
	if h.member.party.IsHost() {
		known := addBytes(h.reported.residentModels(), h.reported.TorchIdle)
		if unreported := addBytes(h.driver, -h.asReported(&b.rules)); unreported > b.rules.LieMargin {
			known = addBytes(known, unreported)
		}
		give = min(give, known)
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
	if h.dry && !h.wantFull {
		return false
	}
	switch h.member.phase {
	case Ready, Released:
		return !h.unresponsive
	case Busy: // it answers when its call ends
		return true
	}
	return false
}

// planReleases asks others for what an ask lacks, the cheapest first, and never for more than that and Slack. What was
// asked before and not answered yet counts as coming. Tiers after lastTier are spared.
//
// Within a tier the cheapest is what will be used again last, model by model. Left to itself a process would give its
// models in upstream's order, which knows nothing of their use; so the action names the models to keep, for upstream's
// own keep_loaded.
func (b *Books) planReleases(now time.Time, w *waiter, short Bytes, lastTier int, out *Outcome) {
	if w.card.asked > 0 {
		for _, h := range w.card.holders {
			if h.pending != nil {
				short = addBytes(short, -h.pending.bytes)
			}
		}
	}
	if short <= 0 {
		return
	}
	var pieces []piece
	for _, h := range w.card.holders {
		if h.pending != nil || now.Before(h.restUntil) {
			continue
		}
		if tier := b.tier(w, h); tier <= lastTier {
			pieces = b.appendPieces(pieces, now, h, tier)
		}
	}
	slices.SortFunc(pieces, comparePieces)
	var chosen []*request
	byHolder := make(map[*holder]*request)
	for lacking := short; lacking > 0 && len(pieces) > 0; pieces = pieces[1:] {
		next := &pieces[0]
		r := byHolder[next.holder]
		if r == nil {
			r = &request{holder: next.holder, tier: next.tier}
			byHolder[next.holder] = r
			chosen = append(chosen, r)
		}
		bytes := min(next.bytes, addBytes(lacking, b.rules.Slack))
		r.bytes = addBytes(r.bytes, bytes)
		r.models = append(r.models, next.model)
		lacking = addBytes(lacking, -bytes)
	}
	for _, r := range chosen {
		b.askRelease(now, w, r, short, out)
	}
}

// piece is a model that could leave a card, or what no model accounts for.
type piece struct {
	holder *holder
	tier   int
	model  string // empty: caches, plain modules, or all of a party that names no models
	bytes  Bytes
	next   time.Time // when it is thought to be used again
}

// comparePieces puts the cheapest first.
func comparePieces(x, y piece) int {
	return cmp.Or(
		cmp.Compare(x.tier, y.tier),
		y.next.Compare(x.next), // what is used again last
		cmp.Compare(y.bytes, x.bytes),
		x.holder.member.party.Compare(y.holder.member.party),
		cmp.Compare(x.model, y.model),
	)
}

// request is what one party is to be asked for.
type request struct {
	holder *holder
	tier   int
	bytes  Bytes
	models []string
}

// appendPieces adds what a party could give.
func (b *Books) appendPieces(pieces []piece, now time.Time, h *holder, tier int) []piece {
	give := b.releasable(h)
	for i := range h.reported.Models {
		model := &h.reported.Models[i]
		if bytes := min(model.Resident, give); bytes > 0 && !h.keepsModel(model.Name) {
			pieces = append(pieces, piece{h, tier, model.Name, bytes, b.nextUse(now, h.member, model.Name)})
			give -= bytes
		}
	}
	if give > 0 {
		pieces = append(pieces, piece{h, tier, "", give, b.nextUse(now, h.member, "")})
	}
	return pieces
}

// keep is the models that a request leaves alone; none when it takes what no model accounts for.
func (r *request) keep() (names []string) {
	if slices.Contains(r.models, "") {
		return nil
	}
	for i := range r.holder.reported.Models {
		if model := &r.holder.reported.Models[i]; model.Resident > 0 && !slices.Contains(r.models, model.Name) {
			names = append(names, model.Name)
		}
	}
	return names
}

// keepsModel tells whether a party that waits for a load on this card needs a model for it.
func (h *holder) keepsModel(name string) bool {
	if h.member.waits == 0 {
		return false
	}
	for _, w := range h.card.queue {
		if w.member == h.member && slices.Contains(w.ask.Models, name) {
			return true
		}
	}
	return false
}

// nextUse guesses when a model of a party is used again, or with no name the party itself: as the session's workflow
// plans it; else, what the plan does not know, after the plan's horizon; else by the intervals between its uses.
func (b *Books) nextUse(now time.Time, m *member, model string) time.Time {
	r := b.rhythm(m.party.Session)
	if next, ok := r.next(now, used{m.party.Environment, model}); ok {
		return next
	}
	reuse := &m.reuse
	if model != "" && m.models[model] != nil {
		reuse = m.models[model]
	}
	if r.current != nil && len(r.current.uses) > 0 {
		return later(r.horizon(now), now.Add(elapsed(reuse.Last, now)))
	}
	return reuse.Next(now)
}

func (b *Books) askRelease(now time.Time, w *waiter, r *request, short Bytes, out *Outcome) {
	h, kind := r.holder, PartialRelease
	switch {
	case h.member.party.IsHost():
		kind = FreeMemory
	case h.wantFull && r.tier == tierPromptOver:
		kind = FullRelease
	}
	h.pending = &pendingRelease{kind: kind, bytes: r.bytes, at: now}
	h.card.asked++
	h.claimed, h.claimBase = 0, h.driver
	action := Action{Kind: kind, Party: h.member.party, Device: w.card.device, Bytes: r.bytes, For: w.ask.Party, Keep: r.keep(), Cause: "ask " + w.ask.ID, Terms: Terms{
		Amount("needed", w.need.total), Amount("free", w.card.reading.Free),
		Amount("short", short), Amount("could give", b.releasable(h)), Fact("line", tierNames[r.tier])}}
	out.Actions = append(out.Actions, action)
	out.Events = append(out.Events, Event{Kind: EventAsked, Party: action.Party, Device: action.Device, Cause: action.Cause,
		Terms: append(Terms{Fact("kind", string(kind)), Fact("for", w.ask.Party.String()), Amount("asked", r.bytes)}, action.Terms...)})
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
		h.answered()
		h.claimed = freed
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
	b.forgive(now, c)
	for _, h := range c.holders {
		if h.pending == nil || elapsed(h.pending.at, now) < b.patience(h) {
			continue
		}
		out.Events = append(out.Events, Event{Kind: EventUnanswered, Party: h.member.party, Device: c.device, Cause: string(h.pending.kind),
			Terms: Terms{Amount("asked", h.pending.bytes), Span("waited", elapsed(h.pending.at, now))}})
		h.answered()
		h.unresponsive, h.silentSince = true, now
	}
}

// forgive lets parties be asked again that were left alone, or did not answer, for long enough.
func (b *Books) forgive(now time.Time, c *card) {
	for _, h := range c.holders {
		if !now.Before(h.restUntil) {
			h.restUntil = time.Time{}
		}
		if h.unresponsive && elapsed(h.silentSince, now) >= b.rules.Forgive {
			h.unresponsive = false
		}
	}
}

// answered notes that no release is under way any more.
func (h *holder) answered() {
	if h.pending != nil {
		h.pending = nil
		h.card.asked--
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
