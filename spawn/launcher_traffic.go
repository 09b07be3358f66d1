package spawn

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Flow of downward bytes. A supervisor sends without waiting while less than creditBytes of its bytes are on their way
// to Python; below that gRPC accepts a message without blocking (its write quota is 64 KiB). The launcher reports what
// Python has taken with every upward message, and in one of its own after ackBytes.
const (
	creditBytes = 48 << 10
	ackBytes    = 16 << 10
)

// takeoverLimit is how long a new stream waits for its predecessor to give way.
const takeoverLimit = 5 * time.Second

// trafficTurn is what the stream that carries frames at present can be interrupted by.
type trafficTurn struct {
	mu     sync.Mutex
	cancel context.CancelCauseFunc
}

// Traffic implements the contract. Where the connection to Python can be lent to the supervisor, that is what it does;
// elsewhere it passes frames on as they are, looking at their lengths only, so that a stream ends and another one begins
// between two frames.
func (l *launcher) Traffic(stream launcherpb.Launcher_TrafficServer) error {
	if !l.orphan.attach() {
		return status.Error(codes.FailedPrecondition, "the launcher has waited too long for a supervisor and is ending")
	}
	defer l.orphan.detach()
	turn, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	if err := l.takeTurn(turn, cancel); err != nil {
		return err
	}
	if l.lends {
		return l.lendTraffic(turn, stream)
	}
	defer func() { <-l.traffic }()
	if err := stream.SendHeader(metadata.MD{}); err != nil { // the supervisor waits for it: the line is its
		return err
	}
	select {
	case <-l.started:
	case <-l.ended: // Python could not be started
		return l.sendEnd(&upwardSender{stream: stream})
	case <-turn.Done():
		return turnOver(turn)
	}
	sender := &upwardSender{stream: stream}
	l.group.Go(func() { l.carryDown(stream, sender) })
	l.group.Go(func() { l.carryPhases(turn, sender) })
	if err := l.carryUp(turn, sender); err != nil {
		return err
	}
	<-l.ended
	return l.sendEnd(sender)
}

// sendEnd ends a stream with what is known of the worker's end.
func (l *launcher) sendEnd(sender *upwardSender) error {
	for _, phase := range l.phases.take() {
		if err := sender.send(&launcherpb.Upward{Phase: phase}); err != nil {
			return err
		}
	}
	l.mu.Lock()
	exit := l.exit
	l.mu.Unlock()
	return sender.send(&launcherpb.Upward{Exit: exit})
}

// takeTurn waits until this stream is the one, and makes its predecessor give way: a supervisor that reconnects may be
// faster than the news that its old connection is dead.
func (l *launcher) takeTurn(turn context.Context, cancel context.CancelCauseFunc) error {
	l.turn.mu.Lock()
	if l.turn.cancel != nil {
		l.turn.cancel(errTakenOver)
	}
	l.turn.cancel = cancel
	l.turn.mu.Unlock()
	limit := time.NewTimer(takeoverLimit)
	defer limit.Stop()
	select {
	case l.traffic <- struct{}{}:
		return nil
	case <-turn.Done():
		return turnOver(turn)
	case <-limit.C:
		return status.Error(codes.Unavailable, "another supervisor talks to this worker")
	}
}

// errTakenOver is what a stream ends with when another one takes its place; its supervisor must leave the worker alone.
var errTakenOver = errors.New("another supervisor has adopted the worker")

// turnOver is the status of a stream whose turn is over.
func turnOver(turn context.Context) error {
	if cause := context.Cause(turn); errors.Is(cause, errTakenOver) {
		return status.Error(codes.Aborted, cause.Error())
	}
	return status.FromContextError(turn.Err()).Err()
}

// upwardSender sends upward messages, each with the count of downward bytes taken.
type upwardSender struct {
	stream   launcherpb.Launcher_TrafficServer
	consumed atomic.Uint64

	mu    sync.Mutex
	acked uint64
}

func (s *upwardSender) send(message *launcherpb.Upward) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = s.consumed.Load()
	message.Consumed = s.acked
	return s.stream.Send(message)
}

func (s *upwardSender) taken(bytes int) error {
	consumed := s.consumed.Add(uint64(bytes))
	s.mu.Lock()
	due := consumed-s.acked >= ackBytes
	s.mu.Unlock()
	if !due {
		return nil
	}
	return s.send(&launcherpb.Upward{})
}

// carryDown writes frames to Python until the stream ends.
func (l *launcher) carryDown(stream launcherpb.Launcher_TrafficServer, sender *upwardSender) {
	for {
		message, err := stream.Recv()
		if err != nil {
			return
		}
		// An error means that Python is gone or has closed its end; that is noticed elsewhere.
		_ = l.down.write(l.child.frames, message.GetFrames())
		if sender.taken(len(message.GetFrames())) != nil {
			return
		}
	}
}

func (l *launcher) carryPhases(turn context.Context, sender *upwardSender) {
	for {
		for _, phase := range l.phases.take() {
			if sender.send(&launcherpb.Upward{Phase: phase}) != nil {
				return
			}
		}
		select {
		case <-l.phases.wake:
		case <-l.ended:
			return
		case <-turn.Done():
			return
		}
	}
}

// carryUp passes Python's frames on until Python has no more of them (nil) or the turn is over (an error).
func (l *launcher) carryUp(turn context.Context, sender *upwardSender) error {
	release := interruptReads(turn, l.ended, l.child.frames)
	defer release()
	message := new(launcherpb.Upward)
	for {
		frames, err := l.up.next(l.child.frames)
		if err == nil {
			message.Frames = frames
			if err := sender.send(message); err != nil {
				l.up.keep(frames)
				return err
			}
			continue
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			select {
			case <-l.ended:
				return nil
			default:
				return turnOver(turn)
			}
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF):
			l.hangUp(nil)
		default:
			l.hangUp(err)
		}
		return nil
	}
}

// hangUp says that Python has closed its connection, or why what it sends can not be read.
func (l *launcher) hangUp(why error) {
	l.hangOnce.Do(func() {
		l.hangWhy = why
		close(l.hungUp)
	})
}

// interruptReads makes a read in progress return when the turn is over, and some time after the worker is. The function
// it returns ends that, and makes reads possible again.
func interruptReads(turn context.Context, ended <-chan struct{}, frames frameConn) (release func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-turn.Done():
			_ = frames.SetReadDeadline(time.Unix(1, 0))
		case <-ended:
			// Everything was sent by now; only a process beyond reach can still hold the other end.
			_ = frames.SetReadDeadline(time.Now().Add(drainLimit / 4))
		case <-quit:
		}
	}()
	return func() {
		close(quit)
		<-done
		_ = frames.SetReadDeadline(time.Time{})
	}
}

// upwardFrames cuts what Python sends between frames. One goroutine at a time uses it.
type upwardFrames struct {
	buffer []byte
	filled int // bytes in the buffer
	passed int // of these, bytes that next has returned
}

// upwardBufferBytes is what is read at once; larger frames get a larger buffer for their time.
const upwardBufferBytes = 64 << 10

// next returns whole frames, at least one. They are valid until the next call.
func (u *upwardFrames) next(from io.Reader) ([]byte, error) {
	u.filled = copy(u.buffer, u.buffer[u.passed:u.filled])
	u.passed = 0
	for {
		whole, missing, err := wholeFrames(u.buffer[:u.filled])
		if err != nil {
			return nil, err
		}
		if whole > 0 {
			u.passed = whole
			return u.buffer[:whole], nil
		}
		if size := max(upwardBufferBytes, u.filled+missing); len(u.buffer) < size || u.filled == 0 && len(u.buffer) > size {
			buffer := make([]byte, size)
			copy(buffer, u.buffer[:u.filled])
			u.buffer = buffer
		}
		count, err := from.Read(u.buffer[u.filled:])
		u.filled += count
		if count == 0 && err != nil {
			if errors.Is(err, io.EOF) && u.filled > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// keep takes frames back that could not be sent: the next stream sends them.
func (u *upwardFrames) keep([]byte) { u.passed = 0 }

// wholeFrames counts the bytes of the whole frames that data begins with. If there is none, it says how many bytes the
// first one lacks at least, or why it never will be one.
func wholeFrames(data []byte) (whole, missing int, err error) {
	for {
		size, missing, err := firstFrame(data[whole:])
		switch {
		case whole > 0 && (missing > 0 || err != nil):
			return whole, 0, nil
		case missing > 0 || err != nil:
			return 0, missing, err
		}
		whole += size
	}
}

// firstFrame measures the frame that data begins with.
func firstFrame(data []byte) (size, missing int, err error) {
	if len(data) < wire.PrefixBytes {
		return 0, wire.PrefixBytes - len(data), nil
	}
	if size, err = wire.FrameSize(data); err != nil {
		return 0, 0, err
	}
	return size, max(0, size-len(data)), nil
}

// downwardFrames writes frames to Python, whole ones: a writer finishes before the next one begins, whatever became of
// its stream.
type downwardFrames struct{ mu sync.Mutex }

func (d *downwardFrames) write(to io.Writer, frames []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := to.Write(frames)
	return err
}

// shutdownRequest asks Python to end. Its ID is beyond every supervisor's count; nobody waits for the reply.
const shutdownRequest = `{"jsonrpc":"2.0","id":9007199254740991,"method":"shutdown","params":{}}`

// shutdownPatience is how long asking Python to end may take.
const shutdownPatience = 100 * time.Millisecond

// shutdown asks Python to end, unless Python does not read.
func (d *downwardFrames) shutdown(to frameConn) {
	if !d.mu.TryLock() {
		return // a writer waits for Python: there is no way to reach it
	}
	defer d.mu.Unlock()
	frame, err := wire.AppendFrame(nil, wire.Frame{Header: []byte(shutdownRequest)})
	if err != nil {
		return
	}
	_ = to.SetWriteDeadline(time.Now().Add(shutdownPatience))
	_, _ = to.Write(frame) // Python may be gone already
	_ = to.SetWriteDeadline(time.Time{})
}
