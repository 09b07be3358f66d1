package simulate

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// policy is who decides. Its methods are told what happens and call world.proceed for every load it lets go on.
type policy interface {
	start()
	joined(p *process)
	ready(p *process)
	gone(p *process)
	began(p *process)   // a call began
	ask(l *load)        // a load wants room
	changed(p *process) // what a process holds changed
	loaded(l *load)     // its weights are there
	ended(l *load)      // its computation is over, or failed
	promptChanged(s *session)
	pinCap(p *process) float64 // MAX_PINNED_MEMORY of a new process, in bytes
}

// world is one run.
type world struct {
	scenario Scenario
	mode     Mode
	clock    *clock
	cards    []*device
	sessions []*session
	alive    []*process
	byParty  map[memory.Party]*process
	policy   policy
	result   Result
	loads    int
	pinned   memory.Bytes
	baseRAM  memory.Bytes
	done     int // sessions that have run all their prompts
}

// slowest is how many times its nominal time a run may take before it is cut off.
const slowest = 10

// Run plays a scenario under one mode.
func Run(scenario Scenario, mode Mode) Result {
	w := &world{scenario: scenario, mode: mode, clock: newClock(scenario.Seed), byParty: map[memory.Party]*process{}}
	w.result.Scenario, w.result.Mode = scenario.Name, mode
	for i, card := range scenario.Cards {
		w.cards = append(w.cards, &device{name: "card" + strconv.Itoa(i), total: card.Total, driver: card.Driver, processLocal: card.ProcessLocal})
	}
	switch mode {
	case Coordinated:
		w.policy = newCoordinator(w)
	case Oracle:
		w.policy = newOracle(w)
	default:
		w.policy = &independent{w}
	}
	for i, spec := range scenario.Sessions {
		w.sessions = append(w.sessions, w.newSession(i, spec))
	}
	for _, foreign := range scenario.Faults.Foreign {
		card := w.cards[foreign.Card]
		w.clock.in(foreign.From, func() { card.foreign += foreign.Bytes })
		w.clock.in(foreign.Till, func() { card.foreign -= foreign.Bytes })
	}
	w.policy.start()
	for _, s := range w.sessions {
		w.clock.in(s.spec.Start, s.start)
	}
	w.clock.run(slowest*scenario.Duration, func() bool { return w.done == len(w.sessions) })
	w.finish()
	return w.result
}

func (w *world) finish() {
	w.result.Elapsed = w.clock.now
	w.result.Events, w.result.Trace = w.clock.events, w.clock.trace
	for _, card := range w.cards {
		w.result.Overcommitted = max(w.result.Overcommitted, card.overcommit)
	}
	w.result.summarize()
}

// newProcess brings a process to life, and perhaps plans its death.
func (w *world) newProcess(s *session, party memory.Party) *process {
	p := &process{party: party, session: s, device: w.cards[s.spec.Card], alive: true, idle: w.clock.now}
	w.alive = append(w.alive, p)
	p.device.processes = append(p.device.processes, p)
	w.byParty[party] = p
	w.result.Processes++
	life := w.scenario.Faults.WorkerLife
	p.pinCap = w.policy.pinCap(p)
	if party.IsHost() {
		life = w.scenario.Faults.HostLife
		w.baseRAM += hostRAM
	} else {
		p.silent = w.clock.random.Float64() < w.scenario.Faults.Silent
		w.baseRAM += workerRAM
	}
	if life > 0 {
		w.clock.in(w.clock.exponential(life), func() { w.kill(p, "fault") })
	}
	w.clock.note("process", party.String())
	return p
}

// kill ends a process at once: its bytes are back, its calls fail, and whoever watches it is told a moment later.
func (w *world) kill(p *process, why string) {
	if !p.alive {
		return
	}
	p.alive = false
	w.clock.note("death", p.party.String(), why)
	p.device.give(p, p.onCard)
	w.pinned -= p.pinned
	p.pinned = 0
	w.baseRAM -= workerRAM
	if p.party.IsHost() {
		w.baseRAM += workerRAM - hostRAM
	}
	w.alive = slices.DeleteFunc(w.alive, func(other *process) bool { return other == p })
	p.device.processes = slices.DeleteFunc(p.device.processes, func(other *process) bool { return other == p })
	if w.byParty[p.party] == p {
		delete(w.byParty, p.party)
	}
	p.device.loads = slices.DeleteFunc(p.device.loads, func(l *load) bool { return l.process == p })
	s := p.session
	if !p.party.IsHost() && s.workers[p.party.Environment] == p {
		delete(s.workers, p.party.Environment)
	}
	running := p.running
	p.running = nil
	w.clock.in(deathNoticed, func() {
		w.policy.gone(p)
		for _, l := range running {
			l.finished(true)
		}
	})
	if p.party.IsHost() && s.host == p {
		for _, environment := range s.order {
			if worker := s.workers[environment]; worker != nil {
				w.kill(worker, "host")
			}
		}
		if s.running {
			s.running = false
			w.result.Failed++
			s.at++
		}
		w.policy.promptChanged(s)
		w.clock.in(hostRestart, s.start)
	}
}

// chance is a number in [0, 1) that depends on a call alone, so that every mode sees the same.
func (w *world) chance(words ...string) float64 {
	hash := fnv.New64a()
	for _, word := range append(words, strconv.FormatUint(w.scenario.Seed, 36)) {
		_, _ = hash.Write([]byte(word + "|")) // a hash never fails
	}
	return float64(hash.Sum64()>>11) / (1 << 53)
}

// beginCall runs a node in a process that is up.
func (w *world) beginCall(p *process, node Node, finished func(bool)) {
	s := p.session
	w.loads++
	l := &load{id: strconv.Itoa(w.loads), process: p, node: node, entry: p.find(node.Model), asked: w.clock.now, finished: finished}
	low, high := 0.6, 1+w.scenario.Faults.Surprise
	share := low + (high-low)*w.chance(s.name, strconv.Itoa(s.at), strconv.Itoa(s.step), node.Environment, node.Model.Name)
	l.actual = memory.Bytes(float64(node.Activation) * share)
	p.calls++
	p.released = false
	p.lastUse = w.clock.now
	l.entry.inUse++
	p.running = append(p.running, l)
	w.policy.began(p)
	w.policy.ask(l)
}

// proceed lets a load go on with a reserve and, if it is paged, a headroom for its pager, as upstream does: free, take as
// much of the weights as the budget allows, compute.
func (w *world) proceed(l *load, reserve float64, headroom memory.Bytes, forced bool) {
	p := l.process
	if l.let || !p.alive {
		return
	}
	l.let, l.forced = true, forced
	w.result.waits = append(w.result.waits, w.clock.now-l.asked)
	w.clock.note("load", l.id, strconv.FormatBool(forced))
	if !p.context {
		if !p.device.take(p, contextBytes) {
			w.outOfMemory(l)
			return
		}
		p.context = true
	}
	request := l.request(reserve)
	options := memory.FreeMemoryOptions{ForDynamic: l.node.Model.Paged}
	w.result.Evicted += p.freeMemory(request.Required(), l.entry, nil, options)
	if float64(p.ownReading()) < request.MinimumRequired() {
		w.result.Evicted += p.freeMemory(request.MinimumRequired(), l.entry, nil, options)
	}
	want := l.node.Model.Size - l.entry.resident
	if !l.node.Model.Paged {
		budget := request.PartialBudget(p.ownReading(), l.entry.resident, 0)
		want = min(want, memory.Bytes(max(0, budget)))
	} else if headroom > 0 {
		want = max(0, min(want, p.device.total-p.device.driver-headroom-p.onCard))
	}
	l.planned = want
	p.device.loads = append(p.device.loads, l)
	if p.device.committed() > p.device.total {
		if forced {
			w.result.ForcedOver++
		} else {
			w.result.OverAdmitted++
		}
	}
	speed := fromRAM
	switch {
	case !l.entry.inRAM:
		speed = fromDisk
	case l.entry.pinned > 0:
		speed = fromPinnedRAM
	}
	l.entry.inRAM = true
	w.chunk(l, want/loadChunks, time.Duration(float64(want)/loadChunks/speed*float64(time.Second)))
}

// chunk takes the next piece of the weights.
func (w *world) chunk(l *load, piece memory.Bytes, each time.Duration) {
	w.clock.in(each, func() {
		p := l.process
		if !p.alive {
			return
		}
		bytes := min(l.planned, max(piece, memory.MiB))
		if bytes > 0 && !p.device.take(p, bytes) {
			if !l.node.Model.Paged {
				w.outOfMemory(l)
				return
			}
			// a pager makes room among its own pages, and otherwise does with what it has
			w.result.Evicted += p.release(bytes-max(0, p.device.free()), l.entry, nil)
			if !p.device.take(p, bytes) {
				l.planned, bytes = 0, 0
			}
		}
		l.entry.resident += bytes
		l.planned -= bytes
		w.policy.changed(p)
		if l.planned > 0 {
			w.chunk(l, piece, each)
			return
		}
		w.pin(l)
		if p.alive {
			w.policy.loaded(l)
			w.compute(l)
		}
	})
}

// compute takes what computing takes and gives it back when it is done.
func (w *world) compute(l *load) {
	p := l.process
	if short := l.actual - p.device.free(); short > 0 && l.node.Model.Paged && !p.device.processLocal {
		freed := p.release(short, l.entry, nil)
		freed += p.unload(l.entry, short-freed)
		w.result.Evicted += freed
	}
	if !p.device.take(p, l.actual) {
		w.outOfMemory(l)
		return
	}
	l.working = true
	w.policy.changed(p)
	missing := 1 - float64(l.entry.resident)/float64(max(1, l.node.Model.Size))
	span := time.Duration(float64(l.node.Compute) * (1 + streamingCost*missing))
	if p.device.free() < 0 {
		span = min(time.Duration(float64(span)*overcommitCost), overcommitLimit+span)
		w.result.Slowed++
	}
	w.clock.in(span, func() {
		if p.alive {
			w.endCall(l, false)
		}
	})
}

// endCall ends a call.
func (w *world) endCall(l *load, failed bool) {
	p := l.process
	if l.working {
		p.device.give(p, l.actual)
	}
	l.entry.inUse--
	p.calls--
	p.idle = w.clock.now
	p.device.loads = slices.DeleteFunc(p.device.loads, func(other *load) bool { return other == l })
	p.running = slices.DeleteFunc(p.running, func(other *load) bool { return other == l })
	w.clock.note("end", l.id, strconv.FormatBool(failed))
	w.policy.changed(p)
	w.policy.ended(l)
	if p.calls == 0 {
		waiting := p.boundary
		p.boundary = nil
		for _, do := range waiting {
			do()
		}
	}
	l.finished(failed)
}

// outOfMemory fails a call as upstream does: every model is unloaded, and the prompt ends.
func (w *world) outOfMemory(l *load) {
	w.result.OutOfMemory++
	if l.forced {
		w.result.ForcedOutOfMemory++
	}
	w.clock.note("out of memory", l.id)
	l.entry.inUse--
	w.result.Evicted += l.process.releaseAllCounted(w)
	l.entry.inUse++
	w.endCall(l, true)
}

// unpinned keeps the machine's sum when a process gave pins back.
func (w *world) unpinned(bytes memory.Bytes) { w.pinned -= bytes }

// releaseAllCounted is releaseAll with the machine's sum of pins kept.
func (p *process) releaseAllCounted(w *world) memory.Bytes {
	before := p.pinned
	freed := p.releaseAll()
	w.unpinned(before - p.pinned)
	return freed
}

// pin pins what upstream would of the weights that were just loaded, and lets the kernel kill when that was too much.
func (w *world) pin(l *load) {
	p, m := l.process, l.entry
	want := m.model.Size - m.pinned
	if want <= 0 || p.pinCap <= 0 {
		return
	}
	visible := w.scenario.Machine.RAM - w.usedRAM()
	short := memory.PinBudgetShortfall(want, visible, 0, p.pinned, p.pinCap, false, false)
	short = max(short, memory.PinRegistrationShortfall(want, p.pinned, p.pinCap))
	if short > 0 {
		m.inUse++ // its own pins stay
		w.unpinned(p.unpin(memory.Bytes(short)+memory.PinPressureHysteresis, false))
		m.inUse--
		visible = w.scenario.Machine.RAM - w.usedRAM()
	}
	want = min(want, memory.Bytes(p.pinCap)-p.pinned, visible-memory.PinFloor)
	if want <= 0 {
		return
	}
	m.pinned += want
	p.pinned += want
	w.pinned += want
	w.result.MostPinned = max(w.result.MostPinned, w.pinned)
	w.policy.changed(p)
	limit := w.scenario.Machine.RAM
	if w.scenario.Machine.Limit > 0 {
		limit = min(limit, w.scenario.Machine.Limit)
	}
	for w.usedRAM() > limit {
		victim := slices.MaxFunc(w.alive, func(a, b *process) int { return int(a.ram()>>20) - int(b.ram()>>20) })
		w.result.KilledForRAM++
		w.kill(victim, "RAM")
	}
}

// ram is what a process keeps in RAM that cannot be dropped.
func (p *process) ram() memory.Bytes {
	if p.party.IsHost() {
		return hostRAM + p.pinned
	}
	return workerRAM + p.pinned
}

// usedRAM is what all of them keep.
func (w *world) usedRAM() memory.Bytes { return w.scenario.Machine.Other + w.baseRAM + w.pinned }
