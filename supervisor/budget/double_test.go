package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gib      = memory.GiB
	mib      = memory.MiB
	waitLong = 60 * time.Second
	context0 = 300 * mib // what a context takes on the cards of tests
)

// machine is cards that processes of a test take bytes of.
type machine struct {
	mu      sync.Mutex
	cards   []probe.Card
	held    map[int]map[string]memory.Bytes // by process and card
	foreign map[string]memory.Bytes
	fails   error
	reads   int
	ram     probe.Machine
}

func newMachine(sizes ...memory.Bytes) *machine {
	m := &machine{held: map[int]map[string]memory.Bytes{}, foreign: map[string]memory.Bytes{},
		ram: probe.Machine{RAM: memory.RAM{Total: 64 * gib, Available: 48 * gib}, Physical: 64 * gib}}
	for i, size := range sizes {
		m.cards = append(m.cards, probe.Card{UUID: fmt.Sprintf("GPU-%04d", i), PCI: fmt.Sprintf("0000:%02x:00.0", i+1), Name: "Double", Index: i, Total: size})
	}
	return m
}

// Read looks at the cards.
func (m *machine) Read(context.Context) ([]probe.Card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.fails != nil {
		return nil, m.fails
	}
	cards := slices.Clone(m.cards)
	for i := range cards {
		card := &cards[i]
		card.At, card.Attributed = time.Now(), true
		card.Free = card.Total - m.foreign[card.UUID]
		for pid, held := range m.held {
			if bytes := held[card.UUID]; bytes > 0 {
				card.Free -= bytes
				card.Processes = append(card.Processes, probe.ProcessBytes{PID: pid, Bytes: bytes})
			}
		}
		card.Free = max(0, card.Free)
	}
	return cards, nil
}

// Close does nothing.
func (m *machine) Close() error { return nil }

func (m *machine) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *machine) take(pid int, card string, bytes memory.Bytes) {
	m.change(func() {
		if m.held[pid] == nil {
			m.held[pid] = map[string]memory.Bytes{}
		}
		m.held[pid][card] += bytes
	})
}

// bench is a Keeper with a machine and processes that are doubles.
type bench struct {
	t       testing.TB
	keeper  *Keeper
	machine *machine
	stop    func()

	mu       sync.Mutex
	events   []api.Event
	news     chan struct{}
	notes    []string
	released []memory.Party
	ended    []memory.Action
	nextPID  int
}

// start runs a Keeper over a machine; change may alter its configuration.
func start(t testing.TB, machine *machine, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, machine: machine, news: make(chan struct{}, 1), nextPID: 100}
	config := Config{
		Rules: memory.DefaultRules(), Limits: memory.DefaultLimits(), Sweep: time.Hour,
		OpenCards: func(context.Context) (Cards, error) { return machine, nil },
		RAM: func(context.Context) (probe.Machine, error) {
			machine.mu.Lock()
			defer machine.mu.Unlock()
			return machine.ram, nil
		},
		Event: func(event api.Event) {
			b.note(func() { b.events = append(b.events, event) })
		},
		Note: func(_ memory.Party, line string) { b.note(func() { b.notes = append(b.notes, line) }) },
		Released: func(party memory.Party) {
			b.keeper.Phase(party, memory.Released)
			b.note(func() { b.released = append(b.released, party) })
		},
		End: func(action memory.Action) { b.note(func() { b.ended = append(b.ended, action) }) },
	}
	config.Limits.IdleRelease, config.Limits.Reap = 0, 0
	if change != nil {
		change(&config)
	}
	b.keeper = New(config)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.keeper.Run(ctx)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(b.stop)
	return b
}

func (b *bench) note(do func()) {
	b.mu.Lock()
	do()
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// await waits for what the Keeper tells.
func (b *bench) await(what string, holds func() bool) {
	b.t.Helper()
	limit := time.NewTimer(waitLong)
	defer limit.Stop()
	ticker := time.NewTicker(5 * time.Millisecond) // for what no event tells
	defer ticker.Stop()
	for {
		b.mu.Lock()
		ok := holds()
		b.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-b.news:
		case <-ticker.C:
		case <-limit.C:
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, event := range b.events {
				b.t.Logf("%s %s#%d %s %v", event.Kind, event.Environment, event.Generation, event.Cause, event.Terms)
			}
			b.t.Fatalf("waited too long for %s", what)
		}
	}
}

// event waits for an event of a kind about an environment ("" is any) and returns the first.
func (b *bench) event(kind, environment string) (found api.Event) {
	b.t.Helper()
	b.await(kind+" of "+environment, func() bool {
		for _, event := range b.events {
			if event.Kind == kind && (environment == "" || event.Environment == environment) {
				found = event
				return true
			}
		}
		return false
	})
	return found
}

func (b *bench) count(kind string) (count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, event := range b.events {
		if event.Kind == kind {
			count++
		}
	}
	return count
}

// view waits until everything that was posted before is done, and looks.
func (b *bench) view() api.Budget {
	b.t.Helper()
	budget, ok := b.keeper.View(context.Background())
	if !ok {
		b.t.Fatal("the accounts are closed")
	}
	return budget
}

// double is a process as the Keeper sees one.
type double struct {
	bench *bench
	party memory.Party
	pid   int
	card  string
	name  Device // what it calls its card

	mu       sync.Mutex
	models   []memory.ModelCensus
	pinned   memory.Bytes
	ceiling  float64
	sequence uint64
	extra    func(*Census) // changes what it reports
	serve    func(method string, params json.RawMessage) (any, error)
	hears    map[string][]json.RawMessage
	silent   bool // it does not answer releases
	local    bool
	late     []func()
}

// join makes a process on the machine's first card and makes it known.
func (b *bench) join(party memory.Party, change func(*Member)) *double {
	b.t.Helper()
	b.nextPID++
	d := &double{bench: b, party: party, pid: b.nextPID, ceiling: -1, hears: map[string][]json.RawMessage{}}
	if len(b.machine.cards) > 0 {
		d.card, d.name = b.machine.cards[0].UUID, Device{"cuda:0", b.machine.cards[0].PCI}
	}
	member := Member{Party: party, Line: d, PIDs: []int{d.pid}}
	if change != nil {
		change(&member)
	}
	b.keeper.Join(member)
	if !party.IsHost() {
		b.keeper.Phase(party, memory.Ready)
	}
	return d
}

func (b *bench) worker(environment string) *double {
	return b.join(memory.Party{Session: "operator", Environment: environment, Generation: 1}, nil)
}

var errUnknown = wire.NewError(wire.KindUnknownMethod, "no such method")

// Ask serves a request as the process's main thread would, beside the Keeper.
func (d *double) Ask(method string, params any, done func(json.RawMessage, error)) {
	encoded := wire.Params(params)
	go func() {
		result, err := d.answer(method, encoded)
		if errors.Is(err, errNoAnswer) {
			d.mu.Lock()
			d.late = append(d.late, func() { done(nil, wire.ErrPeerGone) })
			d.mu.Unlock()
			return
		}
		if err != nil {
			done(nil, err)
			return
		}
		done(wire.Params(result), nil)
	}()
}

var errNoAnswer = errors.New("no answer")

func (d *double) answer(method string, params json.RawMessage) (any, error) {
	d.hear(method, params)
	d.mu.Lock()
	serve, silent := d.serve, d.silent
	d.mu.Unlock()
	if serve != nil {
		if result, err := serve(method, params); result != nil || err != nil {
			return result, err
		}
	}
	switch method {
	case MethodRelease:
		var wanted Release
		if err := json.Unmarshal(params, &wanted); err != nil {
			return nil, err
		}
		if silent {
			return nil, errNoAnswer
		}
		return d.release(wanted), nil
	case MethodAssign:
		var set Assignment
		if err := json.Unmarshal(params, &set); err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		applied := map[string]any{}
		if set.PinCap != nil {
			d.ceiling = float64(*set.PinCap)
			applied["pin_cap"] = *set.PinCap
		}
		return Assigned{Applied: applied}, nil
	case MethodAskCensus:
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.sequence == 0 {
			return censusAnswer{}, nil
		}
		said := d.censusNow()
		return censusAnswer{Census: &said}, nil
	}
	return nil, errUnknown
}

// Tell takes a notification.
func (d *double) Tell(method string, params any) { d.hear(method, wire.Params(params)) }

func (d *double) hear(method string, params json.RawMessage) {
	d.bench.note(func() { d.hears[method] = append(d.hears[method], params) })
}

// heard waits until it was told or asked something, and returns what came last.
func (d *double) heard(method string, least int) json.RawMessage {
	d.bench.t.Helper()
	var last json.RawMessage
	d.bench.await(method+" at "+d.party.String(), func() bool {
		all := d.hears[method]
		if len(all) >= least {
			last = all[len(all)-1]
			return true
		}
		return false
	})
	return last
}

// release gives models back in their order, as its manager would.
func (d *double) release(wanted Release) Receipt {
	d.mu.Lock()
	defer d.mu.Unlock()
	var freed, pins memory.Bytes
	switch wanted.Kind {
	case memory.ReleasePins:
		pins = min(d.pinned, wanted.Bytes)
		d.pinned -= pins
	default:
		for i := range d.models {
			model := &d.models[i]
			if wanted.Kind != memory.FullRelease && (freed >= wanted.Bytes || slices.Contains(wanted.Keep, model.Name)) {
				continue
			}
			give := model.Resident
			if wanted.Kind != memory.FullRelease {
				give = min(give, wanted.Bytes-freed)
			}
			model.Resident -= give
			freed += give
		}
		if wanted.Kind == memory.FullRelease {
			pins = d.pinned
			d.pinned, d.models = 0, nil
		}
	}
	d.bench.machine.take(d.pid, d.card, -freed)
	d.bench.machine.change(func() { d.bench.machine.ram.Available += pins })
	d.sequence++
	said := d.censusNow()
	return Receipt{Kind: wanted.Kind, Freed: map[string]memory.Bytes{d.name.Device: freed}, PinsFreed: pins, Census: &said}
}

func (d *double) censusNow() Census {
	said := Census{Sequence: d.sequence, Pinned: d.pinned, PinCeiling: d.ceiling, Attention: memory.Attention{Name: "pytorch"}}
	device := DeviceCensus{Identity: d.name.Identity}
	device.DeviceCensus = memory.DeviceCensus{Device: d.name.Device, Context: true, Models: slices.Clone(d.models), ProcessLocal: d.local}
	for _, model := range d.models {
		device.Held += model.Resident
		said.LargestModel = max(said.LargestModel, model.Size)
	}
	if d.name.Device != "" {
		said.Devices = []DeviceCensus{device}
	}
	if d.extra != nil {
		d.extra(&said)
	}
	return said
}

// census reports what it holds.
func (d *double) census() {
	d.mu.Lock()
	d.sequence++
	said := d.censusNow()
	d.mu.Unlock()
	d.bench.keeper.Census(d.party, said)
}

// hold has models on the card, as if they had been loaded before.
func (d *double) hold(name string, bytes memory.Bytes) {
	d.mu.Lock()
	first := len(d.models) == 0
	d.models = append(d.models, memory.ModelCensus{Name: name, Size: bytes, Resident: bytes})
	d.mu.Unlock()
	if first {
		d.bench.machine.take(d.pid, d.card, context0)
	}
	d.bench.machine.take(d.pid, d.card, bytes)
	d.census()
}

// ask asks for room for a model, and returns where the answer comes.
func (d *double) ask(id string, weights memory.Bytes, change func(*Lease)) chan LeaseAnswer {
	wanted := Lease{ID: ID(id), Device: d.name, Node: "Loader", Models: []string{"model of " + id}, Context: true,
		Load: Load{Weights: weights, Minimum: -1, Reserve: float64(400 * mib)}}
	if change != nil {
		change(&wanted)
	}
	answers := make(chan LeaseAnswer, 1)
	d.bench.keeper.Lease(d.party, wire.Params(wanted), func(answer LeaseAnswer) { answers <- answer }, func(err error) { d.bench.t.Error(err) })
	return answers
}

func (b *bench) answered(answers chan LeaseAnswer) LeaseAnswer {
	b.t.Helper()
	select {
	case answer := <-answers:
		return answer
	case <-time.After(waitLong):
		b.await("an answer", func() bool { return false })
		panic("not reached")
	}
}

// loaded has what an ask was for on the card.
func (d *double) loaded(id string, bytes memory.Bytes) {
	d.hold("model of "+id, bytes)
	d.bench.keeper.Resident(d.party, Resident{ID: ID(id), Held: &bytes})
}

func (b *bench) busy(d *double) { b.keeper.Phase(d.party, memory.Busy) }
func (b *bench) idle(d *double) { b.keeper.Phase(d.party, memory.Ready) }
