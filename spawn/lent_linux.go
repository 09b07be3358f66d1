package spawn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// lentConn is a wire.Conn over the launcher's own connection to Python. Send never blocks: what Python does not take at
// once waits here, and a goroutine writes it.
type lentConn struct {
	worker *worker
	stream launcherpb.Launcher_TrafficClient
	cancel context.CancelFunc
	told   chan struct{} // closed when the stream has ended: exit or broken is set

	reading sync.Mutex // held while the line is read, so that Close knows when nothing more is taken from it
	line    *os.File   // nil until take
	lease   net.Conn   // open as long as the line may be used
	packets wire.Assembler
	buffer  []byte

	tryWrite func([]byte) error
	writing  sync.WaitGroup

	mu           sync.Mutex
	scratch      []byte
	backlog      [][]byte // frames in stream form
	backlogBytes int
	writes       bool // a goroutine writes the backlog
	closed       bool
	failed       error
	exit         *launcherpb.Exit
	broken       error // why the stream ended without an exit
}

var errConnClosed = errors.New("the connection to the worker is closed")

func newLentConn(w *worker, stream launcherpb.Launcher_TrafficClient, cancel context.CancelFunc) (traffic, error) {
	c := &lentConn{worker: w, stream: stream, cancel: cancel, told: make(chan struct{})}
	go c.listen()
	return c, nil
}

// take gets the line from the launcher, whose Python has been started. Nothing is sent or received before. There is none
// to get when Python has ended already, which is no error of the launcher's: Receive then tells of that end.
func (c *lentConn) take(ctx context.Context, folder, key string) error {
	line, lease, err := fetchLine(ctx, folder, key)
	switch {
	case err == nil:
		err = c.setLine(line, lease)
	case c.toldOfEnd(ctx):
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking over the launcher's connection to Python: %w", err)
	}
	return nil
}

// toldOfEnd waits, not for long, for the launcher's word on why it gives no line, and reports whether Python has ended.
func (c *lentConn) toldOfEnd(ctx context.Context) bool {
	limit := time.NewTimer(lineLimit)
	defer limit.Stop()
	select {
	case <-c.told:
	case <-limit.C:
	case <-ctx.Done():
	}
	return c.ending() != nil
}

func (c *lentConn) setLine(line *os.File, lease net.Conn) error {
	raw, err := line.SyscallConn()
	if err != nil {
		return err
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line, c.lease = line, lease
	c.buffer = make([]byte, wire.PacketBytes+1) // one more than a packet may have, to notice one that is too large
	c.tryWrite = func(packet []byte) error {
		var err error
		if controlErr := raw.Control(func(descriptor uintptr) {
			for {
				err = unix.Send(int(descriptor), packet, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				if !errors.Is(err, unix.EINTR) {
					return
				}
			}
		}); controlErr != nil {
			return controlErr
		}
		return err
	}
	return nil
}

// listen hears what the launcher says until the stream ends, and makes Receive return then.
func (c *lentConn) listen() {
	defer close(c.told)
	for {
		message, err := c.stream.Recv()
		if err == nil {
			if phase := message.GetPhase(); phase != nil {
				c.worker.reportPhase(phase)
			}
			if message.GetExit() == nil {
				continue
			}
		} else if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // without an exit message
		}
		c.mu.Lock()
		c.exit, c.broken = message.GetExit(), err
		line := c.line
		c.mu.Unlock()
		if line != nil {
			_ = line.SetReadDeadline(time.Unix(1, 0))
		}
		return
	}
}

// Send implements wire.Conn.
func (c *lentConn) Send(frame wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return c.failed
	case c.line == nil: // Python was not started
		return errConnClosed
	}
	if len(c.backlog) > 0 {
		return c.keep(frame)
	}
	data, err := wire.AppendFrame(c.scratch[:0], frame)
	if err != nil {
		return err
	}
	if len(data) > wire.PacketBytes {
		return c.keep(frame)
	}
	c.scratch = data
	switch err := c.tryWrite(data); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN):
		return c.keep(frame)
	default: // Python is gone; the launcher says so
		return fmt.Errorf("writing to Python: %w", err)
	}
}

// keep has a goroutine write a frame; c.mu is held.
func (c *lentConn) keep(frame wire.Frame) error {
	data, err := wire.AppendFrame(make([]byte, 0, wire.PrefixBytes+len(frame.Header)+len(frame.Body)), frame)
	if err != nil {
		return err
	}
	if c.backlogBytes+len(data) > backlogBytes {
		return fmt.Errorf("%d bytes are waiting: %w", c.backlogBytes, ErrNotReading)
	}
	c.backlog = append(c.backlog, data)
	c.backlogBytes += len(data)
	if !c.writes {
		c.writes = true
		c.writing.Go(c.write)
	}
	return nil
}

// write writes the backlog until there is none.
func (c *lentConn) write() {
	var scratch []byte
	for {
		c.mu.Lock()
		if len(c.backlog) == 0 || c.failed != nil {
			c.writes = false
			c.mu.Unlock()
			return
		}
		frame := c.backlog[0]
		c.mu.Unlock()
		end := wire.PacketEnd(frame)
		_, err := c.line.Write(frame[:end])
		for rest := frame[end:]; len(rest) > 0 && err == nil; {
			var packet []byte
			packet, rest = wire.AppendPart(scratch[:0], rest)
			scratch = packet
			_, err = c.line.Write(packet)
		}
		c.mu.Lock()
		if err != nil && c.failed == nil {
			c.failed = fmt.Errorf("writing to Python: %w", err)
		}
		if len(c.backlog) > 0 { // otherwise Close has dropped it
			c.backlogBytes -= len(frame)
			c.backlog[0] = nil
			c.backlog = c.backlog[1:]
		}
		c.mu.Unlock()
	}
}

// Receive implements wire.Conn. It returns io.EOF when Python has ended.
func (c *lentConn) Receive() (wire.Frame, error) {
	for {
		if frame, ok := c.packets.Next(); ok {
			return frame, nil
		}
		err := c.read()
		switch {
		case err == nil:
		case errors.Is(err, syscall.ECONNRESET): // Python's end was closed with something unread; what it sent before follows
		case errors.Is(err, os.ErrDeadlineExceeded): // the stream has ended
			return c.rest()
		case errors.Is(err, io.EOF):
			return c.awaitEnd(hangUpGrace, "it closed its connection and did not end")
		case errors.Is(err, errConnClosed):
			return wire.Frame{}, err
		default:
			return c.awaitEnd(0, fmt.Sprintf("what it sent is no frame: %v", err))
		}
	}
}

// read reads one packet.
func (c *lentConn) read() error {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.line == nil {
		<-c.told // Python was not started, or has ended before the line was taken
		return os.ErrDeadlineExceeded
	}
	count, err := c.line.Read(c.buffer)
	if err != nil {
		if errors.Is(err, os.ErrClosed) {
			return errConnClosed
		}
		return err
	}
	return c.add(count)
}

func (c *lentConn) add(count int) error {
	if count > wire.PacketBytes {
		return fmt.Errorf("a packet of more than %d bytes", wire.PacketBytes)
	}
	packet := make([]byte, count)
	copy(packet, c.buffer)
	return c.packets.Add(packet)
}

// rest returns what Python sent before its end, after the launcher has told of that, and then io.EOF; or why the
// launcher tells nothing any more.
func (c *lentConn) rest() (wire.Frame, error) {
	<-c.told
	for c.ending() != nil {
		if frame, ok := c.packets.Next(); ok {
			return frame, nil
		}
		if !c.readNow() {
			return wire.Frame{}, io.EOF
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Frame{}, c.broken
}

// readNow reads one packet if there is one.
func (c *lentConn) readNow() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.line == nil {
		return false
	}
	raw, err := c.line.SyscallConn()
	if err != nil {
		return false
	}
	count := 0
	if err := raw.Control(func(descriptor uintptr) {
		for {
			count, err = unix.Read(int(descriptor), c.buffer)
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNRESET) {
				return
			}
		}
	}); err != nil {
		return false
	}
	return err == nil && count > 0 && c.add(count) == nil
}

// awaitEnd waits for the launcher's word about the end of a Python that can not be talked to any more; after some time
// it has it killed.
func (c *lentConn) awaitEnd(patience time.Duration, reason string) (wire.Frame, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.told:
	case <-timer.C:
		ctx, cancel := context.WithTimeout(c.worker.life, killLimit+2*drainLimit+answerLimit)
		defer cancel()
		_, err := c.worker.api.Kill(ctx, &launcherpb.KillRequest{Reason: reason}) // returns when everything has ended
		limit := time.NewTimer(answerLimit)
		defer limit.Stop()
		select {
		case <-c.told:
		case <-limit.C: // what follows kills the launcher
			return wire.Frame{}, errors.Join(fmt.Errorf("ending a worker, because %s", reason), err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit != nil {
		return wire.Frame{}, io.EOF
	}
	return wire.Frame{}, c.broken
}

// Close implements wire.Conn: it lets go of the line. The launcher then waits for another supervisor.
func (c *lentConn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	if c.failed == nil {
		c.failed = errConnClosed
	}
	c.backlog, c.backlogBytes = nil, 0
	line, lease := c.line, c.lease
	c.mu.Unlock()
	if line != nil {
		_ = line.SetDeadline(time.Unix(1, 0))
	}
	c.cancel()
	<-c.told
	c.writing.Wait()
	if line == nil {
		return nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	_ = line.Close()
	return lease.Close()
}

// ending implements traffic.
func (c *lentConn) ending() *launcherpb.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}
