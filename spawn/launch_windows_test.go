package spawn

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// There may be no Python where these tests run (wine), so this binary takes its place: it speaks the frames over the
// handles that it inherits.
func init() {
	if len(os.Args) > 2 && os.Args[len(os.Args)-2] == "--frames-handles" {
		serveTestProgram(os.Args[len(os.Args)-1])
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "sleep" {
		time.Sleep(10 * time.Minute)
	}
}

// handles are both directions of the connection.
type handles struct {
	io.Reader
	io.Writer
}

func (handles) Close() error { return nil }

func serveTestProgram(numbers string) {
	reader, writer, _ := strings.Cut(numbers, ",")
	open := func(number, name string) *os.File {
		handle, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			os.Exit(9)
		}
		return os.NewFile(uintptr(handle), name)
	}
	program := &testProgram{}
	program.peer = wire.NewPeer(wire.NewStream(handles{open(reader, "in"), open(writer, "out")}), program)
	if err := program.peer.Notify(&wire.Message{Method: "hello"}, nil); err != nil {
		os.Exit(8)
	}
	_ = program.peer.Run()
}

type testProgram struct{ peer *wire.Peer }

func (p *testProgram) HandleRequest(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	switch request.Method {
	case "echo":
		_ = reply(&wire.Message{Result: request.Params}, body)
	case "print":
		_, _ = os.Stderr.WriteString("printed\n")
		_ = reply(&wire.Message{}, nil)
	case "grandchild":
		command := exec.Command(os.Args[0], "sleep")
		err := command.Start()
		if err != nil {
			_ = reply(&wire.Message{Error: wire.AsError(err)}, nil)
			return
		}
		_ = reply(&wire.Message{Result: wire.Params(command.Process.Pid)}, nil)
	case "environ":
		_ = reply(&wire.Message{Result: wire.Params(os.Environ())}, nil)
	case "shutdown":
		_ = reply(&wire.Message{}, nil)
		os.Exit(0)
	}
}

func (p *testProgram) HandleNotification(*wire.Message, []byte) {}

func windowsSpec(t *testing.T) Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id := newID()
	return Spec{
		Worker: id, Environment: "environment", Generation: 1,
		Python: self, Program: self, Options: []string{"-test.run=none"}, Directory: temporaryFolder(t),
		Variables: append(os.Environ(), "PLUGIN_MIN_PORT=1"),
		Load:      json.RawMessage("{}"), Folder: filepath.Join(temporaryFolder(t), "workers", id),
		StopGrace: 5 * time.Second, OrphanWait: 2 * time.Second,
	}
}

func grandchild(t *testing.T, worker Worker) Process {
	t.Helper()
	process, err := Identify(ask[int](t, worker, "grandchild", nil))
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func waitEnd(t *testing.T, process Process) {
	t.Helper()
	watch, err := WatchProcess(process)
	if err != nil {
		return
	}
	defer watch.Close()
	select {
	case <-watch.Done():
	case <-time.After(10 * time.Second):
		t.Errorf("%v lives", process)
	}
}

func TestAWorkerIsLaunchedAnswersAndStopsOnWindows(t *testing.T) {
	r := newRecorder()
	worker := launch(t, windowsSpec(t), r)
	_, body, err := worker.Peer().Request(testContext(t), &wire.Message{Method: "echo"}, make([]byte, 900<<10))
	if err != nil || len(body) != 900<<10 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	ask[anything](t, worker, "print", nil)
	r.wait(t, "the line", func() bool { return len(r.lines) == 1 && r.lines[0].Text == "printed" })
	for _, variable := range ask[[]string](t, worker, "environ", nil) {
		if strings.HasPrefix(variable, "PLUGIN_") {
			t.Errorf("%s has reached the program", variable)
		}
	}
	below := grandchild(t, worker)
	statistics, err := worker.Statistics(testContext(t))
	if err != nil || statistics.Processes < 2 {
		t.Errorf("%+v, %v", statistics, err)
	}
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if exit := worker.Exit(); exit.Code == nil || *exit.Code != 0 {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	waitEnd(t, below)
	if _, err := os.Stat(worker.Record().Folder); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestAKilledLaunchersJobTakesItsTreeAlong(t *testing.T) {
	worker := launch(t, windowsSpec(t), newRecorder())
	record := worker.Record()
	below := grandchild(t, worker)
	watch, err := WatchProcess(record.Launcher)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if err := watch.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEnd(t, record.Python)
	waitEnd(t, below)
	waitDone(t, worker)
}

func TestAWorkerIsAdoptedAndThenOrphanedOnWindows(t *testing.T) {
	worker := launch(t, windowsSpec(t), newRecorder())
	record := worker.Record()
	if err := worker.Detach(); err != nil {
		t.Fatal(err)
	}
	adopted, err := Attach(testContext(t), record, newRecorder(), AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask[anything](t, adopted, "echo", anything{})
	below := grandchild(t, adopted)
	if err := adopted.Detach(); err != nil {
		t.Fatal(err)
	}
	for _, process := range []Process{record.Python, below, record.Launcher} {
		waitEnd(t, process)
	}
}

func TestAPipeConnectionKnowsDeadlines(t *testing.T) {
	ours, theirs, err := frameConnection()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 10)
	if err := ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(buffer); !os.IsTimeout(err) {
		t.Errorf("error %v", err)
	}
	if err := ours.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.writer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if count, err := ours.Read(buffer); err != nil || string(buffer[:count]) != "hello" {
		t.Errorf("%q, %v", buffer[:count], err)
	}
	if _, err := ours.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if count, err := theirs.reader.Read(buffer); err != nil || string(buffer[:count]) != "answer" {
		t.Errorf("%q, %v", buffer[:count], err)
	}
	theirs.close()
	if _, err := ours.Read(buffer); err == nil {
		t.Error("the end was not seen")
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
}
