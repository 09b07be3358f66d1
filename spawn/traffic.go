package spawn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// backlogBytes bounds what waits for a Python that does not read.
const backlogBytes = 32 << 20

// ErrNotReading is what sending to a Python that has not read for long ends with.
var ErrNotReading = errors.New("the worker does not read what it is sent")

// trafficConn is the supervisor's end of a Traffic stream: a wire.Conn whose Send never blocks. While Python reads,
// frames go out on the caller's goroutine; otherwise they wait here and go out when the launcher reports progress.
type trafficConn struct {
	stream launcherpb.Launcher_TrafficClient
	cancel context.CancelFunc
	phase  func(*launcherpb.Phase)
	rest   []byte // of the last message: frames that Receive has not returned yet

	mu           sync.Mutex
	sent         uint64 // bytes given to gRPC
	consumed     uint64 // of these, what Python's socket has taken
	backlog      [][]byte
	backlogBytes int
	scratch      []byte
	failed       error
	exit         *launcherpb.Exit // set before Receive returns io.EOF, when the launcher has told it
}

// traffic carries frames to and from Python.
type traffic interface {
	wire.Conn
	// ending is what the launcher said about Python's end, nil when it said nothing.
	ending() *launcherpb.Exit
}

// openTraffic opens the stream and waits until the launcher has given it the line: its own connection to Python
// (lentConn), or the stream itself (trafficConn).
func (w *worker) openTraffic(ctx context.Context) (traffic, error) {
	life, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel) // the stream outlives ctx, its opening does not
	stream, err := w.api.Traffic(life)
	var header metadata.MD
	if err == nil {
		header, err = stream.Header()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("opening the stream to the launcher: %w", err)
	}
	if len(header.Get(lendingHeader)) > 0 {
		return newLentConn(w, stream, cancel)
	}
	return &trafficConn{stream: stream, cancel: cancel, phase: w.reportPhase}, nil
}

// Send implements wire.Conn.
func (c *trafficConn) Send(frame wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	if len(c.backlog) == 0 && c.sent-c.consumed < creditBytes {
		buffer, err := wire.AppendFrame(c.scratch[:0], frame)
		if err != nil {
			return err
		}
		if cap(buffer) <= 64<<10 {
			c.scratch = buffer
		}
		return c.pass(buffer)
	}
	buffer, err := wire.AppendFrame(nil, frame)
	if err != nil {
		return err
	}
	if c.backlogBytes+len(buffer) > backlogBytes {
		return fmt.Errorf("%d bytes are waiting: %w", c.backlogBytes, ErrNotReading)
	}
	c.backlog = append(c.backlog, buffer)
	c.backlogBytes += len(buffer)
	return nil
}

// pass gives frames to gRPC, which encodes them before it returns.
func (c *trafficConn) pass(frames []byte) error {
	if err := c.stream.Send(&launcherpb.Downward{Frames: frames}); err != nil {
		c.failed = err
		return err
	}
	c.sent += uint64(len(frames))
	return nil
}

// progress notes what Python has taken and sends what waits.
func (c *trafficConn) progress(consumed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumed = min(max(c.consumed, consumed), c.sent)
	for len(c.backlog) > 0 && c.sent-c.consumed < creditBytes && c.failed == nil {
		frames := c.backlog[0]
		c.backlog[0] = nil
		c.backlog = c.backlog[1:]
		c.backlogBytes -= len(frames)
		_ = c.pass(frames) // the receiving side reports it
	}
}

// Receive implements wire.Conn. It returns io.EOF when Python has ended.
func (c *trafficConn) Receive() (wire.Frame, error) {
	for {
		if len(c.rest) > 0 {
			return c.cut()
		}
		message, err := c.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // without an exit message
			}
			return wire.Frame{}, err
		}
		c.progress(message.GetConsumed())
		if phase := message.GetPhase(); phase != nil {
			c.phase(phase)
		}
		if exit := message.GetExit(); exit != nil {
			c.mu.Lock()
			c.exit = exit
			c.mu.Unlock()
			return wire.Frame{}, io.EOF
		}
		c.rest = message.GetFrames()
	}
}

// cut takes the next frame off the last message.
func (c *trafficConn) cut() (wire.Frame, error) {
	end, missing, err := firstFrame(c.rest)
	if err == nil && missing > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return wire.Frame{}, err
	}
	middle := wire.PrefixBytes + int(binary.BigEndian.Uint32(c.rest))
	frame := wire.Frame{Header: c.rest[wire.PrefixBytes:middle:middle], Body: c.rest[middle:end:end]}
	c.rest = c.rest[end:]
	return frame, nil
}

// Close implements wire.Conn: it ends the stream. The launcher then waits for another one.
func (c *trafficConn) Close() error {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = errors.New("the connection to the worker is closed")
	}
	c.backlog, c.backlogBytes = nil, 0
	return nil
}

// ending implements traffic.
func (c *trafficConn) ending() *launcherpb.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}
