package budget

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
)

// openAgain is how often a driver that could not be opened is tried again: it may be loaded later.
const openAgain = time.Minute

// reader looks at cards and RAM in a goroutine of its own: a driver that hangs holds up readings and nothing else. What is
// asked for while it looks gets a look of its own, since the present one may have begun too early to show it.
type reader struct {
	keeper *Keeper
	want   chan struct{}

	mu      sync.Mutex
	waiting []func()
	withRAM bool

	// The reading goroutine's.
	cards  Cards
	tried  time.Time
	hangs  bool
	failed error // of the last attempt to open the cards
}

// look is one look at the machine.
type look struct {
	cards    []probe.Card
	cardsErr error
	opened   bool // there is a driver to ask
	machine  *probe.Machine
	ramErr   error
}

// read has the cards looked at, and then, on the owner's goroutine, runs a function. Only the owner calls it.
func (k *Keeper) read(then func()) {
	if k.config.OpenCards == nil {
		then()
		return
	}
	k.reader.ask(then, false)
}

func (r *reader) ask(then func(), withRAM bool) {
	r.mu.Lock()
	r.waiting = append(r.waiting, then)
	r.withRAM = r.withRAM || withRAM
	r.mu.Unlock()
	select {
	case r.want <- struct{}{}:
	default:
	}
}

func (r *reader) run(ctx context.Context) {
	defer func() {
		if r.cards != nil {
			if err := r.cards.Close(); err != nil {
				r.keeper.complain("memory.cards_unreadable", err)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.want:
		}
		r.mu.Lock()
		waiting, withRAM := r.waiting, r.withRAM
		r.waiting, r.withRAM = nil, false
		r.mu.Unlock()
		if len(waiting) == 0 {
			continue
		}
		seen := r.look(ctx, withRAM)
		r.keeper.post(func() {
			r.keeper.seen(seen)
			for _, then := range waiting {
				then()
			}
		})
	}
}

func (r *reader) look(ctx context.Context, withRAM bool) look {
	var seen look
	if r.open(ctx) {
		seen.opened = true
		seen.cards, seen.cardsErr = r.cards.Read(ctx)
	} else {
		seen.cardsErr = r.failed
	}
	if withRAM && r.keeper.config.RAM != nil {
		machine, err := r.keeper.config.RAM(ctx)
		seen.machine, seen.ramErr = &machine, err
	}
	return seen
}

// open opens the cards; a driver that failed is tried again after some time, one that hangs never, since its library can
// be loaded once only.
func (r *reader) open(ctx context.Context) bool {
	if r.cards != nil || r.keeper.config.OpenCards == nil {
		return r.cards != nil
	}
	if r.hangs || !r.tried.IsZero() && time.Since(r.tried) < openAgain {
		return false
	}
	r.tried = time.Now()
	cards, err := r.keeper.config.OpenCards(ctx)
	var hang *probe.HangError
	r.failed, r.hangs = err, errors.As(err, &hang)
	if err == nil {
		r.cards = cards
	}
	return err == nil
}

// seen takes a look over.
func (k *Keeper) seen(seen look) {
	now := time.Now()
	if seen.machine != nil {
		switch {
		case seen.ramErr != nil:
			k.complain("memory.ram_unreadable", seen.ramErr)
		default:
			k.machine, k.ramKnown = *seen.machine, true
		}
	}
	if k.config.OpenCards == nil {
		return
	}
	k.cards.sources(k, seen)
	if seen.cardsErr != nil {
		return
	}
	for i := range seen.cards {
		card := &seen.cards[i]
		if card.Err != nil || card.Partitioned {
			continue
		}
		k.reading(now, card.Reading(k.cards.processLocal(card.Device()), k.owner))
	}
}

// reading gives a card's picture to the books and to the reserves.
func (k *Keeper) reading(now time.Time, reading memory.Reading) {
	if k.cards.size(reading.Device, reading.Total) {
		k.cardKnown(reading.Device)
	}
	k.handle(k.books.Reading(now, reading))
}

// owner finds the party that a process belongs to: itself, or whoever started it.
func (k *Keeper) owner(pid int) (memory.Party, bool) {
	const most = 32 // generations of processes
	for range most {
		if party, ok := k.cards.pids[pid]; ok {
			return party, true
		}
		if k.config.Parent == nil {
			break
		}
		parent, ok := k.config.Parent(pid)
		if !ok || parent <= 1 {
			break
		}
		pid = parent
	}
	return memory.Party{}, false
}

// readAgain looks again at devices: through the driver, or where that shows none of them, through a process that can.
func (k *Keeper) readAgain(devices []string) {
	var others []string
	for _, device := range devices {
		if !k.cards.driven(device) {
			others = append(others, device)
		}
	}
	if len(others) < len(devices) {
		k.read(func() {})
	}
	for _, device := range others {
		k.askOwnReading(device)
	}
}

// askOwnReading asks a process that has a context on a device for its own look at it, the idle ones first.
func (k *Keeper) askOwnReading(device string) {
	var chosen *member
	for _, m := range k.order {
		if m.deaf || !m.contexts[device] || k.cards.processLocal(device) {
			continue
		}
		if chosen == nil || m.phase.Idle() && !chosen.phase.Idle() {
			chosen = m
		}
	}
	if chosen == nil {
		return // the books help themselves after a while
	}
	k.askCensus(chosen)
}
