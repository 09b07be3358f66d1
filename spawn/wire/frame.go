package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of one frame, in bytes. Larger values travel in memory files.
const (
	MaxHeaderBytes = 256 << 10
	MaxFrameBytes  = 1 << 20
)

// PrefixBytes is the size of a frame's prefix on a byte stream: two big-endian unsigned 32-bit lengths, the header's
// and the body's.
const PrefixBytes = 8

// ErrFrameTooLarge is returned for a frame beyond MaxHeaderBytes or MaxFrameBytes; the stream it came from can not be
// read further.
var ErrFrameTooLarge = errors.New("frame is larger than the protocol allows")

// Frame is one message as it travels: the bytes of a JSON-RPC 2.0 object, and a body that only Python decodes.
type Frame struct {
	Header []byte
	Body   []byte
}

// CheckSize reports whether lengths in bytes are within the protocol's limits.
func CheckSize(header, body int) error {
	switch {
	case header == 0:
		return errors.New("frame has no header")
	case header > MaxHeaderBytes:
		return fmt.Errorf("header of %d bytes, at most %d: %w", header, MaxHeaderBytes, ErrFrameTooLarge)
	case header+body > MaxFrameBytes:
		return fmt.Errorf("frame of %d bytes, at most %d: %w", header+body, MaxFrameBytes, ErrFrameTooLarge)
	}
	return nil
}

// AppendFrame appends the stream form of a frame to buffer.
func AppendFrame(buffer []byte, frame Frame) ([]byte, error) {
	if err := CheckSize(len(frame.Header), len(frame.Body)); err != nil {
		return buffer, err
	}
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(frame.Header)))
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(frame.Body)))
	buffer = append(buffer, frame.Header...)
	return append(buffer, frame.Body...), nil
}

// ReadFrame reads one frame. It returns io.EOF at a clean end and io.ErrUnexpectedEOF inside a frame.
func ReadFrame(reader io.Reader) (Frame, error) {
	var prefix [PrefixBytes]byte
	if _, err := io.ReadFull(reader, prefix[:]); err != nil {
		return Frame{}, err
	}
	header := uint64(binary.BigEndian.Uint32(prefix[:4]))
	body := uint64(binary.BigEndian.Uint32(prefix[4:]))
	if header > MaxHeaderBytes || header+body > MaxFrameBytes {
		return Frame{}, fmt.Errorf("frame announces a header of %d and a body of %d bytes: %w", header, body, ErrFrameTooLarge)
	}
	if header == 0 {
		return Frame{}, errors.New("frame has no header")
	}
	content := make([]byte, header+body)
	if _, err := io.ReadFull(reader, content); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Header: content[:header:header], Body: content[header:]}, nil
}
