package budget

import (
	"encoding/json"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// answerShare is the part of a process's patience after which its ask is answered all the same: the answer has to arrive
// before the process goes on by itself.
const answerShare = 0.95

// ask is one lease that was asked for, until what it was for has ended.
type ask struct {
	name      string // unique among all parties
	member    *member
	device    string
	node      string
	advice    memory.Bytes
	replies   []func(LeaseAnswer) // of every request for it: one that was repeated waits for the last, and which that is can not be told
	keptSince time.Time           // while the leases of adopted workers were not known; zero: it was not kept back
	asked     bool                // the books know it
	withdrawn bool
	answered  bool
}

// askName is the books' name for a lease: what a process calls it is its own affair.
func askName(party memory.Party, id ID) string { return party.String() + "/" + string(id) }

// Lease asks for room for a load. The answer comes to reply, once, on the Keeper's goroutine; without one the Keeper has
// ended. Raw parameters are read there too, so that the asking goroutine is free at once.
func (k *Keeper) Lease(party memory.Party, params json.RawMessage, reply func(LeaseAnswer), refuse func(error)) {
	var wanted Lease
	if err := json.Unmarshal(params, &wanted); err != nil {
		refuse(err)
		return
	}
	arrived := time.Now()
	k.speaks(party)
	k.post(func() { k.lease(party, &wanted, arrived, reply) })
}

func (k *Keeper) lease(party memory.Party, wanted *Lease, arrived time.Time, reply func(LeaseAnswer)) {
	m := k.members[party]
	if m == nil {
		reply(LeaseAnswer{Verdict: memory.Dropped, Cause: memory.CauseStale, Reserve: wanted.Load.Reserve})
		return
	}
	m.deaf = false // it serves these methods after all
	if !isCard(wanted.Device.Device) {
		reply(LeaseAnswer{Verdict: memory.Granted, Cause: "not_a_card", Reserve: wanted.Load.Reserve, Assign: k.handOver(m)})
		return
	}
	a := k.asks[askName(party, wanted.ID)]
	if a != nil { // doubled on its way, or asked again: the books know what was said
		a.replies = append(a.replies, reply)
		k.askBooks(a, wanted, arrived)
		return
	}
	a = &ask{name: askName(party, wanted.ID), member: m, device: k.locate(m, wanted.Device), node: wanted.Node, replies: []func(LeaseAnswer){reply}}
	k.keep(a)
	if wanted.ProcessLocal {
		k.cards.local[a.device] = true
	}
	k.read(func() { k.askBooks(a, wanted, arrived) })
}

func (k *Keeper) keep(a *ask) {
	k.asks[a.name] = a
	a.member.asks[a.name] = a
}

func (k *Keeper) forget(a *ask) {
	if k.asks[a.name] == a {
		delete(k.asks, a.name)
	}
	delete(a.member.asks, a.name)
}

// askBooks hands an ask to the books, as soon as they know what adopted workers were granted.
func (k *Keeper) askBooks(a *ask, wanted *Lease, arrived time.Time) {
	if !k.keepBack(a, wanted, arrived) {
		k.toBooks(a, wanted, arrived)
	}
}

// toBooks hands an ask to the books, with a picture of the card that is newer than the ask.
func (k *Keeper) toBooks(a *ask, wanted *Lease, arrived time.Time) {
	m, now := a.member, time.Now()
	if k.members[m.Party] != m || k.asks[a.name] != a {
		return // gone meanwhile, and its line with it
	}
	if !k.cards.driven(a.device) {
		k.ownReading(now, a.device, memory.DeviceCensus{OwnFree: wanted.OwnFree, OwnTotal: wanted.OwnTotal, ProcessLocal: wanted.ProcessLocal}, arrived)
	}
	key := k.estimateKey(a)
	a.advice, _ = k.estimate.known.Advice(key)
	request := memory.Ask{
		ID: a.name, Party: m.Party, Device: a.device, Models: wanted.Models,
		Load:   memory.Load{Weights: wanted.Load.Weights, Activation: wanted.Load.Activation, Minimum: wanted.Load.Minimum, Reserve: wanted.Load.Reserve},
		Advice: a.advice, LargestTensor: wanted.LargestTensor, Streams: wanted.Streams, CastBuffers: wanted.CastBuffers,
		Context: wanted.Context, Overhead: wanted.Overhead, Keep: wanted.Keep, Paged: wanted.Paged,
		Deadline: wanted.deadline(arrived),
	}
	if !a.keptSince.IsZero() {
		request.KeptBack = now.Sub(a.keptSince)
	}
	a.asked = true
	k.handle(k.books.Ask(now, request))
	if a.withdrawn {
		a.answered = true
		k.handle(k.books.Withdraw(time.Now(), a.name))
	}
}

// deadline is when an ask is to be answered at the latest; zero: its process waits as long as the rules say.
func (l *Lease) deadline(arrived time.Time) time.Time {
	if l.WaitMS <= 0 {
		return time.Time{}
	}
	return arrived.Add(time.Duration(float64(l.WaitMS) * answerShare * float64(time.Millisecond)))
}

// answer passes the books' answer on.
func (k *Keeper) answer(answer *memory.Answer) {
	a := k.asks[answer.Ask]
	if a == nil || len(a.replies) == 0 {
		return
	}
	replies := a.replies
	a.replies, a.answered = nil, true
	said := LeaseAnswer{
		Verdict: answer.Verdict, Cause: answer.Cause, Lease: answer.Lease, Reserve: answer.Reserve, Headroom: answer.Headroom,
		WaitedMS: answer.Waited.Milliseconds(), Advice: a.advice, Terms: answer.Terms, Assign: k.handOver(a.member),
	}
	for _, reply := range replies {
		reply(said)
	}
	if answer.Verdict == memory.Dropped {
		k.forget(a)
	}
}

// Withdraw notes that a process no longer waits for a lease.
func (k *Keeper) Withdraw(party memory.Party, id ID) {
	k.post(func() {
		a := k.asks[askName(party, id)]
		if a == nil {
			return
		}
		if a.replies = nil; !a.asked {
			a.withdrawn = true
			return
		}
		a.answered = true
		k.handle(k.books.Withdraw(time.Now(), a.name))
	})
}

// Resident notes that the weights of a lease are on the card.
func (k *Keeper) Resident(party memory.Party, said Resident) {
	k.post(func() {
		held := memory.Bytes(-1)
		if said.Held != nil {
			held = *said.Held
		}
		k.handle(k.books.Resident(time.Now(), askName(party, said.ID), held))
	})
}

// Finished notes that the computation of a lease has ended, and what it took at most.
func (k *Keeper) Finished(party memory.Party, said Finished) {
	k.post(func() {
		now := time.Now()
		if a := k.asks[askName(party, said.ID)]; a != nil {
			k.estimate.observe(now, k.estimateKey(a), said.Peak)
			if a.answered {
				k.forget(a)
			}
			k.askLane(a.member)
		}
		k.handle(k.books.Finished(now, askName(party, said.ID)))
	})
}
