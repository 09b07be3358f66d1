package supervisor

import (
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// effects are what a transition asks for, collected under Daemon.mu and carried out without it: everything here may
// send, start or end something.
type effects struct {
	forward []sending
	cancel  []sending
	discard []*spawn.Shipment // memory files of calls that go nowhere: their owners may have to be told
	fail    []failing
	stop    []ending
	launch  []*worker
	ended   []endedSession
	events  []api.Event // numbered and kept already, so that their order is that of what happened; to be logged
}

// tell adds an event; Daemon.mu is held.
func (e *effects) tell(d *Daemon, event api.Event) { e.events = append(e.events, d.events.add(event)) }

type sending struct {
	worker *worker
	call   *call
}

type failing struct {
	call *call
	err  *wire.Error
}

type ending struct {
	worker *worker
	force  bool
	cause  string
}

type endedSession struct {
	session *session
	cause   string
}

func (e *effects) add(more effects) {
	e.forward = append(e.forward, more.forward...)
	e.cancel = append(e.cancel, more.cancel...)
	e.discard = append(e.discard, more.discard...)
	e.fail = append(e.fail, more.fail...)
	e.stop = append(e.stop, more.stop...)
	e.launch = append(e.launch, more.launch...)
	e.ended = append(e.ended, more.ended...)
	e.events = append(e.events, more.events...)
}

// step hands a message to a record and does the bookkeeping of what follows; Daemon.mu is held. subject is the call
// that the message is about, if any.
func (d *Daemon) step(w *worker, message Message, subject *call) effects {
	now := time.Now()
	limits := d.config.Crash
	limits.Start = w.limits.start
	before := w.record
	record, actions := Step(before, message, now, limits)
	w.record = record
	var e effects
	for _, action := range actions {
		switch action {
		case Forward:
			subject.moveTo(w)
			w.inFlight[subject] = struct{}{}
			e.forward = append(e.forward, sending{w, subject})
		case Enqueue:
			subject.moveTo(w)
			w.queue = append(w.queue, subject)
		case Refuse:
			e.fail = append(e.fail, failing{subject, w.refusal()})
		case Flush:
			for _, queued := range w.queue {
				w.inFlight[queued] = struct{}{}
				e.forward = append(e.forward, sending{w, queued})
			}
			w.queue = nil
		case FailQueued:
			for _, queued := range w.queue {
				e.fail = append(e.fail, failing{queued, w.startStory(message)})
			}
			w.queue = nil
		case FailSent:
			for sent := range w.inFlight {
				if !sent.answered { // those that were given up have their answer
					e.fail = append(e.fail, failing{sent, w.endStory(sent, message)})
				}
			}
			clear(w.inFlight)
			clear(w.byID)
		case Stop, Kill:
			e.stop = append(e.stop, ending{w, action == Kill, message.Cause})
		case Replace:
			if d.closing || w.place.session.ended {
				for _, queued := range w.queue {
					e.fail = append(e.fail, failing{queued, errClosing()})
				}
				w.queue = nil
				continue
			}
			next := d.newWorker(w.place, newRecord(before.Generation+1, record.Crashes, len(w.queue), now))
			next.queue = w.queue
			for _, queued := range next.queue {
				queued.moveTo(next)
			}
			w.queue = nil
			next.lastExit = w.lastExit
			next.before = w
			w.place.current = next
			e.launch = append(e.launch, next)
			e.tell(d, api.Event{
				Kind: "worker." + string(Starting), Session: w.place.session.id, Environment: w.place.environment,
				Generation: next.generation, Cause: "wanted by " + next.queue[0].describe(), Terms: map[string]any{"worker": next.id},
			})
		}
	}
	for _, failed := range e.fail {
		d.settleCall(failed.call)
	}
	d.tellPhase(w)
	if record.State != before.State {
		d.stateChanged(w, before, message, &e)
	}
	return e
}

// stateChanged sets the clocks of the new state and reports it; Daemon.mu is held.
func (d *Daemon) stateChanged(w *worker, before Record, message Message, e *effects) {
	if w.tick != nil {
		w.tick.Stop()
		w.tick = nil
	}
	if w.record.State == Backoff {
		w.tick = d.after(time.Until(w.record.BackoffUntil), func() { d.send(w, Message{Kind: Tick, Cause: "the pause after a crash is over"}) })
	}
	if w.record.State == Backoff || w.record.State == Quarantined || before.State == Backoff || before.State == Quarantined {
		d.manifests.kick()
	}
	if w.record.State == Ready && w.limits.reap > 0 && w.limits.reap < d.config.SweepInterval {
		d.accounts.Sweep()
	}
	idleToBusy := before.State == Ready && w.record.State == Busy || before.State == Busy && w.record.State == Ready
	if idleToBusy { // the ordinary life of a worker fills no log
		return
	}
	terms := map[string]any{"from": before.State, "to": w.record.State, "worker": w.id}
	if w.record.State == Backoff {
		terms["until"] = w.record.BackoffUntil
	}
	if !w.record.State.alive() {
		terms["crashes"] = len(w.record.Crashes)
		if w.lastExit != nil && w.lastExit.Generation == w.record.Generation {
			terms["exit"] = w.lastExit
		}
	}
	e.tell(d, api.Event{
		Kind: "worker." + string(w.record.State), Session: w.place.session.id, Environment: w.place.environment,
		Generation: w.record.Generation, Cause: message.Cause, Terms: terms,
	})
}

// send hands a message to a record and carries out what follows.
func (d *Daemon) send(w *worker, message Message) {
	d.mu.Lock()
	e := d.step(w, message, nil)
	d.mu.Unlock()
	d.perform(e)
}

// perform carries effects out. It sends but waits for nothing; whatever takes time gets a goroutine.
func (d *Daemon) perform(e effects) {
	for _, item := range e.forward {
		d.forward(item.worker, item.call)
	}
	for _, item := range e.cancel {
		d.tellCancel(item.worker, item.call)
	}
	for _, shipment := range e.discard {
		shipment.Discard()
	}
	for _, item := range e.fail {
		d.answer(item.call, &wire.Message{Error: item.err}, nil)
	}
	for _, event := range e.events {
		d.logEvent(event)
		d.tellHost(event)
	}
	for _, w := range e.launch {
		d.goSafely(func() { d.own(w) })
	}
	for _, item := range e.stop {
		item.worker.cancelStart()
		d.goSafely(func() { d.end(item.worker, item.force) })
	}
	for _, item := range e.ended {
		d.sessionEnded(item.session, item.cause)
	}
}
