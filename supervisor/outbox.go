package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// outboxBytes is how much may wait for a client that does not read. Eight of the largest frames: more than any honest
// client leaves unread while it waits for an answer.
const outboxBytes = 8 * wire.MaxFrameBytes

// errSlowClient ends a connection whose client does not read.
var errSlowClient = errors.New("the client does not read what it is sent")

// outbox is a client's connection as a wire.Conn whose Send never waits for the client: what the connection does not
// take at once is queued, up to a limit, and written by a goroutine. So a worker's answer to one client can not hold up
// the worker's answers to others, and in the ordinary case no goroutine stands between a worker and its caller.
type outbox struct {
	conn     net.Conn
	reader   *bufio.Reader
	tryWrite func([]byte) (int, error)
	drained  chan struct{} // closed when the writing goroutine has ended
	written  chan struct{} // has a token when something that was queued has been written
	flush    time.Duration // what a client may take to read its last messages

	mu      sync.Mutex
	wake    sync.Cond
	scratch []byte
	pending []byte
	writing int   // bytes that the goroutine writes right now
	ending  bool  // nothing more is taken, and the connection ends when the queue is empty
	failed  error // why nothing can be sent any more
}

func newOutbox(conn net.Conn) *outbox {
	o := &outbox{
		conn:     conn,
		reader:   bufio.NewReaderSize(conn, 64<<10),
		tryWrite: newTryWrite(conn),
		drained:  make(chan struct{}),
		written:  make(chan struct{}, 1),
		flush:    flushTime,
	}
	o.wake.L = &o.mu
	go o.write()
	return o
}

// Send queues one frame and does not wait. It fails when the connection has ended, and ends it when too much is queued.
func (o *outbox) Send(frame wire.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return o.failed
	}
	if o.ending {
		return io.EOF
	}
	buffer, err := wire.AppendFrame(o.scratch[:0], frame)
	if err != nil {
		return err
	}
	if cap(buffer) <= 64<<10 {
		o.scratch = buffer
	}
	if len(o.pending) == 0 && o.writing == 0 && o.tryWrite != nil {
		written, err := o.tryWrite(buffer)
		if err != nil {
			return o.fail(fmt.Errorf("writing to a client: %w", err))
		}
		buffer = buffer[written:]
	}
	if len(buffer) == 0 {
		return nil
	}
	if o.writing+len(o.pending)+len(buffer) > outboxBytes {
		return o.fail(errSlowClient)
	}
	o.pending = append(o.pending, buffer...)
	o.wake.Signal()
	return nil
}

// tellWritten wakes whoever waits for room.
func (o *outbox) tellWritten() {
	select {
	case o.written <- struct{}{}:
	default: // it has a token
	}
}

// backlog is how many bytes wait for the client.
func (o *outbox) backlog() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writing + len(o.pending)
}

// fail ends the connection; o.mu is held.
func (o *outbox) fail(err error) error {
	if o.failed == nil {
		o.failed = err
		o.wake.Signal()
		_ = o.conn.Close() // the reason is err
	}
	return o.failed
}

// write sends what is queued until the connection fails or is closed.
func (o *outbox) write() {
	defer close(o.drained)
	for {
		o.mu.Lock()
		for len(o.pending) == 0 && o.failed == nil && !o.ending {
			o.wake.Wait()
		}
		if len(o.pending) == 0 && o.ending {
			_ = o.fail(io.EOF)
		}
		if o.failed != nil {
			o.pending = nil
			o.mu.Unlock()
			return
		}
		chunk := o.pending
		o.pending = nil
		o.writing = len(chunk)
		o.mu.Unlock()
		_, err := o.conn.Write(chunk)
		o.mu.Lock()
		o.writing = 0
		o.tellWritten()
		if err != nil {
			_ = o.fail(fmt.Errorf("writing to a client: %w", err))
		}
		o.mu.Unlock()
	}
}

// flushTime is how long a client may take to read its last messages.
const flushTime = 2 * time.Second

// finish ends the connection once what is queued has been written, or after its time to do so.
func (o *outbox) finish() {
	_ = o.conn.SetWriteDeadline(time.Now().Add(o.flush)) // a failure to do so means that it has ended already
	o.mu.Lock()
	o.ending = true
	o.wake.Signal()
	o.mu.Unlock()
}

// Receive reads one frame. A connection that was ended here fails with the reason.
func (o *outbox) Receive() (wire.Frame, error) {
	frame, err := wire.ReadFrame(o.reader)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.failed != nil {
			return wire.Frame{}, o.failed
		}
		if errors.Is(err, net.ErrClosed) {
			return wire.Frame{}, io.EOF
		}
	}
	return frame, err
}

// Close ends the connection and waits for the writing goroutine.
func (o *outbox) Close() error {
	o.mu.Lock()
	_ = o.fail(io.EOF)
	o.mu.Unlock()
	<-o.drained
	return nil
}
