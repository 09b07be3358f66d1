package wire

import (
	"bufio"
	"io"
	"sync"
)

// Stream is a Conn over a byte stream: a Unix socket or a socket pair.
type Stream struct {
	stream io.ReadWriteCloser
	reader *bufio.Reader

	mu      sync.Mutex
	scratch []byte
}

// NewStream makes a Conn of a byte stream, which it then owns.
func NewStream(stream io.ReadWriteCloser) *Stream {
	return &Stream{stream: stream, reader: bufio.NewReaderSize(stream, 64<<10)}
}

// Send writes one frame with one write.
func (s *Stream) Send(frame Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	buffer, err := AppendFrame(s.scratch[:0], frame)
	if err != nil {
		return err
	}
	_, err = s.stream.Write(buffer)
	if cap(buffer) <= 64<<10 { // keep small buffers only
		s.scratch = buffer
	}
	return err
}

// Receive reads one frame.
func (s *Stream) Receive() (Frame, error) { return ReadFrame(s.reader) }

// Close closes the stream; a Receive in progress ends.
func (s *Stream) Close() error { return s.stream.Close() }
