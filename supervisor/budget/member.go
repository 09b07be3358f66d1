package budget

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Member is one process whose memory is accounted for: a host, or one generation of a worker.
type Member struct {
	Party memory.Party
	Line  Line
	// PIDs are the processes under which the driver may list it, its children apart.
	PIDs []int
	// Environ is its complete environment, which says what it calls which card.
	Environ []string
	// Caps are the operator's limits, IdleRelease and Reap the clocks of its environment; 0 switches a clock off.
	Caps              memory.Caps
	IdleRelease, Reap time.Duration
	// Adopted: it lived before this supervisor did.
	Adopted bool
	// Weigh finds what its process tree keeps in RAM, and what of that are pages of shared memory files. It may block. May
	// be nil.
	Weigh func(ctx context.Context) (resident, shared memory.Bytes, err error)
	// HoldRAM sets the kernel's limit on its RAM: high where it is slowed down, most where it ends. May be nil.
	HoldRAM func(high, most memory.Bytes) error
}

// member is a Member with what is known of it.
type member struct {
	Member
	phase    memory.Phase
	told     memory.Phase      // by the supervisor, which does not know of calls before its time
	names    map[string]Device // what it calls a card, by our name
	contexts map[string]bool   // devices on which it has a context
	census   Census
	seen     bool // it has sent a census
	since    time.Time
	deaf     bool // it serves none of these methods: a pack without ComfyUI, or an older program

	limit    memory.Limit
	remarks  []string
	unheld   bool         // the kernel does not limit its RAM, which was said
	resident memory.Bytes // its RAM when it was weighed last
	shared   memory.Bytes

	asks     map[string]*ask
	assigned assignment
	pins     pinner

	askedFull time.Time // for everything, by a sweep; zero: it has answered
	weighing  bool
	attention string // how its estimates differ from its host's; empty: they do not
}

// Join makes a process known. Its first phase is Starting for a worker and Ready for a host.
func (k *Keeper) Join(joining Member) {
	if joining.Adopted {
		k.speaks(joining.Party)
	}
	k.post(func() {
		now := time.Now()
		if k.members[joining.Party] != nil {
			return
		}
		m := &member{Member: joining, names: make(map[string]Device), contexts: make(map[string]bool), asks: make(map[string]*ask),
			since: now, phase: memory.Starting}
		m.told = m.phase
		if m.Party.IsHost() {
			m.phase, m.told = memory.Ready, memory.Ready
		}
		k.members[m.Party] = m
		at, _ := k.place(m.Party)
		k.order = slices.Insert(k.order, at, m)
		for _, pid := range m.PIDs {
			k.cards.pids[pid] = m.Party
		}
		k.books.Join(now, m.Party)
		k.limit(m)
		if !m.Adopted {
			return
		}
		if !m.Party.IsHost() { // hosts have no leases, and compute at any time
			k.awaitLeases(m.Party)
			k.takeover.orphans[m] = &orphan{}
		}
		k.askCensus(m)
	})
}

// Gone forgets a process that has ended.
func (k *Keeper) Gone(party memory.Party) {
	k.post(func() {
		m := k.members[party]
		defer k.leasesKnown(party)
		if m == nil {
			return
		}
		delete(k.members, party)
		delete(k.takeover.orphans, m)
		if at, ok := k.place(party); ok {
			k.order = slices.Delete(k.order, at, at+1)
		}
		k.mu.Lock()
		delete(k.heard, party)
		k.mu.Unlock()
		for _, pid := range m.PIDs {
			if k.cards.pids[pid] == party {
				delete(k.cards.pids, pid)
			}
		}
		k.handle(k.books.Gone(time.Now(), party))
		for _, a := range m.asks {
			k.forget(a)
		}
		k.reserveGone(party)
		k.unsplit = true
	})
}

// Forget drops what is known of a session that has ended.
func (k *Keeper) Forget(session string) {
	k.Gone(memory.Host(session))
	k.post(func() {
		delete(k.sessions, session)
		k.books.Forget(session)
	})
}

// Phase notes where a process stands now. It is told at both ends of every call; of a process that has nothing to account
// for it is only noted, and looked at when something else happens.
func (k *Keeper) Phase(party memory.Party, phase memory.Phase) {
	now := time.Now()
	k.mu.Lock()
	if k.heard[party] {
		k.mu.Unlock()
		k.post(func() { k.phase(party, phase, now) })
		return
	}
	noted := k.quiet[party]
	if phase == memory.Busy {
		noted.busy = now
	}
	noted.phase, noted.at = phase, now
	k.quiet[party] = noted
	k.mu.Unlock()
}

// quietPhase is what became of a process since it was looked at last.
type quietPhase struct {
	phase memory.Phase
	at    time.Time
	busy  time.Time // when it began to compute last; zero: it did not
}

// queueQuiet moves what was only noted into the queue, before what comes next; Keeper.mu is held.
func (k *Keeper) queueQuiet() {
	if len(k.quiet) == 0 {
		return
	}
	quiet := k.quiet
	k.quiet = make(map[memory.Party]quietPhase)
	k.queue = append(k.queue, func() {
		for party, noted := range quiet {
			if !noted.busy.IsZero() && noted.phase != memory.Busy {
				k.phase(party, memory.Busy, noted.busy)
			}
			k.phase(party, noted.phase, noted.at)
		}
	})
}

// speaks notes that a process has said something of its memory: from now on its phases count at once.
func (k *Keeper) speaks(party memory.Party) {
	k.mu.Lock()
	k.heard[party] = true
	k.mu.Unlock()
}

func (k *Keeper) phase(party memory.Party, phase memory.Phase, at time.Time) {
	m := k.members[party]
	if m == nil {
		return
	}
	m.told = phase
	if phase.Idle() && k.isOrphan(m) {
		phase = memory.Busy
		k.askLane(m)
	}
	if m.phase == memory.Starting && (phase.Idle() || phase == memory.Busy) {
		k.tellPrompts(m)
	}
	m.phase = phase
	over := k.promptOver(party)
	k.handle(k.books.Phase(at, party, phase, over))
	if !phase.Idle() {
		return
	}
	for _, a := range m.asks { // a call's end is the end of what it asked for
		if a.answered {
			k.forget(a)
		}
	}
	if m.seen && over || m.IdleRelease > 0 && m.IdleRelease < k.config.Sweep {
		k.sweepSoon()
	}
}

// Connected notes that a host is connected again, to this supervisor or after it.
func (k *Keeper) Connected(party memory.Party) {
	k.post(func() {
		if m := k.members[party]; m != nil {
			k.askCensus(m)
		}
	})
}

// Progress notes a sign of life of a process.
func (k *Keeper) Progress(party memory.Party) {
	k.post(func() { k.books.Progress(time.Now(), party) })
}

// Census takes what a process says that it holds.
func (k *Keeper) Census(party memory.Party, said Census) {
	k.speaks(party)
	k.post(func() {
		if m := k.members[party]; m != nil {
			k.takeCensus(m, said, time.Time{})
			k.askLane(m) // a process reports where its calls end
		}
	})
}

// takeCensus takes a report over. measured is when the process read the free bytes of its devices; zero: at no moment
// that counts.
func (k *Keeper) takeCensus(m *member, said Census, measured time.Time) {
	now := time.Now()
	census := memory.Census{Party: m.Party, Sequence: said.Sequence, Pinned: said.Pinned, PinCeiling: said.PinCeiling,
		LargestModel: said.LargestModel, Resident: said.Resident}
	if m.seen && said.Sequence <= m.census.Sequence {
		k.handle(k.books.Census(now, census)) // which says what is wrong with it
		return
	}
	first := !m.seen
	m.seen = true
	changed := first || m.census.Pinned != said.Pinned || m.census.LargestModel != said.LargestModel
	attention := first || m.census.Attention != said.Attention
	m.census = said
	clear(m.contexts)
	for _, device := range said.Devices {
		if !isCard(device.Device) {
			continue
		}
		named := k.locate(m, Device{device.DeviceCensus.Device, device.Identity})
		k.ownReading(now, named, device.DeviceCensus, measured)
		device.DeviceCensus.Device = named
		m.contexts[named] = device.Context
		census.Devices = append(census.Devices, device.DeviceCensus)
	}
	k.handle(k.books.Census(now, census))
	k.holdReserve(m, census.Devices)
	k.takePins(m, changed)
	if attention {
		k.compareAttention(m)
	}
	if m.Party.IsHost() {
		k.hostNeeds(m)
	} else {
		k.tellResidency(m)
	}
}

// ownReading uses a process's own look at a card, where the driver gives none. One of an unknown moment only introduces a
// card.
func (k *Keeper) ownReading(now time.Time, device string, said memory.DeviceCensus, measured time.Time) {
	if said.ProcessLocal {
		k.cards.local[device] = true
	}
	if k.cards.driven(device) || measured.IsZero() && k.cards.sizes[device] > 0 {
		return
	}
	if measured.IsZero() {
		measured = now
	}
	said.Device = device
	if reading, ok := said.OwnReading(measured); ok {
		k.reading(now, reading)
	} else if said.OwnTotal > 0 && k.cards.sizes[device] == 0 { // its own bytes only, but the card's size all the same
		k.reading(now, memory.Reading{Device: device, At: measured, Source: memory.FromBooks, Total: said.OwnTotal,
			Free: max(0, said.OwnTotal-said.Held-said.Overhead), ProcessLocal: true})
	}
}

// askCensus asks a process for its last census, for its own reading of the cards, and for what it still counts on.
func (k *Keeper) askCensus(m *member) {
	asked := time.Now()
	m.Line.Ask(MethodAskCensus, struct{}{}, func(result json.RawMessage, err error) {
		var answer censusAnswer
		if err == nil {
			err = json.Unmarshal(result, &answer)
		}
		k.post(func() {
			if k.members[m.Party] != m {
				return
			}
			if err != nil {
				m.deaf = m.deaf || isUnknown(err)
				k.leasesKnown(m.Party)
			} else {
				k.takeAnswer(m, answer, asked)
			}
			if o := k.takeover.orphans[m]; o != nil {
				o.heard = true
				k.askLane(m)
			}
		})
	})
}

// takeAnswer takes over what askCensus has learned. Leases of an earlier supervisor are kept, as ones that may not fit:
// what they were granted on is not known any more.
func (k *Keeper) takeAnswer(m *member, answer censusAnswer, asked time.Time) {
	now := time.Now()
	if answer.Census != nil && (!m.seen || answer.Census.Sequence > m.census.Sequence) {
		k.takeCensus(m, *answer.Census, time.Time{})
	}
	for _, own := range answer.Own {
		if isCard(own.Device.Device) {
			device := k.locate(m, own.Device)
			k.ownReading(now, device, memory.DeviceCensus{OwnFree: own.OwnFree, OwnTotal: own.OwnTotal, ProcessLocal: own.ProcessLocal}, asked)
		}
	}
	if m.Adopted && len(answer.Leases) > 0 {
		k.restoreLeases(m, answer.Leases)
		return
	}
	k.leasesKnown(m.Party)
}

// restoreLeases takes over what a process was granted by an earlier supervisor, as soon as the card was read: what it holds
// by now is not in the leases. One whose computation ends before that is not restored.
func (k *Keeper) restoreLeases(m *member, leases []livingLease) {
	restored := make([]memory.Lease, 0, len(leases))
	asks := make([]*ask, 0, len(leases))
	for _, lease := range leases {
		name := askName(m.Party, lease.ID)
		if k.asks[name] != nil || !isCard(lease.Device.Device) {
			continue
		}
		a := &ask{name: name, member: m, device: k.locate(m, lease.Device), asked: true, answered: true}
		k.keep(a)
		asks = append(asks, a)
		restored = append(restored, memory.Lease{Ask: name, Party: m.Party, Device: a.device, Bytes: lease.Bytes, Working: lease.Working})
	}
	k.read(func() {
		for i, a := range asks {
			if k.asks[a.name] == a {
				k.handle(k.books.Restore(time.Now(), restored[i]))
			}
		}
		k.leasesKnown(m.Party)
	})
}

// isUnknown tells whether a process answered that it does not serve a method.
func isUnknown(err error) bool {
	var failure *wire.Error
	return errors.As(err, &failure) && failure.Data.Kind == wire.KindUnknownMethod
}

// place is where a party is, or would be, among all members.
func (k *Keeper) place(party memory.Party) (int, bool) {
	return slices.BinarySearchFunc(k.order, party, func(m *member, party memory.Party) int { return m.Party.Compare(party) })
}

// workerOf is the newest generation of an environment's worker in a session; nil: there is none.
func (k *Keeper) workerOf(session, environment string) (newest *member) {
	for _, m := range k.sessionWorkers(session) {
		if m.Party.Environment == environment {
			newest = m // later generations come later
		}
	}
	return newest
}

// sessionWorkers is every worker of a session, by environment and generation.
func (k *Keeper) sessionWorkers(session string) []*member {
	first, isHost := k.place(memory.Host(session))
	if isHost {
		first++
	}
	last := first
	for last < len(k.order) && k.order[last].Party.Session == session {
		last++
	}
	return slices.Clone(k.order[first:last])
}

// tellResidency tells a worker's host what it holds.
func (k *Keeper) tellResidency(m *member) {
	host := k.members[memory.Host(m.Party.Session)]
	if host == nil {
		return
	}
	said := Residency{Environment: m.Party.Environment, Generation: m.Party.Generation, Models: []ModelOnCards{}}
	for _, device := range m.census.Devices {
		named := Device{Device: device.DeviceCensus.Device}
		if isCard(named.Device) {
			named = k.nameFor(host, k.cards.locate(m.Environ, Device{named.Device, device.Identity}))
		}
		for _, model := range device.Models {
			said.Models = append(said.Models, ModelOnCards{model, named.Device, named.Identity})
		}
	}
	host.Line.Tell(MethodResidency, said)
}
