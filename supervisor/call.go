package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// call is one call of a client, from its arrival until its answer, or, when the client does not wait any more, until
// the worker is done with it.
type call struct {
	client *client
	id     uint64 // on the client's connection
	reply  wire.ReplyFunc

	environment string
	node        string
	method      string // of the message to the worker; empty: call
	lane        string // empty: the main one
	params      json.RawMessage
	body        []byte
	bodyFile    *wire.BodyFile
	shipment    *spawn.Shipment // the memory files of its inputs
	silence     time.Duration   // as the client wants it; 0: the environment's own limit
	deadline    time.Time       // zero: none
	patience    time.Duration   // how long the start of a worker may take for this call, if that is longer than usual
	// local answers the call without the worker's help, once the worker is ready. For requests that only need it.
	local func(*worker) any

	// Guarded by Daemon.mu.
	worker    *worker
	sentID    uint64 // on the worker's connection; 0: not sent
	sentAt    time.Time
	heardAt   time.Time // the last sign of life
	waits     bool      // it counts among what its client has waiting
	cancelled bool      // the worker shall be told once it is sent
	answered  bool      // the client has its answer, or waits no more
	silent    *time.Timer
	overdue   *time.Timer
	overstays *time.Timer // since it was cancelled
}

// describe names a call and its client in causes.
func (c *call) describe() string {
	if c.local != nil {
		return c.client.describe()
	}
	return fmt.Sprintf("a call of %s from %s", c.node, c.client.describe())
}

// moveTo says which worker has the call; Daemon.mu is held.
func (c *call) moveTo(w *worker) { c.worker = w }

// stopClocks ends a call's limits; Daemon.mu is held.
func (c *call) stopClocks() {
	for _, clock := range []*time.Timer{c.silent, c.overdue, c.overstays} {
		if clock != nil {
			clock.Stop()
		}
	}
}

// acceptCall takes a client's call on the client's reading goroutine: it goes to the worker at once, or waits for one.
func (d *Daemon) acceptCall(c *client, request *wire.Message, body []byte, reply wire.ReplyFunc) {
	var params api.CallParams
	if err := json.Unmarshal(request.Params, &params); err != nil {
		refuse(reply, wire.Errorf(wire.KindBadRequest, "decoding a call: %v", err))
		return
	}
	if params.Environment == "" || params.Node == "" {
		refuse(reply, wire.NewError(wire.KindBadRequest, "a call needs an environment and a node"))
		return
	}
	shipment, err := d.files.Receive(c.party, request.Files)
	if err != nil {
		refuse(reply, wire.Errorf(wire.KindValue, "taking the inputs of %s: %v", params.Node, err))
		return
	}
	call := &call{
		client: c, id: request.ID, reply: reply, environment: params.Environment, node: params.Node,
		params: request.Params, body: body, bodyFile: request.BodyFile, shipment: shipment,
		silence: time.Duration(params.SilenceMilliseconds) * time.Millisecond,
	}
	if request.DeadlineMilliseconds > 0 {
		call.deadline = time.Now().Add(time.Duration(request.DeadlineMilliseconds) * time.Millisecond)
	}
	d.admit(c.session, call)
}

// admit hands a call to the worker of its place in a session.
func (d *Daemon) admit(s *session, call *call) {
	c := call.client
	d.mu.Lock()
	refusal := d.refusal(c, s, call)
	if refusal != nil {
		d.mu.Unlock()
		call.shipment.Discard()
		refuse(call.reply, refusal)
		return
	}
	c.calls[call.id] = call
	if !call.deadline.IsZero() {
		call.overdue = d.after(time.Until(call.deadline), func() {
			d.giveUp(call, wire.KindSilent, "its deadline passed")
		})
	}
	e := d.step(d.place(s, call.environment).current, Message{Kind: CallArrived}, call)
	if len(e.forward) == 0 && len(e.fail) == 0 {
		call.waits = true
		c.queuedBytes += len(call.body)
	}
	d.mu.Unlock()
	d.perform(e)
}

// refusal says why a call can not be taken; Daemon.mu is held.
func (d *Daemon) refusal(c *client, s *session, call *call) *wire.Error {
	switch {
	case d.closing:
		return errClosing()
	case s.ended:
		return wire.NewError(wire.KindStopped, "the session has ended")
	case c.ended:
		return wire.NewError(wire.KindStopped, "the connection has ended")
	case c.calls[call.id] != nil:
		return wire.Errorf(wire.KindBadRequest, "call %d is under way already", call.id)
	case len(c.calls) >= maxCallsPerClient:
		return wire.Errorf(wire.KindBadRequest, "%d calls are under way, more are not taken from one client", len(c.calls))
	case c.queuedBytes+len(call.body) > maxQueuedBodyBytes:
		return wire.Errorf(wire.KindBadRequest, "calls with %d bytes of inputs wait for workers, more are not taken from one client", c.queuedBytes)
	}
	return nil
}

// forward sends a call to its worker, on whatever goroutine found that it can go.
func (d *Daemon) forward(w *worker, call *call) {
	if !d.asksFirst(w, call) {
		d.transmit(w, call)
	}
}

// transmit sends a call to its worker now.
func (d *Daemon) transmit(w *worker, call *call) {
	d.mu.Lock()
	if call.answered { // cancelled meanwhile
		delete(w.inFlight, call)
		e := d.step(w, Message{Kind: CallAnswered}, nil)
		d.mu.Unlock()
		call.shipment.Discard()
		d.perform(e)
		return
	}
	call.sentAt = time.Now()
	call.heardAt = call.sentAt
	if call.local == nil {
		d.startClocks(w, call)
	}
	d.mu.Unlock()
	if call.local != nil {
		d.localAnswer(w, call)
		return
	}
	method, lane := api.MethodCall, wire.LaneMain
	if call.method != "" {
		method, lane = call.method, call.lane
	}
	message := &wire.Message{
		Method: method, Lane: lane, Generation: w.generation, Params: call.params,
		Files: call.shipment.Deliver(w.party), BodyFile: call.bodyFile,
	}
	if !call.deadline.IsZero() {
		message.DeadlineMilliseconds = max(1, time.Until(call.deadline).Milliseconds())
	}
	_, err := w.peer.StartPrepared(message, call.body, func(id uint64) {
		d.mu.Lock()
		call.sentID = id
		w.byID[id] = call
		d.mu.Unlock()
	}, func(reply *wire.Message, body []byte, err error) {
		d.workerAnswered(w, call, reply, body)
	})
	switch {
	case err == nil:
		d.mu.Lock()
		tell := call.cancelled && call.sentID != 0
		d.mu.Unlock()
		if tell {
			d.tellCancel(w, call)
		}
	case errors.Is(err, spawn.ErrNotReading):
		failure := wire.Errorf(wire.KindSilent, "the worker of %s does not read: too much waits for it already to send it the call of %s", call.environment, call.node)
		failure.Data.Remedy = "a worker that is stuck ends with `comfy-supervisor restart " + call.environment + "`"
		d.notSent(w, call, message, failure)
	case isGone(err): // the end of the process answers the call
	default:
		d.notSent(w, call, message, wire.Errorf(wire.KindValue, "sending the call of %s: %v", call.node, err))
	}
}

// notSent answers a call that could not be sent to a worker that lives.
func (d *Daemon) notSent(w *worker, call *call, message *wire.Message, failure *wire.Error) {
	d.undelivered(w.party, message.Files)
	d.workerAnswered(w, call, &wire.Message{Error: failure}, nil)
}

// localAnswer answers a request that needed a ready worker and nothing else of it.
func (d *Daemon) localAnswer(w *worker, call *call) {
	d.workerAnswered(w, call, &wire.Message{Result: wire.Params(call.local(w))}, nil)
}

// workerAnswered takes a worker's reply; nil means that the connection ended, and then the end of the process answers.
func (d *Daemon) workerAnswered(w *worker, call *call, reply *wire.Message, body []byte) {
	if reply == nil {
		return
	}
	shipment, filesErr := d.files.Receive(w.party, reply.Files)
	if errors.Is(filesErr, spawn.ErrPartyEnded) { // its result went with it, and its end answers the call
		return
	}
	d.mu.Lock()
	_, expected := w.inFlight[call]
	var e effects
	if expected {
		delete(w.inFlight, call)
		delete(w.byID, call.sentID)
		w.calls++
		e = d.step(w, Message{Kind: CallAnswered}, nil)
	}
	deliver := expected && !call.answered
	if deliver {
		d.settleCall(call)
	}
	call.stopClocks()
	d.mu.Unlock()
	if !deliver { // nobody waits for it any more
		shipment.Discard()
		d.perform(e)
		return
	}
	answer := &wire.Message{BodyFile: reply.BodyFile, Error: reply.Error, Result: w.result}
	switch {
	case filesErr != nil:
		answer = &wire.Message{Error: wire.Errorf(wire.KindValue, "taking the result of %s: %v", call.node, filesErr)}
		body = nil
	case reply.Error != nil:
		answer.Result = nil
		answer.Error.Data.Environment = call.environment
		answer.Error.Data.Generation = w.generation
		if answer.Error.Data.Node == "" {
			answer.Error.Data.Node = call.node
		}
	case call.local != nil, call.method == api.MethodNodes, call.method == methodHandleSettle: // others have their answer in the body
		answer.Result = reply.Result
	}
	answer.Files = shipment.Deliver(call.client.party)
	d.answer(call, answer, body)
	d.perform(e)
}

// settleCall marks a call as answered and takes it from its client's list; Daemon.mu is held.
func (d *Daemon) settleCall(call *call) {
	if call.answered {
		return
	}
	call.answered = true
	call.stopClocks()
	c := call.client
	delete(c.calls, call.id)
	call.stopWaiting()
}

// stopWaiting takes a call out of what its client has waiting; Daemon.mu is held.
func (c *call) stopWaiting() {
	if c.waits {
		c.waits = false
		c.client.queuedBytes -= len(c.body)
	}
}

// startClocks sets a call's limits when it is sent; Daemon.mu is held.
func (d *Daemon) startClocks(w *worker, call *call) {
	call.stopWaiting()
	if call.silence == 0 {
		call.silence = w.limits.callSilence
	}
	if call.silence > 0 {
		call.silent = d.after(call.silence, func() { d.silent(call) })
	}
	if limit := w.limits.callDeadline; limit > 0 && call.overdue == nil {
		call.deadline = call.sentAt.Add(limit)
		call.overdue = d.after(limit, func() {
			d.giveUp(call, wire.KindSilent, fmt.Sprintf("it took longer than %s", limit))
		})
	}
}

// answer sends a call's answer to its client.
func (d *Daemon) answer(call *call, answer *wire.Message, body []byte) {
	call.shipment.Discard() // of a call that was never sent; otherwise it has been delivered, and this does nothing
	if err := call.reply(answer, body); err != nil && !isGone(err) {
		d.undelivered(call.client.party, answer.Files)
		refuse(call.reply, wire.Errorf(wire.KindValue, "sending the result of %s: %v", call.node, err))
	} // a client that is gone drops what it held when its connection is cleared away
}

// withdraw ends a call whose client does not wait any more; Daemon.mu is held.
func (d *Daemon) withdraw(call *call) effects {
	d.settleCall(call)
	w := call.worker
	if w == nil {
		return effects{}
	}
	for i, queued := range w.queue {
		if queued == call {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			e := d.step(w, Message{Kind: CallWithdrawn}, nil)
			e.discard = append(e.discard, call.shipment)
			return e
		}
	}
	call.cancelled = true
	if _, sent := w.inFlight[call]; sent && call.sentID != 0 {
		return effects{cancel: []sending{{w, call}}}
	}
	return effects{}
}

// cancelCall passes a client's cancel on. A call that waits for a worker ends at once; one that is sent ends when the
// worker says so; one that has ended is left alone.
func (d *Daemon) cancelCall(c *client, id uint64) {
	d.mu.Lock()
	if stop := c.requests[id]; stop != nil {
		d.mu.Unlock()
		stop()
		return
	}
	call := c.calls[id]
	if call == nil {
		d.mu.Unlock()
		return
	}
	w := call.worker
	if w != nil {
		for _, queued := range w.queue {
			if queued == call {
				e := d.withdraw(call)
				d.mu.Unlock()
				d.perform(e)
				refuse(call.reply, &wire.Error{Code: -32000, Message: fmt.Sprintf("the call of %s was cancelled before its worker was ready", call.node),
					Data: wire.ErrorData{Kind: wire.KindCancelled, Environment: call.environment, Node: call.node}})
				return
			}
		}
	}
	call.cancelled = true
	tell := w != nil && call.sentID != 0
	if w != nil && w.limits.cancelled > 0 && call.overstays == nil {
		call.overstays = d.after(w.limits.cancelled, func() { d.overstayed(w, call) })
	}
	d.mu.Unlock()
	if tell {
		d.tellCancel(w, call)
	}
}

// tellCancel tells a worker to cancel a call.
func (d *Daemon) tellCancel(w *worker, call *call) {
	_ = w.peer.Notify(&wire.Message{Method: api.MethodCancel, Call: call.sentID, Generation: w.generation}, nil)
	// A worker that is gone computes nothing; its end is noticed elsewhere.
}

// heard takes a sign of life of a call and returns it if its client still waits.
func (d *Daemon) heard(w *worker, id uint64) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := w.byID[id]
	if call == nil || call.answered {
		return nil
	}
	call.heardAt = time.Now()
	return call
}

// silent looks whether a call has really been silent for its limit, and gives it up then.
func (d *Daemon) silent(call *call) {
	d.mu.Lock()
	quiet := time.Since(call.heardAt)
	if call.answered {
		d.mu.Unlock()
		return
	}
	if quiet < call.silence {
		call.silent = d.after(call.silence-quiet, func() { d.silent(call) })
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.giveUp(call, wire.KindSilent, fmt.Sprintf("it gave no sign of life for %s", call.silence))
}

// giveUp answers a call that passed a limit and cancels it; a worker that does not end it within the grace time is
// killed, since it would hold up every later call.
func (d *Daemon) giveUp(call *call, kind, why string) {
	d.mu.Lock()
	if call.answered {
		d.mu.Unlock()
		return
	}
	w := call.worker
	e := d.withdraw(call)
	if w != nil {
		if _, sent := w.inFlight[call]; sent {
			d.after(w.limits.stopGrace, func() { d.killStuck(w, call, why) })
		}
		e.tell(d, api.Event{Kind: "call.given_up", Session: w.place.session.id, Environment: call.environment,
			Generation: w.generation, Cause: why, Terms: map[string]any{"node": call.node}})
	}
	d.mu.Unlock()
	d.perform(e)
	_ = call.reply(&wire.Message{Error: &wire.Error{Code: -32000,
		Message: fmt.Sprintf("the call of %s in %s was given up: %s", call.node, call.environment, why),
		Data: wire.ErrorData{Kind: kind, Environment: call.environment, Node: call.node,
			Remedy: "if the node works that long without reporting progress, raise call_silence for this environment in the settings"}}}, nil)
}

// killStuck kills a worker that has not ended a call it was told to cancel.
func (d *Daemon) killStuck(w *worker, call *call, why string) {
	d.killFor(w, call, Message{Kind: StopAsked, Force: true, Crash: true,
		Cause: fmt.Sprintf("%s did not end within %s of being cancelled, after %s", call.node, w.limits.stopGrace, why)})
}

// overstayed kills a worker whose node goes on for longer than the operator allows after a cancel. It is no crash: the
// next call gets a new worker at once.
func (d *Daemon) overstayed(w *worker, call *call) {
	d.killFor(w, call, Message{Kind: StopAsked, Force: true,
		Cause: fmt.Sprintf("%s did not end within %s of being cancelled, which is the setting cancel_deadline", call.node, w.limits.cancelled)})
}

// killFor kills a worker for a call that is still under way.
func (d *Daemon) killFor(w *worker, call *call, message Message) {
	d.mu.Lock()
	_, still := w.inFlight[call]
	var e effects
	if still {
		e = d.step(w, message, nil)
	}
	d.mu.Unlock()
	d.perform(e)
}
