package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// oracle decides with everything it could wish for: it sees the card as it is, is obeyed at once, and knows when every
// model will be used again. It keeps to the same sum for a load, which is upstream's, and to the same idle clocks, which
// are the operator's; what it does better is the choice of who gives.
type oracle struct {
	world   *world
	waiting [][]*load // per card, in the order of asking
}

func newOracle(w *world) *oracle {
	return &oracle{world: w, waiting: make([][]*load, len(w.scenario.Cards))}
}

func (o *oracle) start() {
	var sweep func()
	sweep = func() {
		o.sweep()
		o.world.clock.in(sweepEvery, sweep)
	}
	o.world.clock.in(sweepEvery, sweep)
}

func (o *oracle) joined(*process)        {}
func (o *oracle) ready(*process)         {}
func (o *oracle) began(*process)         {}
func (o *oracle) changed(*process)       {}
func (o *oracle) loaded(*load)           {}
func (o *oracle) promptChanged(*session) {}

func (o *oracle) pinCap(p *process) float64 {
	ceiling := ownCeiling(&o.world.scenario, p.device)
	if limit := o.world.scenario.Machine.Limit; limit > 0 {
		ceiling = min(ceiling, float64(limit)*0.90)
	}
	return ceiling / float64(1+len(o.world.alive))
}

func (o *oracle) ask(l *load) {
	card := o.card(l.process.device)
	o.waiting[card] = append(o.waiting[card], l)
	o.settle(card)
}

func (o *oracle) gone(p *process)    { o.settle(o.card(p.device)) }
func (o *oracle) ended(l *load)      { o.settle(o.card(l.process.device)) }
func (o *oracle) card(d *device) int { return slices.Index(o.world.cards, d) }

// settle lets loads go on in the order in which they came, as long as there is room, or nobody left to wait for.
func (o *oracle) settle(card int) {
	o.waiting[card] = slices.DeleteFunc(o.waiting[card], func(l *load) bool { return !l.process.alive })
	device := o.world.cards[card]
	for len(o.waiting[card]) > 0 {
		l := o.waiting[card][0]
		required := o.required(l)
		available := device.total - max(device.committed(), 0)
		if short := required - available; short > 0 {
			available += o.evict(device, l, short)
		}
		if required > available && len(device.loads) > 0 {
			return // somebody computes, and will end
		}
		o.waiting[card] = o.waiting[card][1:]
		reserve := baseReserve(device) + float64(max(0, l.process.ownReading()-max(0, available)))
		o.world.proceed(l, reserve, 0, false)
	}
}

// required is the same sum that everybody else's loads are admitted by.
func (o *oracle) required(l *load) memory.Bytes {
	request := l.request(baseReserve(l.process.device))
	required := memory.Bytes(request.Required())
	if !l.process.context {
		required += contextBytes
	}
	return required
}

// evict takes bytes from models that are not in use, the one that is used again last first.
func (o *oracle) evict(d *device, asker *load, short memory.Bytes) (freed memory.Bytes) {
	type victim struct {
		process *process
		model   *loaded
		next    time.Duration
	}
	var victims []victim
	for _, p := range d.processes {
		for _, m := range p.models {
			if m.inUse == 0 && m.resident > 0 && m != asker.entry {
				victims = append(victims, victim{p, m, p.session.nextUse(p.party.Environment, m.model.Name)})
			}
		}
	}
	slices.SortFunc(victims, func(a, b victim) int {
		return cmp.Or(cmp.Compare(b.next, a.next), a.process.party.Compare(b.process.party), cmp.Compare(a.model.model.Name, b.model.model.Name))
	})
	for _, v := range victims {
		if short <= 0 {
			break
		}
		step := v.process.unload(v.model, short)
		short -= step
		freed += step
	}
	o.world.result.Evicted += freed
	return freed
}

// sweep keeps to the operator's idle clocks.
func (o *oracle) sweep() {
	limits := o.world.scenario.Limits
	for _, p := range slices.Clone(o.world.alive) {
		idle := o.world.clock.now - p.idle
		if p.party.IsHost() || p.busy() || !p.started || o.mustLive(p) {
			continue
		}
		switch {
		case limits.Reap > 0 && idle >= limits.Reap:
			o.world.result.Reaped++
			o.world.kill(p, "idle")
		case limits.IdleRelease > 0 && idle >= limits.IdleRelease && !p.released:
			p.released = true
			o.world.result.IdleReleased += p.releaseAllCounted(o.world)
		}
	}
	for card := range o.waiting {
		o.settle(card)
	}
}

// mustLive: a call is on its way to it.
func (o *oracle) mustLive(p *process) bool { return len(p.running) > 0 }
