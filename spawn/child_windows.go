package spawn

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// inheritedEnds are Python's ends of the two pipes that carry frames.
type inheritedEnds struct{ reader, writer *os.File }

func (e inheritedEnds) close() {
	if e.reader != nil {
		_ = e.reader.Close()
		_ = e.writer.Close()
	}
}

// arguments name the handles: first the one to read from.
func (e inheritedEnds) arguments() []string {
	return []string{"--frames-handles", fmt.Sprintf("%d,%d", e.reader.Fd(), e.writer.Fd())}
}

func frameConnection() (frameConn, inheritedEnds, error) {
	theirReader, ourWriter, err := os.Pipe()
	if err != nil {
		return nil, inheritedEnds{}, err
	}
	ourReader, theirWriter, err := os.Pipe()
	if err != nil {
		_ = theirReader.Close()
		_ = ourWriter.Close()
		return nil, inheritedEnds{}, err
	}
	return newPipeConn(ourReader, ourWriter), inheritedEnds{theirReader, theirWriter}, nil
}

// prepare lets Python inherit its ends, and gives it no console.
func (c *child) prepare(inherited inheritedEnds, _ string) (release func(), err error) {
	handles := []syscall.Handle{syscall.Handle(inherited.reader.Fd()), syscall.Handle(inherited.writer.Fd())}
	for _, handle := range handles {
		if err := windows.SetHandleInformation(windows.Handle(handle), windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
			return nil, os.NewSyscallError("SetHandleInformation", err)
		}
	}
	c.command.SysProcAttr = &syscall.SysProcAttr{
		AdditionalInheritedHandles: handles,
		CreationFlags:              windows.CREATE_NO_WINDOW,
		HideWindow:                 true,
	}
	return func() {}, nil
}

// signalName is empty: there are no signals here.
func signalName(*os.ProcessState) string { return "" }

// pipeConn makes a frameConn of two anonymous pipes, which know no deadlines: a goroutine for each waits in them.
type pipeConn struct {
	reader, writer *os.File
	chunks         chan []byte // what was read; closed at the end
	readError      error       // set before chunks is closed
	rest           []byte
	writes         chan []byte
	written        chan error
	quit           chan struct{}
	once           sync.Once
	group          sync.WaitGroup
	readDeadline   deadline
	writeDeadline  deadline
}

func newPipeConn(reader, writer *os.File) *pipeConn {
	c := &pipeConn{
		reader:        reader,
		writer:        writer,
		chunks:        make(chan []byte),
		writes:        make(chan []byte),
		written:       make(chan error, 1),
		quit:          make(chan struct{}),
		readDeadline:  newDeadline(),
		writeDeadline: newDeadline(),
	}
	c.group.Go(c.pumpReads)
	c.group.Go(c.pumpWrites)
	return c
}

func (c *pipeConn) pumpReads() {
	defer close(c.chunks)
	for {
		chunk := make([]byte, upwardBufferBytes)
		count, err := c.reader.Read(chunk)
		if count > 0 {
			select {
			case c.chunks <- chunk[:count]:
			case <-c.quit:
				return
			}
		}
		if err != nil {
			c.readError = err
			return
		}
	}
}

func (c *pipeConn) pumpWrites() {
	for {
		select {
		case data := <-c.writes:
			_, err := c.writer.Write(data)
			c.written <- err
		case <-c.quit:
			return
		}
	}
}

// Read implements io.Reader.
func (c *pipeConn) Read(buffer []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case chunk, more := <-c.chunks:
			if !more {
				return 0, c.readError
			}
			c.rest = chunk
		case <-c.readDeadline.passed():
			return 0, os.ErrDeadlineExceeded
		}
	}
	count := copy(buffer, c.rest)
	c.rest = c.rest[count:]
	return count, nil
}

// Write implements io.Writer. After a deadline has passed in the middle, nothing more can be written.
func (c *pipeConn) Write(data []byte) (int, error) {
	select {
	case c.writes <- append([]byte(nil), data...):
	case <-c.writeDeadline.passed():
		return 0, os.ErrDeadlineExceeded
	case <-c.quit:
		return 0, os.ErrClosed
	}
	select {
	case err := <-c.written:
		if err != nil {
			return 0, err
		}
		return len(data), nil
	case <-c.writeDeadline.passed():
		return 0, os.ErrDeadlineExceeded
	}
}

// Close implements io.Closer. The goroutines end when the other side's handles are closed, which its death does.
func (c *pipeConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.quit)
		err = errors.Join(c.reader.Close(), c.writer.Close())
	})
	return err
}

// SetReadDeadline makes a Read, also one in progress, return at a time; zero means never.
func (c *pipeConn) SetReadDeadline(at time.Time) error {
	c.readDeadline.set(at)
	return nil
}

// SetWriteDeadline is SetReadDeadline for Write.
func (c *pipeConn) SetWriteDeadline(at time.Time) error {
	c.writeDeadline.set(at)
	return nil
}

// deadline is a time that can be moved while somebody waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when the time has passed
}

func newDeadline() deadline { return deadline{over: make(chan struct{})} }

func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.over:
		d.over = make(chan struct{})
	default:
	}
	over := d.over
	switch left := time.Until(at); {
	case at.IsZero():
	case left <= 0:
		close(over)
	default:
		d.timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.over == over {
				select {
				case <-over:
				default:
					close(over)
				}
			}
		})
	}
}
