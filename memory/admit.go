package memory

import (
	"cmp"
	"slices"
	"time"
)

// waiter is an ask that has not been answered.
type waiter struct {
	ask      Ask
	need     need
	member   *member
	card     *card
	order    uint64
	since    time.Time
	deadline time.Time
	passed   int  // later asks that were granted before this one
	told     bool // the wait was made an event
}

// Ask takes a load's request. The answer is in this outcome or in a later one; the same ID asked again gets the same
// answer and no second lease. A party's thread loads one thing at a time, so a new ask drops its older one on the same
// device, and the lease of an older load there.
func (b *Books) Ask(now time.Time, ask Ask) Outcome {
	var out Outcome
	if answer, ok := b.settled.find(ask.ID); ok {
		out.Answers = append(out.Answers, answer)
		return b.done(out)
	}
	if b.waiting[ask.ID] != nil {
		return b.done(out) // doubled on its way here
	}
	m := b.members[ask.Party]
	if m == nil {
		b.answer(&out, Answer{Ask: ask.ID, Party: ask.Party, Device: ask.Device, Verdict: Dropped, Cause: CauseStale})
		return b.done(out)
	}
	if wrong := repairAsk(&ask); wrong != nil {
		out.Events = append(out.Events, Event{Kind: EventObjection, Party: ask.Party, Device: ask.Device, Cause: "repaired", Terms: wrong})
	}
	b.use(now, m, ask.Models)
	c := b.card(ask.Device)
	b.forgive(now, c)
	for _, older := range b.waitersOf(ask.Party) {
		if older.card == c {
			b.drop(now, older, CauseSuperseded, &out)
		}
	}
	for _, lease := range slices.Clone(c.leases) {
		if lease.Party == ask.Party {
			b.endLease(now, lease, CauseSuperseded, &out)
		}
	}
	b.asked++
	w := &waiter{ask: ask, need: needOf(&ask, &b.rules), member: m, card: c, order: b.asked, since: now, deadline: ask.Deadline}
	if ask.KeptBack > 0 {
		w.since = now.Add(-ask.KeptBack)
		w.need.terms = append(w.need.terms, Span("kept back", ask.KeptBack))
	}
	if w.deadline.IsZero() {
		w.deadline = now.Add(b.rules.AskWait)
	}
	b.limit(w, &out)
	b.waiting[ask.ID] = w
	m.waits++
	c.queue = append(c.queue, w)
	c.touched = true
	b.renew(now, m)
	return b.settle(now, out)
}

// modelsKept is how many models of a party are remembered by their use.
const modelsKept = 256

// use notes that models are used, and forgets the longest unused when there are too many.
func (b *Books) use(now time.Time, m *member, models []string) {
	for _, name := range models {
		b.rhythm(m.party.Session).use(now, used{m.party.Environment, name})
		reuse := m.models[name]
		if reuse == nil {
			if m.models == nil {
				m.models = make(map[string]*Reuse)
			}
			reuse = &Reuse{}
			m.models[name] = reuse
		}
		reuse.Used(now)
	}
	for len(m.models) > modelsKept {
		oldest := ""
		for name, reuse := range m.models {
			if oldest == "" || cmp.Or(reuse.Last.Compare(m.models[oldest].Last), cmp.Compare(name, oldest)) < 0 {
				oldest = name
			}
		}
		delete(m.models, oldest)
	}
}

// limit applies an operator's cap to an ask: what does not fit under it is not admitted, and a cap under which not even
// the smallest piece could be computed is said before the load fails.
func (b *Books) limit(w *waiter, out *Outcome) {
	cap := w.member.vramCap
	if cap <= 0 {
		return
	}
	held := b.holder(w.member, w.card.device).charge
	room := max(0, cap-held)
	least := addBytes(w.need.work, w.ask.LargestTensor)
	if room < min(least, w.need.take) {
		out.Events = append(out.Events, Event{Kind: EventCap, Party: w.ask.Party, Device: w.card.device, Cause: "vram_cap", Terms: Terms{
			Amount("cap", cap), Amount("held", held), Amount("computing takes", w.need.work), Amount("largest tensor", w.ask.LargestTensor)}})
	}
	if w.need.take > room {
		over := w.need.take - room
		w.need.take, w.need.total = room, max(0, w.need.total-over)
		w.need.work = min(w.need.work, room)
		w.need.terms = append(w.need.terms, Amount("left under the cap", room))
	}
}

// Withdraw notes that a process no longer waits for an answer and went on under upstream's rules.
func (b *Books) Withdraw(now time.Time, ask string) Outcome {
	var out Outcome
	if w := b.waiting[ask]; w != nil {
		b.force(now, w, CauseWithdrawn, &out)
	}
	return b.settle(now, out)
}

// Restore opens a lease that somebody else granted before these books were opened. What it was granted on is not known, so
// it counts as forced. One whose weights are there already is taken to be what its party holds by now; one that loads is
// still to come. A party that is unknown, or a name that is in use, changes nothing.
func (b *Books) Restore(now time.Time, lease Lease) Outcome {
	var out Outcome
	m := b.members[lease.Party]
	if m == nil || b.leases[lease.Ask] != nil || b.waiting[lease.Ask] != nil {
		return b.done(out)
	}
	h := b.holder(m, lease.Device)
	bytes := min(max(0, lease.Bytes), plausible)
	restored := &Lease{Ask: lease.Ask, Party: lease.Party, Device: lease.Device, Bytes: bytes, Forced: true, Working: lease.Working,
		GrantedAt: now, RenewedAt: now, base: h.confirmed, workBase: -1, heldBefore: h.reported.Held}
	if lease.Working {
		restored.work, restored.base = bytes, 0
	}
	b.leases[restored.Ask] = restored
	h.card.leases = append(h.card.leases, restored)
	h.card.touched = true
	out.Events = append(out.Events, Event{Kind: EventRestored, Party: lease.Party, Device: lease.Device, Cause: "granted_before", Terms: Terms{
		Amount("lease", bytes), Amount("held", h.reported.Held), Amount("free", h.card.reading.Free)}})
	return b.settle(now, out)
}

// Resident notes that a load has ended and its weights are on the device. held is what the process holds there at that
// moment, as its census counts; below 0: it did not say. The lease then covers the computation alone, as soon as a reading
// of the card has seen the weights.
func (b *Books) Resident(now time.Time, ask string, held Bytes) Outcome {
	var out Outcome
	if lease := b.leases[ask]; lease != nil && lease.residentAt.IsZero() {
		lease.residentAt, lease.RenewedAt = now, now
		if held >= 0 {
			loaded := max(0, min(held, plausible)-lease.heldBefore)
			lease.workBase = addBytes(addBytes(lease.base, loaded), lease.context)
		}
		c := b.cards[lease.Device]
		if len(c.queue) > 0 {
			b.wantReading(now, c, &out)
		}
	}
	return b.settle(now, out)
}

// Finished ends the lease of a load whose computation is over, or that failed.
func (b *Books) Finished(now time.Time, ask string) Outcome {
	var out Outcome
	if lease := b.leases[ask]; lease != nil {
		b.endLease(now, lease, "finished", &out)
	}
	return b.settle(now, out)
}

// Tick does what only the passing of time brings: deadlines, releases that nobody answered, leases that lapse, readings
// that did not come.
func (b *Books) Tick(now time.Time) Outcome {
	var out Outcome
	for _, c := range b.order {
		c.touched = true
		for _, lease := range slices.Clone(c.leases) {
			if elapsed(lease.RenewedAt, now) >= b.lapse(lease) {
				b.endLease(now, lease, "lapsed", &out)
			}
		}
		b.giveUpReleases(now, c, &out)
		if !c.wanted.IsZero() && elapsed(c.wanted, now) >= b.rules.ReadWait {
			if c.known {
				b.look(c, b.fromBooks(now, c), &out)
			} else {
				for _, w := range slices.Clone(c.queue) {
					b.force(now, w, CauseNoReading, &out)
				}
				c.wanted = time.Time{}
			}
		}
		for _, w := range slices.Clone(c.queue) {
			if !now.Before(w.deadline) {
				b.force(now, w, CauseDeadline, &out)
			}
		}
	}
	return b.settle(now, out)
}

// settle grants what fits, breaks waits that would never end, and then asks for releases where something is still short.
// It is the end of every transaction. Releases come last: a party that goes on in this very transaction is not asked.
func (b *Books) settle(now time.Time, out Outcome) Outcome {
	for {
		any := false
		for _, c := range b.order {
			if c.touched && len(c.queue) > 0 && b.pictured(now, c, &out) {
				any = true
				b.admit(now, c, &out)
			}
		}
		if !any || len(b.waiting) < 2 || !b.breakCycle(now, &out) {
			break
		}
	}
	for _, c := range b.order {
		if c.touched && len(c.queue) > 0 && b.pictured(now, c, &out) {
			b.request(now, c, &out)
		}
		c.touched = false
	}
	return b.done(out)
}

// done closes an outcome: it says when time alone will change something.
func (b *Books) done(out Outcome) Outcome {
	out.Next = b.next()
	return out
}

// pictured tells whether a card's reading is fresh enough to decide on, and asks for one if it is not: neither grants nor
// releases stand on an old picture.
func (b *Books) pictured(now time.Time, c *card, out *Outcome) bool {
	if !c.known || elapsed(c.reading.At, now) > b.rules.ReadingAge {
		b.wantReading(now, c, out)
	}
	return c.wanted.IsZero()
}

// line is the queue of one card as an ask finds it.
type line struct {
	available Bytes // what no live lease holds back
	room      Bytes // what would be free if all but those who wait had finished
	// ahead is wanted by earlier asks; of that, aheadAlone by those that wait for nobody in the queue.
	ahead, aheadAlone Bytes
}

func (b *Books) newLine(c *card) line {
	return line{available: b.available(c), room: b.roomWithoutWaiters(c)}
}

// before is what is kept for asks before this one. An ask that waits for bytes which another keeps while it waits itself
// does not hold that other back: else both would wait for ever.
func (l *line) before(w *waiter) Bytes {
	if w.keeps() {
		return l.aheadAlone
	}
	return l.ahead
}

// wait adds an ask that could not be granted.
func (l *line) wait(want Bytes) {
	l.ahead = addBytes(l.ahead, want)
	if want <= l.room {
		l.aheadAlone = addBytes(l.aheadAlone, want)
	}
}

// keeps tells whether an ask's party keeps bytes on the card for its load, which others may wait for.
func (w *waiter) keeps() bool { return w.ask.Keep > 0 }

// admit goes through one card's queue in the order of asking and grants what fits.
func (b *Books) admit(now time.Time, c *card, out *Outcome) {
	l := b.newLine(c)
	for _, w := range slices.Clone(c.queue) {
		reach := b.reach(w)
		want := min(w.need.total, max(0, reach))
		fits := l.available-l.before(w) >= want
		overtakes := !fits && l.available >= want && w.need.total == want && b.mayOvertake(c, w)
		if !fits && !overtakes {
			l.wait(want)
			continue
		}
		verdict, cause := Granted, CauseFits
		if want < w.need.total {
			verdict, cause = Short, CauseNothing
		}
		if overtakes {
			b.noteOvertaking(c, w)
		}
		if verdict == Short && l.available < w.need.work {
			b.force(now, w, cause, out) // not even its computation fits into what is left
			l.available = b.available(c)
			continue
		}
		l.available -= b.grant(now, w, verdict, cause, l.available, reach, out)
	}
}

// request asks for what the asks that still wait on a card lack.
func (b *Books) request(now time.Time, c *card, out *Outcome) {
	l := b.newLine(c)
	for _, w := range c.queue {
		reach := b.reach(w)
		want := min(w.need.total, max(0, reach))
		b.planReleases(now, w, addBytes(addBytes(l.before(w), want), -l.available), tierOtherHost, out)
		if !w.told {
			w.told = true
			out.Events = append(out.Events, Event{Kind: EventWaiting, Party: w.ask.Party, Device: c.device, Cause: "short_of_memory",
				Terms: append(slices.Clone(w.need.terms), Amount("free", c.reading.Free), Amount("promised to others", c.reading.Free-l.available),
					Amount("wanted by earlier asks", l.before(w)), Amount("within reach", reach))})
		}
		l.wait(want)
	}
}

// mayOvertake tells whether every earlier ask can still be passed.
func (b *Books) mayOvertake(c *card, w *waiter) bool {
	for _, other := range c.queue {
		if other.order < w.order && other.passed >= b.rules.Overtakes {
			return false
		}
	}
	return true
}

func (b *Books) noteOvertaking(c *card, w *waiter) {
	for _, other := range c.queue {
		if other.order < w.order {
			other.passed++
		}
	}
}

// available is what no live lease holds back, in bytes; below zero after forced leases and when a foreign process takes
// what was promised.
func (b *Books) available(c *card) Bytes {
	available := c.reading.Free
	for _, lease := range c.leases {
		available = addBytes(available, -lease.outstanding(b.confirmed(lease)))
	}
	return available
}

// confirmed is a lease's party's charge on its card as the last reading has seen it.
func (b *Books) confirmed(lease *Lease) Bytes {
	if m := b.members[lease.Party]; m != nil {
		for _, h := range m.holders {
			if h.card.device == lease.Device {
				return h.confirmed
			}
		}
	}
	return 0
}

// grant opens a lease and answers. It returns what the lease holds back.
func (b *Books) grant(now time.Time, w *waiter, verdict Verdict, cause string, available, reach Bytes, out *Outcome) Bytes {
	held := w.need.take
	if verdict == Short {
		held = min(held, max(0, available))
	}
	b.lease(now, w, held, false)
	b.conclude(now, w, verdict, cause, held, available, reach, out)
	return held
}

// force lets a load go on under upstream's own rules. Its lease holds what is there for it, and at least what computing
// takes, which may not fit.
func (b *Books) force(now time.Time, w *waiter, cause string, out *Outcome) {
	available := b.available(w.card)
	held := max(min(w.need.take, max(0, available)), min(w.need.take, w.need.work))
	b.lease(now, w, held, true)
	b.conclude(now, w, Forced, cause, held, available, b.reach(w), out)
}

func (b *Books) lease(now time.Time, w *waiter, bytes Bytes, forced bool) {
	h := b.holder(w.member, w.card.device)
	lease := &Lease{Ask: w.ask.ID, Party: w.ask.Party, Device: w.card.device, Bytes: bytes, Forced: forced,
		GrantedAt: now, RenewedAt: now, work: min(w.need.work, bytes), base: h.confirmed, workBase: -1, heldBefore: h.reported.Held}
	if !w.ask.Context {
		lease.context = b.rules.ContextFloor
	}
	b.leases[lease.Ask] = lease
	w.card.leases = append(w.card.leases, lease)
	w.card.touched = true
}

// conclude takes an ask out of the queue and answers it.
func (b *Books) conclude(now time.Time, w *waiter, verdict Verdict, cause string, held, available, reach Bytes, out *Outcome) {
	b.remove(w)
	others := max(0, w.card.reading.Free-available)
	usable, own := b.usable(w, available)
	var headroom Bytes
	if w.ask.Paged {
		pages := addBytes(b.holder(w.member, w.card.device).charge, usable-min(usable, w.need.work))
		headroom = min(max(PagerFloor, addBytes(w.card.reading.Total-w.card.reading.Driver, -pages)), PagerHeadroomLimit)
	}
	b.answer(out, Answer{Ask: w.ask.ID, Party: w.ask.Party, Device: w.card.device, Verdict: verdict, Cause: cause, Lease: held,
		Reserve: w.ask.Load.Reserve + float64(own-usable), Headroom: headroom, Waited: elapsed(w.since, now),
		Terms: append(slices.Clone(w.need.terms), Amount("free", w.card.reading.Free), Amount("promised to others", others),
			Amount("available", available), Amount("within reach", reach), Amount("lease", held), Span("waited", elapsed(w.since, now)),
			Fact("read from", string(w.card.reading.Source)))})
}

// usable is what of a card a load may take, and own what the loading process itself reads as free. The difference is what
// upstream's own sum must leave alone: bytes promised to others, bytes that a process-local reading does not see, and what
// is beyond an operator's cap.
func (b *Books) usable(w *waiter, available Bytes) (usable, own Bytes) {
	reading := &w.card.reading
	held := b.holder(w.member, w.card.device).charge
	own = reading.Free
	if reading.ProcessLocal {
		own = max(reading.Free, reading.Total-reading.Driver-held)
	}
	usable = min(max(0, available), reading.Free)
	if limit := w.member.vramCap; limit > 0 {
		usable = min(usable, max(0, limit-held))
	}
	return usable, own
}

// drop answers an ask that nobody waits for any more.
func (b *Books) drop(now time.Time, w *waiter, cause string, out *Outcome) {
	b.remove(w)
	b.answer(out, Answer{Ask: w.ask.ID, Party: w.ask.Party, Device: w.card.device, Verdict: Dropped, Cause: cause, Waited: elapsed(w.since, now)})
}

func (b *Books) remove(w *waiter) {
	delete(b.waiting, w.ask.ID)
	w.member.waits--
	w.card.touched = true
	w.card.queue = slices.DeleteFunc(w.card.queue, func(other *waiter) bool { return other == w })
}

func (b *Books) answer(out *Outcome, answer Answer) {
	b.settled.add(answer)
	out.Answers = append(out.Answers, answer)
	out.Events = append(out.Events, Event{Kind: EventAnswered, Party: answer.Party, Device: answer.Device,
		Cause: string(answer.Verdict) + "/" + answer.Cause, Terms: answer.Terms})
}

func (b *Books) endLeases(now time.Time, m *member, cause string, out *Outcome) {
	for _, h := range m.holders {
		for _, lease := range slices.Clone(h.card.leases) {
			if lease.Party == m.party {
				b.endLease(now, lease, cause, out)
			}
		}
	}
}

func (b *Books) endLease(now time.Time, lease *Lease, cause string, out *Outcome) {
	c := b.cards[lease.Device]
	c.touched = true
	left := lease.outstanding(b.confirmed(lease))
	delete(b.leases, lease.Ask)
	c.leases = slices.DeleteFunc(c.leases, func(other *Lease) bool { return other == lease })
	out.Events = append(out.Events, Event{Kind: EventLeaseEnded, Party: lease.Party, Device: lease.Device, Cause: cause,
		Terms: Terms{Amount("granted", lease.Bytes), Amount("not used", left), Span("held", elapsed(lease.GrantedAt, now))}})
	if len(c.queue) > 0 {
		b.wantReading(now, c, out)
	}
}

// lapse is how long a lease may go without a sign of life.
func (b *Books) lapse(lease *Lease) time.Duration {
	if lease.Working {
		return b.rules.WorkLapse
	}
	return b.rules.LoadLapse
}

// renew notes a sign of life on every lease of a party.
func (b *Books) renew(now time.Time, m *member) {
	for _, h := range m.holders {
		for _, lease := range h.card.leases {
			if lease.Party == m.party && now.After(lease.RenewedAt) {
				lease.RenewedAt = now
			}
		}
	}
}

// wantReading asks for a fresh reading, once.
func (b *Books) wantReading(now time.Time, c *card, out *Outcome) {
	if c.wanted.IsZero() {
		c.wanted = now
		out.Read = append(out.Read, c.device)
	}
}

func (b *Books) waitersOf(party Party) (found []*waiter) {
	m := b.members[party]
	if m == nil || m.waits == 0 {
		return nil
	}
	for _, c := range b.order {
		for _, w := range c.queue {
			if w.ask.Party == party {
				found = append(found, w)
			}
		}
	}
	return found
}
