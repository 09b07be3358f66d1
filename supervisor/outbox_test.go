//go:build unix

package supervisor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// socketPair connects two ends of a Unix socket.
func socketPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")}
	listener, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	theirs, err = net.DialUnix("unix", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	ours, err = listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return ours, theirs
}

func TestAnOutboxKeepsTheOrderWhateverTheReaderDoes(t *testing.T) {
	t.Parallel()
	ours, theirs := socketPair(t)
	box := newOutbox(ours)
	defer box.Close()
	const frames = 2000
	body := make([]byte, 3000) // six megabytes: far beyond what the socket takes at once, within what is queued
	for i := range frames {
		if err := box.Send(wire.Frame{Header: fmt.Appendf(nil, "%d", i), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range frames {
		frame, err := wire.ReadFrame(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if string(frame.Header) != fmt.Sprint(i) || len(frame.Body) != len(body) {
			t.Fatalf("frame %d is %q with %d bytes", i, frame.Header, len(frame.Body))
		}
	}
}

func TestAnOutboxEndsTheConnectionOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ours, theirs := socketPair(t)
	box := newOutbox(ours)
	defer box.Close()
	frame := wire.Frame{Header: []byte("x"), Body: make([]byte, 512<<10)}
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("50 MiB are queued for a client that does not read")
		}
		err = box.Send(frame)
	}
	if !errors.Is(err, errSlowClient) {
		t.Errorf("got %v", err)
	}
	if _, err := box.Receive(); !errors.Is(err, errSlowClient) {
		t.Errorf("the reader is told %v", err)
	}
	if _, err := io.Copy(io.Discard, theirs); err != nil {
		t.Errorf("the client sees %v", err)
	}
}

func TestAnOutboxThatFinishesSendsWhatIsQueuedFirst(t *testing.T) {
	t.Parallel()
	ours, theirs := socketPair(t)
	box := newOutbox(ours)
	defer box.Close()
	box.flush = waitLong
	const size = 4 << 20
	for range 8 {
		if err := box.Send(wire.Frame{Header: []byte("x"), Body: make([]byte, size/8)}); err != nil {
			t.Fatal(err)
		}
	}
	box.finish()
	if err := box.Send(wire.Frame{Header: []byte("x")}); err == nil {
		t.Error("a frame was taken after the end")
	}
	got, err := io.Copy(io.Discard, theirs)
	if err != nil || got < size {
		t.Errorf("got %d bytes, %v", got, err)
	}
}
