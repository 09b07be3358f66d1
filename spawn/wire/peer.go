package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Conn carries frames. Send may be called from several goroutines, Receive from one.
type Conn interface {
	Send(Frame) error
	Receive() (Frame, error)
	Close() error
}

// Handler gets what the other side sends of its own accord, in order, on the goroutine that reads. It must not block:
// long work belongs into a goroutine that the handler owns. Reply may be called later, from anywhere, once.
type Handler interface {
	HandleRequest(request *Message, body []byte, reply ReplyFunc)
	HandleNotification(notification *Message, body []byte)
}

// StrayHandler is a Handler that wants to see replies nobody waits for: late ones, and those that an earlier owner of
// the connection has asked for. They may carry memory files.
type StrayHandler interface {
	HandleStray(reply *Message)
}

// ReplyFunc answers one request. The message needs Result or Error; its ID is filled in. An error means that the
// other side is gone.
type ReplyFunc func(reply *Message, body []byte) error

// ErrPeerGone is what pending requests end with when the connection ends.
var ErrPeerGone = errors.New("the other side is gone")

// ErrNoMessage is what Run ends with when the other side sends a frame that is no message.
var ErrNoMessage = errors.New("a frame that is no message")

// Peer is one end of a connection on which both sides send requests. Make it with NewPeer, then call Run once.
type Peer struct {
	conn    Conn
	handler Handler
	nextID  atomic.Uint64

	mu      sync.Mutex
	pending map[uint64]func(*Message, []byte, error)
	ended   error // set when Run has returned
}

// NewPeer makes a peer; nothing is read before Run.
func NewPeer(conn Conn, handler Handler) *Peer {
	return &Peer{conn: conn, handler: handler, pending: make(map[uint64]func(*Message, []byte, error))}
}

// Run reads until the connection ends, then ends every pending request with ErrPeerGone and closes the connection.
// A clean end (io.EOF) returns nil.
func (p *Peer) Run() error {
	err := p.read()
	_ = p.conn.Close() // the reading error says more than a closing one
	cause := ErrPeerGone
	if err != nil {
		cause = fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	p.mu.Lock()
	p.ended = cause
	pending := p.pending
	p.pending = nil
	p.mu.Unlock()
	for _, done := range pending {
		done(nil, nil, cause)
	}
	return err
}

func (p *Peer) read() error {
	for {
		frame, err := p.conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		message, err := DecodeMessage(frame.Header)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoMessage, err)
		}
		switch {
		case message.Method == "":
			p.settle(message, frame.Body)
		case message.ID == 0:
			p.handler.HandleNotification(message, frame.Body)
		default:
			p.handler.HandleRequest(message, frame.Body, p.replyTo(message.ID))
		}
	}
}

func (p *Peer) settle(message *Message, body []byte) {
	p.mu.Lock()
	done := p.pending[message.ID]
	delete(p.pending, message.ID)
	p.mu.Unlock()
	if done == nil { // late, doubled or made up
		if handler, wants := p.handler.(StrayHandler); wants {
			handler.HandleStray(message)
		}
		return
	}
	if message.Error != nil {
		done(message, body, message.Error)
		return
	}
	done(message, body, nil)
}

func (p *Peer) replyTo(id uint64) ReplyFunc {
	return func(reply *Message, body []byte) error {
		reply.ID = id
		reply.Method = ""
		if reply.Error == nil && reply.Result == nil {
			reply.Result = json.RawMessage("{}")
		}
		return p.send(reply, body)
	}
}

func (p *Peer) send(message *Message, body []byte) error {
	frame, err := EncodeMessage(message, body)
	if err != nil {
		return err
	}
	if err := p.conn.Send(frame); err != nil {
		return fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	return nil
}

// Start sends a request and returns its ID on this link at once. done is called exactly once, unless Start returns an
// error: with the reply, with the other side's *Error and its message, or with ErrPeerGone. It runs on the reading
// goroutine and must not block. It may run before Start returns.
func (p *Peer) Start(request *Message, body []byte, done func(reply *Message, body []byte, err error)) (uint64, error) {
	return p.StartPrepared(request, body, nil, done)
}

// StartPrepared is Start with a function that learns the request's ID before anything is sent, so that what the other
// side sends about the request can not arrive earlier. prepare may be nil.
func (p *Peer) StartPrepared(request *Message, body []byte, prepare func(id uint64), done func(reply *Message, body []byte, err error)) (uint64, error) {
	id := p.nextID.Add(1)
	request.ID = id
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return 0, p.ended
	}
	p.pending[id] = done
	p.mu.Unlock()
	if prepare != nil {
		prepare(id)
	}
	if err := p.send(request, body); err != nil {
		p.mu.Lock()
		_, waiting := p.pending[id]
		delete(p.pending, id)
		p.mu.Unlock()
		if !waiting { // Run ended it meanwhile: done has been called
			return id, nil
		}
		return 0, err
	}
	return id, nil
}

// SkipTo makes the IDs of requests from now on larger than one: on a connection that had another owner before, whose
// requests may still be answered. To be called before the first request.
func (p *Peer) SkipTo(id uint64) { p.nextID.Store(id) }

// Forget drops a pending request: its done is not called any more. It reports whether there was one.
func (p *Peer) Forget(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waiting := p.pending[id]
	delete(p.pending, id)
	return waiting
}

// Request sends a request and waits for its reply. An error reply is returned as *Error. When the context ends, the
// request is forgotten; telling the other side is the caller's business.
func (p *Peer) Request(ctx context.Context, request *Message, body []byte) (*Message, []byte, error) {
	type answer struct {
		message *Message
		body    []byte
		err     error
	}
	answers := make(chan answer, 1)
	id, err := p.Start(request, body, func(message *Message, body []byte, err error) {
		answers <- answer{message, body, err}
	})
	if err != nil {
		return nil, nil, err
	}
	select {
	case got := <-answers:
		return got.message, got.body, got.err
	case <-ctx.Done():
		p.Forget(id)
		return nil, nil, ctx.Err()
	}
}

// Notify sends a notification.
func (p *Peer) Notify(notification *Message, body []byte) error {
	notification.ID = 0
	return p.send(notification, body)
}

// Close ends the connection; Run returns soon after.
func (p *Peer) Close() error { return p.conn.Close() }

// Params encodes parameters; it panics only for types that can not be JSON, which is a programming error.
func Params(parameters any) json.RawMessage {
	encoded, err := json.Marshal(parameters)
	if err != nil {
		panic(fmt.Sprintf("wire: parameters of type %T: %v", parameters, err))
	}
	return encoded
}
