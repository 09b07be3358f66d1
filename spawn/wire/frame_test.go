package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAFrameSurvivesTheStream(t *testing.T) {
	for _, frame := range []Frame{
		{Header: []byte(`{}`)},
		{Header: []byte(`{"a":1}`), Body: []byte("body")},
		{Header: bytes.Repeat([]byte("h"), MaxHeaderBytes), Body: bytes.Repeat([]byte{0}, MaxFrameBytes-MaxHeaderBytes)},
	} {
		encoded, err := AppendFrame([]byte("before"), frame)
		if err != nil {
			t.Fatal(err)
		}
		reader := iotest.OneByteReader(bytes.NewReader(encoded[len("before"):]))
		got, err := ReadFrame(reader)
		if err != nil || !bytes.Equal(got.Header, frame.Header) || !bytes.Equal(got.Body, frame.Body) {
			t.Errorf("header of %d and body of %d bytes, error %v", len(got.Header), len(got.Body), err)
		}
		if _, err := ReadFrame(reader); !errors.Is(err, io.EOF) {
			t.Errorf("after the last frame: %v", err)
		}
	}
}

func TestATornFrameIsNoCleanEnd(t *testing.T) {
	encoded, err := AppendFrame(nil, Frame{Header: []byte(`{"a":1}`), Body: []byte("body")})
	if err != nil {
		t.Fatal(err)
	}
	for length := 1; length < len(encoded); length++ {
		if _, err := ReadFrame(bytes.NewReader(encoded[:length])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", length, err)
		}
	}
}

func TestOversizedAndEmptyFramesAreRefusedOnBothSides(t *testing.T) {
	for _, size := range []struct{ header, body int }{
		{0, 0}, {0, 10}, {MaxHeaderBytes + 1, 0}, {1, MaxFrameBytes}, {MaxHeaderBytes, MaxFrameBytes - MaxHeaderBytes + 1},
	} {
		if _, err := AppendFrame(nil, Frame{Header: make([]byte, size.header), Body: make([]byte, size.body)}); err == nil {
			t.Errorf("a frame of %+v was written", size)
		}
		prefix := binary.BigEndian.AppendUint32(nil, uint32(size.header))
		prefix = binary.BigEndian.AppendUint32(prefix, uint32(size.body))
		if _, err := ReadFrame(bytes.NewReader(append(prefix, make([]byte, 2*MaxFrameBytes)...))); err == nil {
			t.Errorf("a frame of %+v was read", size)
		}
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := ReadFrame(bytes.NewReader(huge)); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("lengths that overflow: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	whole, err := AppendFrame(nil, Frame{Header: []byte(`{"jsonrpc":"2.0","id":1,"method":"call"}`), Body: []byte("body")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(append([]byte(nil), whole...), whole...))
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 4, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 0x10, 0, 0, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := bytes.NewReader(data)
		for {
			before := reader.Len()
			frame, err := ReadFrame(reader)
			if err != nil {
				return
			}
			if len(frame.Header) == 0 || len(frame.Header) > MaxHeaderBytes || len(frame.Header)+len(frame.Body) > MaxFrameBytes {
				t.Fatalf("a frame of %d and %d bytes", len(frame.Header), len(frame.Body))
			}
			again, err := AppendFrame(nil, frame)
			if err != nil {
				t.Fatal(err)
			}
			start := len(data) - before
			if !bytes.Equal(again, data[start:start+len(again)]) {
				t.Fatalf("%q was read as %q", data[start:], again)
			}
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	for name, size := range map[string]int{"empty": 0, "64KiB": 64 << 10, "1MiB": MaxFrameBytes - 1024} {
		frame := Frame{Header: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), Body: []byte(strings.Repeat("x", size))}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			var buffer []byte
			for b.Loop() {
				var err error
				if buffer, err = AppendFrame(buffer[:0], frame); err != nil {
					b.Fatal(err)
				}
				if _, err := ReadFrame(bytes.NewReader(buffer)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
