package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// Limits of one client.
const (
	maxClients         = 1024
	maxCallsPerClient  = 4096     // outstanding calls
	maxQueuedBodyBytes = 64 << 20 // bodies of calls that wait for a worker to start
	maxClientRequests  = 64       // other requests that are served beside each other

	helloTime = 10 * time.Second // from the connection until the client has introduced itself
)

// client is one connection. Its reading goroutine forwards calls by itself; everything that may wait is served in
// goroutines that the client owns.
type client struct {
	daemon *Daemon
	box    *outbox
	peer   *wire.Peer
	who    credentials
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	work   sync.WaitGroup

	// Written by the reading goroutine under Daemon.mu, when hello is accepted.
	session *session
	hello   api.HelloParams
	party   spawn.Party

	// Guarded by Daemon.mu.
	calls       map[uint64]*call              // by their ID on this connection
	requests    map[uint64]context.CancelFunc // what is served in goroutines
	queuedBytes int
	wantsLogs   bool // the lines of all the session's workers, as they come
	ended       bool
}

// serveClient talks to one client until its connection ends.
func (d *Daemon) serveClient(conn net.Conn) {
	who, err := readCredentials(conn)
	if err != nil || !sameUser(who) {
		d.log.Warn().Err(err).Int("uid", who.uid).Int("pid", who.pid).Msg("refused a client of another user")
		_ = conn.Close()
		return
	}
	c := &client{
		daemon:   d,
		box:      newOutbox(conn),
		who:      who,
		calls:    make(map[uint64]*call),
		requests: make(map[uint64]context.CancelFunc),
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloTime)) // fails only for a connection that has ended already
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.peer = wire.NewPeer(c.box, c)
	if !d.addClient(c) {
		_ = c.box.Close()
		return
	}
	err = c.peer.Run()
	c.cancel()
	d.clientGone(c, err)
	c.work.Wait()
}

// sameUser reports whether a process belongs to the user of this one.
func sameUser(who credentials) bool { return who.uid == os.Geteuid() }

func (d *Daemon) addClient(c *client) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing || len(d.clients) >= maxClients {
		return false
	}
	d.clients[c] = struct{}{}
	return true
}

// clientGone ends what a client had under way: its calls are cancelled, its memory files dropped.
func (d *Daemon) clientGone(c *client, err error) {
	d.mu.Lock()
	c.ended = true
	delete(d.clients, c)
	var all effects
	for _, call := range c.calls {
		all.add(d.withdraw(call))
	}
	clear(c.calls)
	session := c.session
	if session != nil {
		delete(session.clients, c)
		d.leave(c.party, c.peer)
		d.clientLeft(session)
	}
	d.mu.Unlock()
	d.perform(all)
	if session == nil {
		return
	}
	if session.role == api.RoleOperator { // a host that is alive still maps what it holds, until its session ends
		d.files.Drop(c.party.ID)
		d.spoiled.forget(c.party.ID)
	}
	event := d.log.Debug()
	if errors.Is(err, errSlowClient) {
		event = d.log.Warn()
		d.event(api.Event{Kind: "client.dropped", Session: session.id, Cause: err.Error(), Terms: map[string]any{"pid": c.who.pid, "queued_bytes": outboxBytes}})
	}
	event.Err(err).Int("pid", c.who.pid).Str("session", session.id).Msg("client gone")
}

// HandleRequest takes a client's request. Calls and what answers at once are served right here.
func (c *client) HandleRequest(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	if c.session == nil {
		c.handleFirst(request, reply)
		return
	}
	if isComfyUI(request.Method) && request.Method != methodComfyUILogs {
		c.daemon.acceptQuestion(c, request, body, reply)
		return
	}
	switch request.Method {
	case api.MethodCall:
		c.daemon.acceptCall(c, request, body, reply)
	case methodComfyUILogs:
		c.daemon.mu.Lock()
		c.wantsLogs = true
		c.daemon.mu.Unlock()
		_ = reply(&wire.Message{}, nil)
	case api.MethodNodes, methodHandleSettle: // the worker's own words, of any size
		c.daemon.acceptQuestion(c, request, body, reply)
	case api.MethodPing:
		_ = reply(&wire.Message{}, nil) // that nobody is left to read it is noticed by the reader
	case api.MethodMemoryReserve:
		c.daemon.reserve(c.party, request, reply)
	case api.MethodHello:
		refuse(reply, wire.NewError(wire.KindBadRequest, "this connection has said hello already"))
	default:
		c.serve(request, reply)
	}
}

// handleFirst takes the first message, which must be hello; what is refused ends the connection.
func (c *client) handleFirst(request *wire.Message, reply wire.ReplyFunc) {
	var result api.HelloResult
	var err error
	if request.Method != api.MethodHello {
		err = wire.Errorf(wire.KindBadRequest, "the first message must be hello, not %q", request.Method)
	} else if err = json.Unmarshal(request.Params, &c.hello); err != nil {
		err = wire.Errorf(wire.KindBadRequest, "decoding hello: %v", err)
	} else {
		result, err = c.daemon.hello(c, c.hello)
	}
	if err != nil {
		c.daemon.log.Warn().Err(err).Int("pid", c.who.pid).Str("client", c.hello.Name).Msg("refused a client")
		refuse(reply, wire.AsError(err))
		c.box.finish()
		return
	}
	_ = c.box.conn.SetReadDeadline(time.Time{}) // as above
	_ = reply(&wire.Message{Result: wire.Params(result)}, nil)
}

// serve answers a request in a goroutine of the client.
func (c *client) serve(request *wire.Message, reply wire.ReplyFunc) {
	method := methods[request.Method]
	if method == nil {
		refuse(reply, wire.Errorf(wire.KindUnknownMethod, "the supervisor knows no method %q", request.Method))
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.daemon.mu.Lock()
	_, doubled := c.requests[request.ID]
	full := len(c.requests) >= maxClientRequests
	if !doubled && !full {
		c.requests[request.ID] = cancel
	}
	c.daemon.mu.Unlock()
	if doubled || full {
		cancel()
		refuse(reply, wire.Errorf(wire.KindBadRequest, "%s: too many requests at once (%d), or an ID used twice", request.Method, maxClientRequests))
		return
	}
	c.work.Go(func() {
		result, err := method(c.daemon, ctx, c, request)
		c.daemon.mu.Lock()
		delete(c.requests, request.ID)
		c.daemon.mu.Unlock()
		cancel()
		if err != nil {
			refuse(reply, wire.AsError(err))
			return
		}
		answerLarge(request.Method, reply, wire.Params(result))
	})
}

// answerLarge answers with a result that may be too large for a header: then it is the body, and the result in the
// header says so.
func answerLarge(method string, reply wire.ReplyFunc, result json.RawMessage) {
	answer := &wire.Message{Result: result}
	var body []byte
	if len(result) > wire.MaxHeaderBytes/2 {
		answer.Result, body = wire.Params(api.InBody{InBody: true}), result
	}
	if err := reply(answer, body); err != nil && !isGone(err) {
		refuse(reply, wire.Errorf(wire.KindBadRequest, "%s: the answer of %d bytes does not fit into a message: %v; ask for less at once",
			method, len(result), err))
	}
}

// HandleNotification takes what needs no answer. Before hello, and when it makes no sense, it is ignored.
func (c *client) HandleNotification(notification *wire.Message, _ []byte) {
	if c.session == nil {
		return
	}
	switch notification.Method {
	case api.MethodCancel:
		c.daemon.cancelCall(c, notification.Call)
	case api.MethodGoodbye:
		if c.session.role == api.RoleHost {
			c.daemon.goSafely(func() { c.daemon.closeSession(c.session, "its host ended it") })
		}
	case api.MethodMemoryReturn:
		c.daemon.returned(c.party, notification)
	case api.MethodMemoryReleased:
		c.daemon.released(c.party, notification)
	case methodInstanceDrop, methodHandleDrop:
		c.daemon.passOn(c.session, notification)
	case budget.MethodCensus, budget.MethodPrompt, budget.MethodNeed:
		c.daemon.hearHostMemory(c.session, notification)
	default:
		if isComfyUI(notification.Method) {
			c.daemon.hearComfyUI(c, notification)
		}
	}
}

// HandleStray gives back the files of a reply that comes too late.
func (c *client) HandleStray(reply *wire.Message) {
	if c.session != nil {
		c.daemon.stray(c.party, reply)
	}
}

// refuse answers with an error.
func refuse(reply wire.ReplyFunc, err *wire.Error) {
	_ = reply(&wire.Message{Error: err}, nil) // a client that is gone needs no answer
}
