package budget

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// Line reaches a party's process.
type Line interface {
	// Ask sends a request; done gets the answer, once, on any goroutine, and must not block. Ask itself never blocks.
	Ask(method string, params any, done func(result json.RawMessage, err error))
	// Tell sends a notification.
	Tell(method string, params any)
}

// Cards reads the machine's cards; *probe.Cards does.
type Cards interface {
	Read(ctx context.Context) ([]probe.Card, error)
	Close() error
}

// Config is what a Keeper is told. Every function may be called from the Keeper's goroutines only, and none may block
// but for OpenCards, RAM and Weigh.
type Config struct {
	Rules  memory.Rules
	Limits memory.Limits // of those whose environment says nothing else
	Sweep  time.Duration // between looks at everybody
	// TakeOver is how long loads that ask for room wait until an adopted worker has told what it was granted; 0: two
	// seconds. OrphanPause is the time between questions to one that computes for an earlier supervisor; 0: one second.
	TakeOver, OrphanPause time.Duration
	// OpenCards opens the driver's view of the cards. nil: there is none, and the processes' own readings are used.
	OpenCards func(ctx context.Context) (Cards, error)
	// ProcessLocal: processes on this machine see only their own bytes on a card (WDDM).
	ProcessLocal bool
	// RAM looks at the machine's RAM.
	RAM func(ctx context.Context) (probe.Machine, error)
	// File keeps activation estimates across restarts; empty: they are forgotten.
	File string
	// Parent finds a process's parent, to tell whose children hold bytes of a card. May be nil.
	Parent func(pid int) (int, bool)

	Event    func(api.Event)                       // takes a decision
	Note     func(party memory.Party, line string) // writes a line into a worker's log
	Released func(party memory.Party)              // a worker gave everything back
	End      func(action memory.Action)            // a worker's process is to end: Reap or EndIdle
}

// Keeper keeps the accounts. Make it with New, run it once.
type Keeper struct {
	config Config
	done   chan struct{} // closed when Run has returned

	mu    sync.Mutex
	queue []func()
	quiet map[memory.Party]quietPhase // phases of those who have nothing to account for; they wake nobody
	heard map[memory.Party]bool       // who has said something of its memory
	ended bool
	wake  chan struct{} // has a token while the queue may have something

	// The owner's, that is of the goroutine in Run.
	books    *memory.Books
	members  map[memory.Party]*member
	order    []*member // by party
	unsplit  bool      // pins may have to be split anew
	sessions map[string]*session
	asks     map[string]*ask // asked for, by the books' name for it
	cards    cardTable
	reader   reader
	work     sync.WaitGroup
	machine  probe.Machine
	ramKnown bool
	pressure time.Time // when RAM pressure was last answered
	estimate estimates
	tick     *time.Timer
	sweeping sweeping
	takeover takeover
	scratch  scratch
}

// session is what is known of one host's prompts, and of its reserve.
type session struct {
	known   bool // its host has spoken of prompts
	running map[string]running
	queued  []string
	reserve *memory.Reserve // nil until its host has said what it keeps itself
}

// New makes a Keeper; nothing happens before Run.
func New(config Config) *Keeper {
	if config.Sweep <= 0 {
		config.Sweep = 10 * time.Second
	}
	if config.TakeOver <= 0 {
		config.TakeOver = takeoverLimit
	}
	if config.OrphanPause <= 0 {
		config.OrphanPause = orphanPause
	}
	k := &Keeper{
		config: config, done: make(chan struct{}), wake: make(chan struct{}, 1),
		quiet: make(map[memory.Party]quietPhase), heard: make(map[memory.Party]bool), books: memory.NewBooks(config.Rules), members: make(map[memory.Party]*member),
		sessions: make(map[string]*session), asks: make(map[string]*ask),
		takeover: newTakeover(),
	}
	k.cards = newCardTable(config.ProcessLocal)
	k.reader = reader{keeper: k, want: make(chan struct{}, 1)}
	return k
}

// Run keeps the accounts until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	defer close(k.done)
	k.tick = time.NewTimer(time.Hour)
	defer k.tick.Stop()
	k.takeover.timer = time.NewTimer(time.Hour)
	defer k.takeover.timer.Stop()
	k.estimate.load(k.config.File, k.complain)
	k.seen(k.reader.look(ctx, true)) // before anything is named after a card
	k.work.Go(func() { k.reader.run(ctx) })
	k.sweeping.timer = time.NewTimer(0) // the first look shows what there is
	defer k.sweeping.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			k.end()
			return
		case <-k.wake:
		case <-k.tick.C:
			k.handle(k.books.Tick(time.Now()))
		case <-k.takeover.timer.C:
			k.takeoverTime(time.Now())
		case <-k.sweeping.timer.C:
			k.beginSweep()
		}
		k.takeQueue()
	}
}

// end refuses what is still asked, waits for what it has begun and keeps the estimates.
func (k *Keeper) end() {
	k.mu.Lock()
	k.ended = true
	k.queue = nil
	k.mu.Unlock()
	k.work.Wait()
	k.keepEstimates()
}

// post has the owner run a function, in the order of posting. False: the accounts are closed.
func (k *Keeper) post(do func()) bool {
	k.mu.Lock()
	if k.ended {
		k.mu.Unlock()
		return false
	}
	k.queueQuiet()
	k.queue = append(k.queue, do)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return true
}

func (k *Keeper) takeQueue() {
	for {
		k.mu.Lock()
		k.queueQuiet()
		queue := k.queue
		k.queue = nil
		k.mu.Unlock()
		if len(queue) == 0 {
			k.splitNow()
			return
		}
		for _, do := range queue {
			do()
		}
	}
}

// inside runs a function on the owner's goroutine and waits for it; false when the context or the Keeper has ended.
func (k *Keeper) inside(ctx context.Context, do func()) bool {
	ran := make(chan struct{})
	if !k.post(func() { do(); close(ran) }) {
		return false
	}
	select {
	case <-ran:
		return true
	case <-k.done:
	case <-ctx.Done():
	}
	return false
}

// handle does what the books ask for.
func (k *Keeper) handle(out memory.Outcome) {
	for i := range out.Answers {
		k.answer(&out.Answers[i])
	}
	for _, action := range out.Actions {
		k.carryOut(action)
	}
	if len(out.Read) > 0 {
		k.readAgain(out.Read)
	}
	for i := range out.Events {
		k.tell(&out.Events[i])
	}
	if out.Next.IsZero() {
		k.tick.Stop()
		return
	}
	k.tick.Reset(max(0, time.Until(out.Next)))
}

// tell makes an event of one of the books'.
func (k *Keeper) tell(event *memory.Event) {
	k.event("memory."+event.Kind, event.Party, event.Device, event.Cause, event.Terms)
}

// event passes a decision on with all its terms.
func (k *Keeper) event(kind string, party memory.Party, device, cause string, terms memory.Terms) {
	details := map[string]any{}
	if device != "" {
		details["device"] = device
	}
	if len(terms) > 0 {
		details["terms"] = terms
	}
	k.config.Event(api.Event{Kind: kind, Session: party.Session, Environment: party.Environment, Generation: party.Generation, Cause: cause, Terms: details})
}

// complain makes an event of something that went wrong in the Keeper's own work.
func (k *Keeper) complain(kind string, err error) {
	k.config.Event(api.Event{Kind: kind, Cause: err.Error()})
}

// session finds what is known of a session, making it at its first mention.
func (k *Keeper) session(id string) *session {
	s := k.sessions[id]
	if s == nil {
		s = &session{running: make(map[string]running)}
		k.sessions[id] = s
	}
	return s
}
