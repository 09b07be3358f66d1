package memory

import (
	"cmp"
	"slices"
	"time"
)

// Books is one machine's account of who holds what on which device, who was promised what, and who waits. It is a state
// machine: its owner tells it what happened and when, and does what the Outcome says. It is not safe for concurrent use;
// one goroutine owns it, which makes every ask one transaction.
type Books struct {
	rules   Rules
	cards   map[string]*card
	order   []*card // by name
	members map[Party]*member
	parties []*member          // by party
	waiting map[string]*waiter // by ask
	leases  map[string]*Lease  // by ask
	rhythms map[string]*rhythm // by session
	settled answerMemory
	asked   uint64 // counts asks: the order in which they came
}

// card is one device.
type card struct {
	device  string
	reading Reading
	known   bool      // a reading was seen; its Total stands though the rest may be old
	wanted  time.Time // when a fresh reading was asked for; zero: none is under way
	foreign Bytes     // held by nobody we know, at the last reading that could see it
	holders []*holder // ordered by party
	asked   int       // of the holders, by a release that has not been answered
	queue   []*waiter // in the order of asking
	leases  []*Lease
	touched bool // something changed since the last transaction settled it
}

// member is one living party.
type member struct {
	party      Party
	phase      Phase
	promptOver bool
	idleSince  time.Time
	reuse      Reuse
	models     map[string]*Reuse // by name, as asks tell
	standIns   int
	handles    int
	census     Census
	counted    bool // a census was seen
	vramCap    Bytes
	askedAt    time.Time // of a full release by the sweep that has not been answered
	waits      int       // asks that wait
	holders    []*holder
}

// holder is one party on one card.
type holder struct {
	member     *member
	card       *card
	reported   DeviceCensus
	reportedAt time.Time
	charge     Bytes // by the driver where it can tell, else by the report
	confirmed  Bytes // the charge that the last reading of the card has seen
	driver     Bytes // as the driver says; below 0: it does not

	pending      *pendingRelease
	answeredAt   time.Time // the last receipt
	restUntil    time.Time // left alone until then
	claimed      Bytes     // what the last receipt says was freed, until a reading has seen it
	claimBase    Bytes     // the most that the driver saw while it was under way
	wantFull     bool      // a partial release gave too little: the next is a full one
	dry          bool      // had no more to give, and nothing was used since
	unresponsive bool      // did not answer
	silentSince  time.Time // when that was noticed
	contradicted int       // readings in a row that contradict the report
}

// pendingRelease is a release that was asked and not answered.
type pendingRelease struct {
	kind  ActionKind
	bytes Bytes
	at    time.Time
}

// Outcome is what to do after something happened.
type Outcome struct {
	Answers []Answer
	Actions []Action
	Read    []string // devices to read again now
	Events  []Event
	Next    time.Time // when to call Tick if nothing happens before; zero: never
}

// Event is one decision with every term it used.
type Event struct {
	Kind   string `json:"kind"`
	Party  Party  `json:"party"`
	Device string `json:"device,omitempty"`
	Cause  string `json:"cause"`
	Terms  Terms  `json:"terms,omitempty"`
}

// Kinds of events.
const (
	EventAnswered   = "answered"
	EventWaiting    = "waiting"
	EventAsked      = "asked_release"
	EventReceipt    = "receipt"
	EventUnanswered = "release_unanswered"
	EventLeaseEnded = "lease_ended"
	EventObjection  = "objection"
	EventLie        = "report_contradicts_driver"
	EventReading    = "reading_refused"
	EventCap        = "cap_too_small"
	EventRestored   = "lease_restored"
)

// NewBooks opens the books.
func NewBooks(rules Rules) *Books {
	return &Books{
		rules: rules, cards: map[string]*card{}, members: map[Party]*member{},
		waiting: map[string]*waiter{}, leases: map[string]*Lease{}, rhythms: map[string]*rhythm{}, settled: newAnswerMemory(),
	}
}

// Join makes a party known. Its first phase is Starting for a worker and Ready for a host.
func (b *Books) Join(now time.Time, party Party) {
	if b.members[party] != nil {
		return
	}
	m := &member{party: party, phase: Starting, idleSince: now, promptOver: true}
	if party.IsHost() {
		m.phase = Ready
	}
	b.members[party] = m
	at, _ := b.findParty(party)
	b.parties = slices.Insert(b.parties, at, m)
}

func (b *Books) findParty(party Party) (int, bool) {
	return slices.BinarySearchFunc(b.parties, party, func(m *member, party Party) int { return m.party.Compare(party) })
}

// Gone forgets a party: its leases end, its asks are dropped, its bytes are no longer charged to it.
func (b *Books) Gone(now time.Time, party Party) Outcome {
	var out Outcome
	m := b.members[party]
	if m == nil {
		return b.done(out)
	}
	m.phase = Gone
	b.endLeases(now, m, CauseGone, &out)
	for _, w := range b.waitersOf(party) {
		b.drop(now, w, CauseGone, &out)
	}
	for _, h := range m.holders {
		h.answered()
		h.card.touched = true
		h.card.holders = slices.DeleteFunc(h.card.holders, func(other *holder) bool { return other == h })
	}
	delete(b.members, party)
	if at, ok := b.findParty(party); ok {
		b.parties = slices.Delete(b.parties, at, at+1)
	}
	for _, h := range m.holders {
		b.wantReading(now, h.card, &out)
	}
	return b.settle(now, out)
}

// Cap sets the most that a worker may hold on any one card, in bytes; 0 removes the cap.
func (b *Books) Cap(party Party, vram Bytes) {
	if m := b.members[party]; m != nil {
		m.vramCap = max(0, vram)
	}
}

// Need notes how many stand-ins and handles in the host still need a worker.
func (b *Books) Need(party Party, standIns, handles int) {
	if m := b.members[party]; m != nil {
		m.standIns, m.handles = max(0, standIns), max(0, handles)
	}
}

// Handles notes how many values of a worker others can still use, by its own count.
func (b *Books) Handles(party Party, handles int) {
	if m := b.members[party]; m != nil {
		m.handles = max(0, handles)
	}
}

// Phase notes where a party stands. A call's end (Busy to Ready) ends its leases; a call's start makes it worth asking
// again. promptOver: no prompt that runs or waits has a node of this party in its graph.
func (b *Books) Phase(now time.Time, party Party, phase Phase, promptOver bool) Outcome {
	var out Outcome
	m := b.members[party]
	if m == nil {
		return b.done(out)
	}
	m.promptOver = promptOver
	for _, h := range m.holders {
		h.card.touched = true
	}
	if phase == Busy && m.phase != Busy {
		m.reuse.Used(now)
		b.rhythm(party.Session).use(now, used{environment: party.Environment})
		for _, h := range m.holders {
			h.dry, h.wantFull = false, false
		}
	}
	if !m.phase.Idle() && phase.Idle() {
		m.idleSince = now
	}
	if m.phase == Busy && phase != Busy {
		for _, h := range m.holders {
			h.unresponsive = false // it came to a boundary, so it can be asked again
		}
		b.endLeases(now, m, "call_ended", &out)
	}
	if phase == Released && m.phase != Released {
		m.askedAt = time.Time{}
	}
	m.phase = phase
	return b.settle(now, out)
}

// Prompt notes that a session begins a prompt of a workflow, by any name that tells its workflows apart, or with an empty
// name that the prompt ended. It is what eviction knows of the future.
func (b *Books) Prompt(now time.Time, session, workflow string) {
	b.rhythm(session).prompt(now, workflow)
}

// Forget drops what is known of a session's workflows.
func (b *Books) Forget(session string) { delete(b.rhythms, session) }

func (b *Books) rhythm(session string) *rhythm {
	r := b.rhythms[session]
	if r == nil {
		r = &rhythm{}
		b.rhythms[session] = r
	}
	return r
}

// Asked notes that a sweep's full release was sent to a party.
func (b *Books) Asked(now time.Time, party Party) {
	if m := b.members[party]; m != nil {
		m.askedAt = now
	}
}

// Census takes a report. What is late, doubled or from nobody is dropped; what is negative or absurd is repaired; both
// are events.
func (b *Books) Census(now time.Time, census Census) Outcome {
	var out Outcome
	m := b.members[census.Party]
	refuse := func(why string) Outcome {
		out.Events = append(out.Events, Event{Kind: EventObjection, Party: census.Party, Cause: why,
			Terms: Terms{Count("sequence", int(census.Sequence))}})
		return b.done(out)
	}
	switch {
	case m == nil:
		return refuse(ObjectionUnknown)
	case m.counted && census.Sequence == m.census.Sequence:
		return refuse(ObjectionDoubled)
	case m.counted && census.Sequence < m.census.Sequence:
		return refuse(ObjectionLate)
	}
	census, wrong := census.repair(func(device string) Bytes {
		if c := b.cards[device]; c != nil && c.known {
			return c.reading.Total
		}
		return 0
	})
	if wrong != nil {
		out.Events = append(out.Events, Event{Kind: EventObjection, Party: census.Party, Cause: "repaired", Terms: wrong})
	}
	m.census, m.counted = census, true
	for i := range census.Devices {
		device := &census.Devices[i]
		if device.Device == "" {
			continue
		}
		h := b.holder(m, device.Device)
		if device.Held > h.reported.Held+b.rules.SmallestRelease {
			h.dry, h.wantFull = false, false
		}
		h.reported, h.reportedAt = *device, now
		h.recharge(&b.rules)
	}
	for _, h := range m.holders { // a device that the report no longer names holds nothing
		if !slices.ContainsFunc(census.Devices, func(d DeviceCensus) bool { return d.Device == h.card.device }) {
			h.reported, h.reportedAt = DeviceCensus{Device: h.card.device}, now
			h.recharge(&b.rules)
		}
	}
	b.renew(now, m)
	return b.settle(now, out)
}

// Progress notes a sign of life of a party: its leases are renewed.
func (b *Books) Progress(now time.Time, party Party) {
	if m := b.members[party]; m != nil {
		b.renew(now, m)
	}
}

// Reading takes a look at a card. Figures that no card can have are refused, with an event, and the old ones stand.
func (b *Books) Reading(now time.Time, reading Reading) Outcome {
	var out Outcome
	if !reading.sane() {
		out.Events = append(out.Events, Event{Kind: EventReading, Device: reading.Device, Cause: ObjectionAbsurd, Terms: Terms{
			Amount("total", reading.Total), Amount("free", reading.Free), Amount("kept by the driver", reading.Driver), Fact("source", string(reading.Source))}})
		return b.done(out)
	}
	c := b.card(reading.Device)
	if c.known && reading.At.Before(c.reading.At) && reading.Source == c.reading.Source {
		return b.done(out) // overtaken by a newer one
	}
	b.look(c, reading, &out)
	return b.settle(now, out)
}

// look makes a reading the card's picture. One that began before it was asked for may not show what it was asked for.
func (b *Books) look(c *card, reading Reading, out *Outcome) {
	c.reading, c.known, c.touched = reading, true, true
	if !reading.At.Before(c.wanted) {
		c.wanted = time.Time{}
	}
	for party := range reading.Processes {
		if m := b.members[party]; m != nil && reading.Attributed {
			b.holder(m, c.device)
		}
	}
	for _, h := range c.holders {
		h.driver = -1
		if reading.Attributed {
			h.driver = min(max(0, reading.Processes[h.member.party]), reading.Total)
		}
		if h.pending != nil {
			h.claimBase = max(h.claimBase, h.driver)
		}
		h.recharge(&b.rules)
		if h.driver >= 0 || !h.reportedAt.After(reading.At) || reading.Source == FromBooks {
			h.confirmed = h.charge
		}
		b.compare(h, reading.At, out)
		h.checkClaim(reading.At, &b.rules, out)
	}
	if reading.Source != FromBooks {
		c.foreign = max(0, c.unaccounted())
	}
	for _, lease := range c.leases {
		if !lease.residentAt.IsZero() && !lease.Working && !lease.residentAt.After(reading.At) {
			lease.Working, lease.base = true, b.confirmed(lease)
			if lease.workBase >= 0 { // what it took since then is part of what the lease is for
				lease.base = min(lease.base, lease.workBase)
			}
		}
	}
}

// asReported is what a party says it holds on a card, with the measured overhead or, with a context and nothing
// measured, the context's floor.
func (h *holder) asReported(rules *Rules) Bytes {
	switch {
	case h.reported.Overhead > 0:
		return addBytes(h.reported.Held, h.reported.Overhead)
	case h.reported.Context:
		return addBytes(h.reported.Held, rules.ContextFloor)
	}
	return h.reported.Held
}

// recharge computes what a party is charged for on a card: the driver's word where it has one, else its own.
func (h *holder) recharge(rules *Rules) {
	h.card.touched = true
	h.charge = h.driver
	if h.driver < 0 {
		h.charge = h.asReported(rules)
	}
}

// compare shows a report that the driver contradicts twice in a row; once may be a load between the two.
func (b *Books) compare(h *holder, at time.Time, out *Outcome) {
	reported := h.asReported(&b.rules)
	difference := max(addBytes(h.driver, -reported), addBytes(reported, -h.driver))
	if h.driver < 0 || difference <= b.rules.LieMargin {
		h.contradicted = 0
		return
	}
	if h.reportedAt.After(at) {
		return
	}
	h.contradicted++
	if h.contradicted == 2 {
		out.Events = append(out.Events, Event{Kind: EventLie, Party: h.member.party, Device: h.card.device, Cause: "charged_by_driver",
			Terms: Terms{Amount("reported", reported), Amount("by the driver", h.driver)}})
	}
}

// unaccounted is what of the card is neither free, nor the driver's, nor charged to a party of ours.
func (c *card) unaccounted() Bytes {
	left := c.reading.Total - c.reading.Free - c.reading.Driver
	for _, h := range c.holders {
		left = addBytes(left, -h.confirmed)
	}
	return left
}

// fromBooks is the reading that our own figures amount to, for when nobody can read the card.
func (b *Books) fromBooks(now time.Time, c *card) Reading {
	free := c.reading.Total - c.reading.Driver - c.foreign
	for _, h := range c.holders {
		free = addBytes(free, -h.charge)
	}
	return Reading{Device: c.device, At: now, Source: FromBooks, Total: c.reading.Total, Driver: c.reading.Driver,
		Free: min(max(0, free), c.reading.Total), ProcessLocal: c.reading.ProcessLocal}
}

// card finds a device's books, opening them at its first mention.
func (b *Books) card(device string) *card {
	c := b.cards[device]
	if c == nil {
		c = &card{device: device}
		b.cards[device] = c
		b.order = append(b.order, c)
		slices.SortFunc(b.order, func(x, y *card) int { return cmp.Compare(x.device, y.device) })
	}
	return c
}

// holder finds a party's entry on a card, making it at its first mention.
func (b *Books) holder(m *member, device string) *holder {
	for _, h := range m.holders {
		if h.card.device == device {
			return h
		}
	}
	h := &holder{member: m, card: b.card(device), driver: -1}
	m.holders = append(m.holders, h)
	at, _ := slices.BinarySearchFunc(h.card.holders, m.party, func(other *holder, party Party) int {
		return other.member.party.Compare(party)
	})
	h.card.holders = slices.Insert(h.card.holders, at, h)
	return h
}
