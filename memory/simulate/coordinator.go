package simulate

import (
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// coordinator is the supervisor: the real policy, fed with messages that may be late, lost or wrong.
type coordinator struct {
	world    *world
	books    *memory.Books
	asks     map[string]*load
	tickAt   time.Duration
	pins     pinBook
	pressure time.Time // when pins were last asked for
}

func newCoordinator(w *world) *coordinator {
	return &coordinator{world: w, books: memory.NewBooks(w.scenario.Rules), asks: map[string]*load{}, pins: newPinBook(w)}
}

func (c *coordinator) start() {
	for i := range c.world.cards {
		c.handle(c.books.Reading(c.world.clock.time(), c.look(c.world.cards[i])))
	}
	var sweep func()
	sweep = func() {
		c.sweep()
		c.world.clock.in(sweepEvery, sweep)
	}
	c.world.clock.in(sweepEvery, sweep)
}

// send delivers a message that is usually fast, sometimes late, and sometimes lost.
func (c *coordinator) send(deliver func()) {
	faults, clock := &c.world.scenario.Faults, c.world.clock
	if faults.Lost > 0 && clock.random.Float64() < faults.Lost {
		return
	}
	delay := messageTime
	if faults.Late > 0 && clock.random.Float64() < faults.Late {
		delay += clock.between(0, faults.LateBy)
	}
	clock.in(delay, deliver)
}

// joined: processes, calls and deaths the supervisor sees itself, so these need no message.
func (c *coordinator) joined(p *process) { c.books.Join(c.world.clock.time(), p.party) }

func (c *coordinator) ready(p *process) { c.phase(p) }

func (c *coordinator) began(p *process) { c.phase(p) }

func (c *coordinator) phase(p *process) {
	phase := memory.Ready
	switch {
	case p.busy():
		phase = memory.Busy
	case p.released:
		phase = memory.Released
	}
	over := !p.session.needs(p.party.Environment)
	if p.party.IsHost() {
		over = !p.session.running
	}
	c.handle(c.books.Phase(c.world.clock.time(), p.party, phase, over))
}

func (c *coordinator) gone(p *process) {
	c.pins.forget(p)
	if p.party.IsHost() && p.session.host != p && p.session.host != nil && p.session.host.alive {
		return // its place was taken already
	}
	c.handle(c.books.Gone(c.world.clock.time(), p.party))
}

func (c *coordinator) promptChanged(s *session) {
	workflow := ""
	if s.running {
		workflow = s.prompts[s.at].tag
	}
	c.books.Prompt(c.world.clock.time(), s.name, workflow)
	for _, environment := range s.order {
		if p := s.workers[environment]; p != nil && p.started {
			c.phase(p)
		}
	}
}

func (c *coordinator) pinCap(p *process) float64 { return c.pins.first(p) }

func (c *coordinator) ask(l *load) {
	p, clock := l.process, c.world.clock
	p.waiting = l
	c.asks[l.id] = l
	asked := memory.Ask{ID: l.id, Party: p.party, Device: p.device.name, Load: l.request(baseReserve(p.device)), Context: p.context,
		Keep: l.entry.resident, Models: []string{l.node.Model.Name}, Paged: l.node.Model.Paged}
	c.send(func() {
		c.handle(c.books.Reading(clock.time(), c.look(p.device)))
		c.handle(c.books.Ask(clock.time(), asked))
	})
	clock.in(c.world.scenario.Rules.AskWait+5*time.Second, func() {
		if l.let || !p.alive {
			return
		}
		c.world.result.Withdrawn++
		c.send(func() { c.handle(c.books.Withdraw(clock.time(), l.id)) })
		c.proceed(l, baseReserve(p.device), 0, true)
	})
}

// proceed lets a load go on in its process.
func (c *coordinator) proceed(l *load, reserve float64, headroom memory.Bytes, forced bool) {
	delete(c.asks, l.id)
	if l.process.waiting == l {
		l.process.waiting = nil
	}
	c.world.proceed(l, reserve, headroom, forced)
}

func (c *coordinator) loaded(l *load) {
	held := l.process.held()
	c.send(func() { c.handle(c.books.Resident(c.world.clock.time(), l.id, held)) })
}

func (c *coordinator) ended(l *load) {
	delete(c.asks, l.id)
	if l.process.waiting == l {
		l.process.waiting = nil
	}
	if l.process.busy() {
		c.send(func() { c.handle(c.books.Finished(c.world.clock.time(), l.id)) })
		return
	}
	c.phase(l.process)
}

// changed sends a census when what is held moved by more than 16 MiB.
func (c *coordinator) changed(p *process) {
	c.pins.census(p)
	held := p.held()
	if difference := held - p.reported; difference < 16*memory.MiB && difference > -16*memory.MiB && p.sequence > 0 {
		return
	}
	p.reported = held
	p.sequence++
	skew := 1 + (2*c.world.clock.random.Float64()-1)*c.world.scenario.Faults.Skew
	census := memory.Census{Party: p.party, Sequence: p.sequence, Pinned: p.pinned, PinCeiling: p.pinCap, LargestModel: p.largestModel(),
		Devices: []memory.DeviceCensus{{Device: p.device.name, Held: memory.Bytes(float64(held) * skew), Context: p.context, Overhead: contextBytes}}}
	if !p.context {
		census.Devices[0].Overhead = 0
	}
	for _, m := range p.models {
		census.Devices[0].Models = append(census.Devices[0].Models, memory.ModelCensus{Name: m.model.Name, Size: m.model.Size, Resident: m.resident, Paged: m.model.Paged})
	}
	c.send(func() { c.handle(c.books.Census(c.world.clock.time(), census)) })
}

// look is a reading of a card, as far as this scenario's driver gives one.
func (c *coordinator) look(d *device) memory.Reading {
	driver := c.world.scenario.Faults.Driver
	if driver == DriverUnreadable && c.world.clock.now > 0 {
		return memory.Reading{Device: d.name} // refused by the books
	}
	reading := memory.Reading{Device: d.name, At: c.world.clock.time(), Source: memory.FromDriver, Total: d.total, Driver: d.driver,
		Free: max(0, d.free()), ProcessLocal: d.processLocal}
	switch {
	case driver == DriverMissing:
		reading.Source = memory.FromWorker
	case driver == DriverAttributed && !d.processLocal: // WDDM does not say what a process holds
		reading.Attributed = true
		reading.Processes = make(map[memory.Party]memory.Bytes)
		for _, p := range d.processes {
			if p.onCard > 0 {
				reading.Processes[p.party] += p.onCard
			}
		}
	}
	return reading
}

// handle does what the books ask for.
func (c *coordinator) handle(out memory.Outcome) {
	clock := c.world.clock
	for _, event := range out.Events {
		clock.note(event.Kind, event.Party.String(), event.Cause)
	}
	for _, answer := range out.Answers {
		c.answer(answer)
	}
	for _, action := range out.Actions {
		c.serve(action, func(freed memory.Bytes) { c.world.result.Evicted += freed })
	}
	for _, device := range out.Read {
		for _, d := range c.world.cards {
			if d.name == device {
				reading := c.look(d)
				clock.in(readingTime, func() { c.handle(c.books.Reading(clock.time(), reading)) })
			}
		}
	}
	if out.Next.IsZero() {
		return
	}
	at := max(clock.now, out.Next.Sub(epoch))
	if c.tickAt <= clock.now || at < c.tickAt {
		c.tickAt = at
		clock.in(at-clock.now, func() {
			if c.tickAt == at {
				c.tickAt = 0
				c.handle(c.books.Tick(clock.time()))
			}
		})
	}
}

func (c *coordinator) answer(answer memory.Answer) {
	l := c.asks[answer.Ask]
	if l == nil || answer.Verdict == memory.Dropped {
		return
	}
	result := &c.world.result
	switch answer.Verdict {
	case memory.Forced:
		result.Forced++
		if answer.Cause == memory.CauseCycle {
			result.Cycles++
		}
	case memory.Short:
		result.Short++
	}
	c.send(func() {
		if l.process.alive {
			c.proceed(l, answer.Reserve, answer.Headroom, answer.Verdict == memory.Forced)
		}
	})
}

// serve sends an action to its party, which does it now or when its call ends, and sends a receipt.
func (c *coordinator) serve(action memory.Action, count func(freed memory.Bytes)) {
	p := c.find(action.Party)
	if p == nil || p.silent {
		return
	}
	c.send(func() {
		do := func() {
			if p.alive {
				c.perform(p, action, count)
			}
		}
		if p.busy() && p.waiting == nil {
			p.boundary = append(p.boundary, do)
			return
		}
		do()
	})
}

func (c *coordinator) perform(p *process, action memory.Action, count func(freed memory.Bytes)) {
	var freed memory.Bytes
	switch action.Kind {
	case memory.PartialRelease:
		var keep *loaded
		if p.waiting != nil {
			keep = p.waiting.entry
		}
		freed = p.release(action.Bytes, keep, action.Keep)
	case memory.FreeMemory:
		freed = p.freeMemory(float64(memory.HostTarget(action.Bytes, p.ownReading())), nil, action.Keep, memory.FreeMemoryOptions{})
	case memory.FullRelease:
		if p.busy() {
			return // it was meant for an idle worker
		}
		freed = p.releaseAllCounted(c.world)
		p.released = true
	case memory.ReleasePins:
		before := p.pinned
		p.unpin(action.Bytes, true)
		c.world.unpinned(before - p.pinned)
		c.changed(p)
		return
	default:
		return
	}
	count(freed)
	c.world.clock.note("released", p.party.String(), freed.String())
	took := releaseLatency + time.Duration(float64(freed)/releaseSpeed*float64(time.Second))
	receipt := memory.Receipt{Party: p.party, Device: action.Device, Freed: freed, Held: p.held()}
	c.world.clock.in(took, func() {
		c.send(func() {
			c.handle(c.books.Receipt(c.world.clock.time(), receipt))
			if p.alive && p.released && !p.busy() {
				c.phase(p)
			}
		})
		c.changed(p)
	})
}

// find is the living process of a party; nil: there is none.
func (c *coordinator) find(party memory.Party) *process { return c.world.byParty[party] }

// sweep is what the supervisor does every ten seconds.
func (c *coordinator) sweep() {
	now := c.world.clock.time()
	for _, d := range c.world.cards {
		c.handle(c.books.Reading(now, c.look(d)))
	}
	for _, action := range memory.Sweep(now, c.books.Workers(), c.world.scenario.Limits, c.books.Cards()).Actions {
		c.world.clock.note(string(action.Kind), action.Party.String(), action.Cause)
		switch action.Kind {
		case memory.FullRelease:
			c.books.Asked(now, action.Party)
			c.serve(memory.Action{Kind: memory.FullRelease, Party: action.Party}, func(freed memory.Bytes) {
				if action.Cause == memory.CauseIdle {
					c.world.result.IdleReleased += freed
				} else {
					c.world.result.Evicted += freed
				}
			})
		case memory.Reap, memory.EndIdle:
			if p := c.find(action.Party); p != nil && !p.busy() && len(p.running) == 0 {
				c.world.result.Reaped++
				c.world.kill(p, action.Cause)
			}
		}
	}
	c.handle(c.books.Relieve(now))
	c.sweepPins(now)
}
