package supervisor

import (
	"encoding/json"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// workerLine is the way from the memory accounts to a worker. What releases memory is served by the worker's main thread,
// between calls or while it waits for a lease.
type workerLine struct {
	peer       *wire.Peer
	generation uint64
}

// Ask sends a request.
func (l *workerLine) Ask(method string, params any, done func(result json.RawMessage, err error)) {
	lane := wire.LaneMemory
	if method == budget.MethodAskCensus || method == api.MethodPing {
		lane = wire.LaneReader
	}
	ask(l.peer, &wire.Message{Method: method, Lane: lane, Generation: l.generation, Params: wire.Params(params)}, done)
}

// Tell sends a notification.
func (l *workerLine) Tell(method string, params any) {
	_ = l.peer.Notify(&wire.Message{Method: method, Generation: l.generation, Params: wire.Params(params)}, nil)
	// A worker that is gone, or does not read, is noticed elsewhere.
}

// hostLine is the way from the memory accounts to a host, over whatever connection its session has.
type hostLine struct {
	daemon  *Daemon
	session *session
}

// Ask sends a request: to the thread that waits in a call of ours, where one does, since it may touch the host's memory at
// once; else to the host's next moment for it.
func (l *hostLine) Ask(method string, params any, done func(result json.RawMessage, err error)) {
	message := &wire.Message{Method: method, Lane: wire.LaneMemory, Params: wire.Params(params)}
	target, call := l.daemon.waitingClient(l.session)
	switch {
	case target == nil:
		done(nil, wire.ErrPeerGone)
		return
	case method == budget.MethodAskCensus:
		message.Lane = wire.LaneReader
	case call != 0:
		message.Lane, message.Call = wire.LaneCaller, call
	}
	ask(target.peer, message, done)
}

// Tell sends a notification.
func (l *hostLine) Tell(method string, params any) {
	if target, _ := l.daemon.waitingClient(l.session); target != nil {
		_ = target.peer.Notify(&wire.Message{Method: method, Params: wire.Params(params)}, nil) // as above
	}
}

// ask starts a request and hands its result on.
func ask(peer *wire.Peer, message *wire.Message, done func(result json.RawMessage, err error)) {
	_, err := peer.Start(message, nil, func(reply *wire.Message, _ []byte, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(reply.Result, nil)
	})
	if err != nil {
		done(nil, err)
	}
}

// waitingClient returns a connection of a session, one on which a thread waits in a node's call if there is one, and that
// call's ID there; 0: none waits.
func (d *Daemon) waitingClient(s *session) (target *client, id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range s.clients {
		if target == nil {
			target = c
		}
		for _, call := range c.calls {
			if call.method == "" && call.local == nil && !call.answered && call.sentID != 0 {
				return c, call.id
			}
		}
	}
	return target, 0
}
