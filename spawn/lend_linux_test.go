package spawn

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

func TestAStoppedLauncherDelaysNoCall(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	if err := syscall.Kill(worker.Record().Launcher.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ask[anything](t, worker, "echo", anything{})
	if err := syscall.Kill(worker.Record().Launcher.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// duplicateLine is another descriptor of the connection that a worker's supervisor was lent, as one that is about to die
// has it.
func duplicateLine(t *testing.T, w Worker) *os.File {
	t.Helper()
	raw, err := w.(*worker).traffic.(*lentConn).line.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	duplicate := -1
	if controlErr := raw.Control(func(descriptor uintptr) { duplicate, err = unix.Dup(int(descriptor)) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	file := os.NewFile(uintptr(duplicate), "frames")
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// TestASupervisorThatDiesInAFrameLeavesNoHalfOfIt has one die while it writes a large frame, and one while it reads one.
func TestASupervisorThatDiesInAFrameLeavesNoHalfOfIt(t *testing.T) {
	first := launch(t, testSpec(t), newRecorder())
	line := duplicateLine(t, first)
	request := frameOf(t, `{"jsonrpc":"2.0","id":77,"method":"echo"}`, 5*wire.PacketBytes)
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := line.Write(request[:wire.PacketEnd(request)]); err != nil {
		t.Fatal(err)
	}
	second := attach(t, first.Record(), newRecorder())
	ask[anything](t, second, "echo", anything{})
	if err := second.Detach(); err != nil {
		t.Fatal(err)
	}
	packet := request[:wire.PacketEnd(request)]
	for rest := request[wire.PacketEnd(request):]; ; {
		if _, err := line.Write(packet); err != nil {
			t.Fatal(err)
		}
		if len(rest) == 0 {
			break
		}
		packet, rest = wire.AppendPart(nil, rest)
	}
	reply := make([]byte, wire.PacketBytes)
	if count, err := line.Read(reply); err != nil || count != wire.PacketBytes {
		t.Fatal(count, err)
	}
	ask[anything](t, attach(t, first.Record(), newRecorder()), "echo", anything{})
}

func TestTheLineIsLentToWhoKnowsTheKey(t *testing.T) {
	t.Chdir(temporaryFolder(t))
	end, inherited, err := lentConnection()
	if err != nil {
		t.Fatal(err)
	}
	defer end.close()
	defer inherited.close()
	key := newKey()
	lease, err := newLease(key)
	if err != nil {
		t.Fatal(err)
	}
	lease.begin(end)
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if line, _, err := fetchLine(testContext(t), folder, newKey()); err == nil {
		_ = line.Close()
		t.Fatal("a wrong key was taken")
	}
	line, held, err := fetchLine(testContext(t), folder, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := line.Write([]byte("to Python")); err != nil {
		t.Error(err)
	}
	arrived := make([]byte, 100)
	if count, err := inherited.file.Read(arrived); err != nil || string(arrived[:count]) != "to Python" {
		t.Errorf("%q, %v", arrived[:count], err)
	}
	if second, _, err := fetchLine(testContext(t), folder, key); err == nil {
		_ = second.Close()
		t.Error("it is lent twice")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lease.end()
	}()
	if err := errors.Join(line.Close(), held.Close()); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestLargeFramesPassBothWays(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	for _, size := range []int{wire.PacketBytes - 100, wire.PacketBytes, 5 * wire.PacketBytes, wire.MaxFrameBytes - 1000} {
		body := make([]byte, size)
		for index := range body {
			body[index] = byte(index * 7 >> 3)
		}
		_, got, err := worker.Peer().Request(testContext(t), &wire.Message{Method: "echo"}, body)
		if err != nil || string(got) != string(body) {
			t.Fatalf("%d bytes came back as %d, %v", size, len(got), err)
		}
	}
}

func TestAWorkerOfAStoppedSupervisorIsAdopted(t *testing.T) {
	supervisor, record := startTestSupervisor(t, testSpec(t))
	if err := supervisor.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	worker := attach(t, record, newRecorder()) // once the launcher has given up waiting for the other's release
	ask[anything](t, worker, "echo", anything{})
	if err := supervisor.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	supervisor.leave(t) // it has been told that the worker is another's
	ask[anything](t, worker, "echo", anything{})
}

// saidStream is a launcher's Traffic stream on which all has been said already.
type saidStream struct {
	launcherpb.Launcher_TrafficClient
	messages []*launcherpb.Upward
}

func (s *saidStream) Recv() (*launcherpb.Upward, error) {
	if len(s.messages) == 0 {
		return nil, io.EOF
	}
	message := s.messages[0]
	s.messages = s.messages[1:]
	return message, nil
}

// TestAPythonThatEndsBeforeItsLineIsTakenTellsItsOwnEnd: the launcher has closed its socket by then, which says nothing.
func TestAPythonThatEndsBeforeItsLineIsTakenTellsItsOwnEnd(t *testing.T) {
	exit := &launcherpb.Exit{HasCode: true, Code: 127, Stderr: []string{"a library is missing"}}
	conn, err := newLentConn(&worker{}, &saidStream{messages: []*launcherpb.Upward{{Phase: &launcherpb.Phase{Phase: "empty"}}, {Exit: exit}}}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	lent := conn.(*lentConn)
	if err := lent.take(testContext(t), t.TempDir(), "key"); err != nil {
		t.Errorf("taking a line that is not there any more: %v", err)
	}
	if _, err := lent.Receive(); !errors.Is(err, io.EOF) || lent.ending() != exit {
		t.Errorf("received %v, exit %v", err, lent.ending())
	}
	broken, err := newLentConn(&worker{}, &saidStream{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.(*lentConn).take(testContext(t), t.TempDir(), "key"); err == nil {
		t.Error("a launcher that says nothing gave a line")
	}
}
