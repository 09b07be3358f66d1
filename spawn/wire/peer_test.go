package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers requests by method and counts notifications.
type service struct {
	mu            sync.Mutex
	notifications []string
	notified      chan struct{}
	replies       chan ReplyFunc // of requests with the method "later"
}

func newService() *service {
	return &service{notified: make(chan struct{}, 100), replies: make(chan ReplyFunc, 100)}
}

func (s *service) HandleRequest(request *Message, body []byte, reply ReplyFunc) {
	switch request.Method {
	case "echo":
		_ = reply(&Message{Result: request.Params}, body)
	case "empty":
		_ = reply(&Message{}, nil)
	case "fail":
		_ = reply(&Message{Error: Errorf(KindValue, "no")}, []byte("arguments"))
	case "later":
		s.replies <- reply
	}
}

func (s *service) HandleNotification(notification *Message, _ []byte) {
	s.mu.Lock()
	s.notifications = append(s.notifications, notification.Method)
	s.mu.Unlock()
	s.notified <- struct{}{}
}

// pair connects two peers and runs them.
func pair(t testing.TB, left, right Handler) (*Peer, *Peer) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	peers := []*Peer{NewPeer(NewStream(client), left), NewPeer(NewStream(server), right)}
	var group sync.WaitGroup
	for _, peer := range peers {
		group.Go(func() { _ = peer.Run() })
	}
	t.Cleanup(func() {
		for _, peer := range peers {
			_ = peer.Close()
		}
		group.Wait()
	})
	return peers[0], peers[1]
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestBothSidesAskAndAnswer(t *testing.T) {
	left, right := pair(t, newService(), newService())
	for _, peer := range []*Peer{left, right} {
		reply, body, err := peer.Request(background(t), &Message{Method: "echo", Params: Params(7)}, []byte("body"))
		if err != nil || string(reply.Result) != "7" || string(body) != "body" {
			t.Errorf("%+v, %q, %v", reply, body, err)
		}
		reply, _, err = peer.Request(background(t), &Message{Method: "empty"}, nil)
		if err != nil || string(reply.Result) != "{}" {
			t.Errorf("%+v, %v", reply, err)
		}
	}
}

func TestAnErrorReplyIsAnErrorWithItsBody(t *testing.T) {
	left, _ := pair(t, newService(), newService())
	_, body, err := left.Request(background(t), &Message{Method: "fail"}, nil)
	var wireError *Error
	if !errors.As(err, &wireError) || wireError.Data.Kind != KindValue || string(body) != "arguments" {
		t.Errorf("%q, %v", body, err)
	}
}

func TestRepliesMayComeInAnyOrder(t *testing.T) {
	served := newService()
	left, _ := pair(t, newService(), served)
	var order []uint64
	done := make(chan uint64, 3)
	for range 3 {
		var id uint64
		if _, err := left.StartPrepared(&Message{Method: "later"}, nil, func(prepared uint64) { id = prepared },
			func(reply *Message, _ []byte, err error) {
				if err != nil || reply.ID != id {
					t.Errorf("reply %+v for %d: %v", reply, id, err)
				}
				done <- id
			}); err != nil {
			t.Fatal(err)
		}
	}
	replies := []ReplyFunc{<-served.replies, <-served.replies, <-served.replies}
	for index := range replies {
		if err := replies[len(replies)-1-index](&Message{}, nil); err != nil {
			t.Fatal(err)
		}
		order = append(order, <-done)
	}
	if fmt.Sprint(order) != "[3 2 1]" {
		t.Errorf("order %v", order)
	}
}

func TestNotificationsKeepTheirOrder(t *testing.T) {
	served := newService()
	left, _ := pair(t, newService(), served)
	for number := range 50 {
		if err := left.Notify(&Message{Method: fmt.Sprint(number), ID: 9}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		<-served.notified
	}
	for number, method := range served.notifications {
		if method != fmt.Sprint(number) {
			t.Fatalf("notification %d is %s", number, method)
		}
	}
}

func TestTheEndOfTheOtherSideEndsEveryRequestOnce(t *testing.T) {
	left, right := pair(t, newService(), newService())
	const requests = 20
	var ended atomic.Int32
	done := make(chan error, requests)
	for range requests {
		if _, err := left.Start(&Message{Method: "later"}, nil, func(_ *Message, _ []byte, err error) {
			ended.Add(1)
			done <- err
		}); err != nil {
			t.Fatal(err)
		}
	}
	_ = right.Close()
	for range requests {
		if err := <-done; !errors.Is(err, ErrPeerGone) {
			t.Errorf("error %v", err)
		}
	}
	if _, _, err := left.Request(background(t), &Message{Method: "echo"}, nil); !errors.Is(err, ErrPeerGone) {
		t.Errorf("a request after the end: %v", err)
	}
	if ended.Load() != requests {
		t.Errorf("%d ends for %d requests", ended.Load(), requests)
	}
}

func TestARequestIsForgottenWithItsContext(t *testing.T) {
	served := newService()
	left, _ := pair(t, newService(), served)
	ctx, cancel := context.WithCancel(background(t))
	var reply ReplyFunc
	go func() {
		reply = <-served.replies
		cancel()
	}()
	if _, _, err := left.Request(ctx, &Message{Method: "later"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := reply(&Message{}, nil); err != nil { // late: nobody waits any more
		t.Error(err)
	}
	if _, _, err := left.Request(background(t), &Message{Method: "echo", Params: Params(1)}, nil); err != nil {
		t.Error(err)
	}
	if left.Forget(12345) {
		t.Error("there was nothing to forget")
	}
}

// script is a Conn that plays frames and then ends.
type script struct {
	frames []Frame
	end    error
	sent   []Frame
}

func (s *script) Send(frame Frame) error { s.sent = append(s.sent, frame); return nil }
func (s *script) Close() error           { return nil }
func (s *script) Receive() (Frame, error) {
	if len(s.frames) == 0 {
		return Frame{}, s.end
	}
	frame := s.frames[0]
	s.frames = s.frames[1:]
	return frame, nil
}

func TestStrayRepliesAreDroppedAndNonsenseEndsTheConnection(t *testing.T) {
	header := func(text string) Frame { return Frame{Header: []byte(text)} }
	served := newService()
	stray := &script{end: io.EOF, frames: []Frame{
		header(`{"jsonrpc":"2.0","id":77,"result":{}}`),
		header(`{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x","data":{"kind":"value"}}}`),
		header(`{"jsonrpc":"2.0","method":"after"}`),
	}}
	if err := NewPeer(stray, served).Run(); err != nil {
		t.Errorf("error %v", err)
	}
	if len(served.notifications) != 1 {
		t.Errorf("notifications %v", served.notifications)
	}
	for _, nonsense := range []string{`{`, `{"jsonrpc":"2.0"}`, `[]`} {
		if err := NewPeer(&script{end: io.EOF, frames: []Frame{header(nonsense)}}, newService()).Run(); err == nil {
			t.Errorf("%s went through", nonsense)
		}
	}
	broken := errors.New("broken")
	if err := NewPeer(&script{end: broken}, newService()).Run(); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// straysToo is a service that looks at replies nobody waits for.
type straysToo struct {
	*service
	strays []uint64
}

func (s *straysToo) HandleStray(reply *Message) { s.strays = append(s.strays, reply.ID) }

func TestAReplyThatNobodyWaitsForIsHandedToWhoeverWantsIt(t *testing.T) {
	header := func(text string) Frame { return Frame{Header: []byte(text)} }
	handler := &straysToo{service: newService()}
	stray := &script{end: io.EOF, frames: []Frame{
		header(`{"jsonrpc":"2.0","id":77,"result":{}}`),
		header(`{"jsonrpc":"2.0","id":78,"error":{"code":1,"message":"x","data":{"kind":"value"}}}`),
	}}
	if err := NewPeer(stray, handler).Run(); err != nil || len(handler.strays) != 2 || handler.strays[1] != 78 {
		t.Errorf("got %v, %v", handler.strays, err)
	}
}

func TestAPeerOnAConnectionThatHadAnotherOwnerUsesOtherIDs(t *testing.T) {
	peer := NewPeer(&script{end: io.EOF}, newService())
	peer.SkipTo(1 << 40)
	id, err := peer.Start(&Message{Method: "x"}, nil, func(*Message, []byte, error) {})
	if err != nil || id != 1<<40+1 {
		t.Errorf("got %d, %v", id, err)
	}
	if err := peer.Run(); err != nil {
		t.Error(err)
	}
}

func TestADoubledReplyIsDeliveredOnce(t *testing.T) {
	connection := &script{end: io.EOF, frames: []Frame{
		{Header: []byte(`{"jsonrpc":"2.0","id":1,"result":1}`)}, {Header: []byte(`{"jsonrpc":"2.0","id":1,"result":2}`)},
	}}
	peer := NewPeer(connection, newService())
	var results []string
	if _, err := peer.Start(&Message{Method: "x"}, nil, func(reply *Message, _ []byte, _ error) {
		results = append(results, string(reply.Result))
	}); err != nil {
		t.Fatal(err)
	}
	if err := peer.Run(); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(results) != "[1]" {
		t.Errorf("results %v", results)
	}
}

func TestAMessageThatDoesNotFitLeavesNothingPending(t *testing.T) {
	left, _ := pair(t, newService(), newService())
	if _, err := left.Start(&Message{Method: "echo"}, make([]byte, MaxFrameBytes), func(*Message, []byte, error) {
		t.Error("done was called")
	}); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, _, err := left.Request(background(t), &Message{Method: "echo", Params: Params(1)}, nil); err != nil {
		t.Errorf("the connection is unusable: %v", err)
	}
}

func TestManyGoroutinesShareAPeer(t *testing.T) {
	left, right := pair(t, newService(), newService())
	var group sync.WaitGroup
	for number := range 8 {
		for _, peer := range []*Peer{left, right} {
			group.Go(func() {
				for count := range 50 {
					want := fmt.Sprint(number*1000 + count)
					reply, _, err := peer.Request(background(t), &Message{Method: "echo", Params: []byte(want)}, make([]byte, count*100))
					if err != nil || string(reply.Result) != want {
						t.Errorf("%+v, %v", reply, err)
						return
					}
				}
			})
		}
	}
	group.Wait()
}

func BenchmarkPeerRoundTrip(b *testing.B) {
	left, _ := pair(b, newService(), newService())
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := left.Request(context.Background(), &Message{Method: "echo", Params: Params(1)}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
