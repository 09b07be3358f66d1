//go:build unix

package supervisor

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestACallStartsAWorkerAndReturnsWhatItsNodeReturns(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	result := mustCall(t, client, "Echo", map[string]any{"x": 7, "text": "grüß \u2028", "list": []any{1.5, nil, true}})
	var value []map[string]any
	if err := result.Decode(&value); err != nil {
		t.Fatal(err)
	}
	if len(value) != 1 || value[0]["x"] != 7.0 || value[0]["text"] != "grüß \u2028" {
		t.Errorf("got %s", result.Value)
	}
	if result.Environment != "pack" || result.Generation != 1 || result.PythonPID == 0 {
		t.Errorf("got %+v", result.CallResult)
	}
	again := mustCall(t, client, "Echo", nil)
	if again.PythonPID != result.PythonPID || again.Worker != result.Worker {
		t.Errorf("the second call went to another process: %+v, %+v", result.CallResult, again.CallResult)
	}
	worker := daemon.worker()
	if worker.State != string(Ready) || worker.Calls != 2 || worker.Generation != 1 || worker.PythonPID != result.PythonPID ||
		worker.RSSBytes == 0 || worker.Processes == 0 || worker.PythonVersion == "" || len(worker.Nodes) == 0 {
		t.Errorf("status shows %+v", worker)
	}
}

func TestAnExceptionArrivesWithItsClassMessageAndTraceback(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Raise", Inputs: map[string]any{"text": "no such thing"}})
	failure := wireError(t, err, wire.KindNodeRaised)
	exception := failure.Data.Exception
	if exception == nil || exception.Qualname != "FileNotFoundError" || !strings.Contains(exception.Traceback, "raise FileNotFoundError") {
		t.Errorf("got %+v", exception)
	}
	if failure.Data.Environment != "pack" || failure.Data.Node != "Raise" || failure.Data.Generation != 1 {
		t.Errorf("got %+v", failure.Data)
	}
}

func TestAsyncNodesRunSideBySide(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	path := marker(t)
	a := begin(testContext(t), client, api.Call{Node: "Meet", Inputs: map[string]any{"name": "a", "marker": path}})
	b := begin(testContext(t), client, api.Call{Node: "Meet", Inputs: map[string]any{"name": "b", "marker": path}})
	if err := a.wait(t); err != nil {
		t.Error(err)
	}
	if err := b.wait(t); err != nil {
		t.Error(err)
	}
}

func TestACancelledAsyncCallEndsAndTheWorkerLives(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	ctx, cancel := context.WithCancel(testContext(t))
	path := marker(t)
	waiting := begin(ctx, client, api.Call{Node: "Wait", Inputs: map[string]any{"marker": path}})
	awaitFile(t, path)
	cancel()
	wireError(t, waiting.wait(t), wire.KindCancelled)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 1 {
		t.Errorf("the worker was replaced: generation %d", result.Generation)
	}
}

func TestACallThatWaitsForItsWorkerIsCancelledAtOnce(t *testing.T) {
	options := newTestOptions(t)
	client := startDaemon(t, options).connect()
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := client.Call(ctx, api.Call{Environment: "pack", Node: "Wait"})
	wireError(t, err, wire.KindCancelled)
}

func TestUnknownNamesAreAnsweredWithTheNearest(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	for _, test := range []struct {
		call    api.Call
		kind    string
		nearest string
	}{
		{api.Call{Environment: "pakc", Node: "Echo"}, wire.KindUnknownEnvironment, "pack"},
		{api.Call{Environment: "pack", Node: "Ecoh"}, wire.KindUnknownNode, "Echo"},
	} {
		_, err := client.Call(testContext(t), test.call)
		failure := wireError(t, err, test.kind)
		if failure.Data.Nearest != test.nearest {
			t.Errorf("%s in %s: nearest is %q, expected %q", test.call.Node, test.call.Environment, failure.Data.Nearest, test.nearest)
		}
	}
	status, err := client.Status(testContext(t), api.StatusParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range status.Workers {
		if worker.Environment == "pakc" {
			t.Errorf("a name that means nothing left the record %+v", worker)
		}
	}
}

func TestAPackThatFailsToImportSaysSoAndIsTriedAgain(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	for generation := uint64(1); generation <= 2; generation++ {
		_, err := client.Call(testContext(t), api.Call{Environment: "broken", Node: "Any"})
		failure := wireError(t, err, wire.KindPackFailed)
		if failure.Data.Exception == nil || failure.Data.Exception.Message != "this pack is broken" || failure.Data.Generation != generation {
			t.Errorf("got %+v", failure)
		}
	}
}

func TestAPackThatExitsAtImportSaysHow(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "exits", Node: "Any"})
	failure := wireError(t, err, wire.KindStartFailed)
	if failure.Data.ExitCode == nil || *failure.Data.ExitCode != 7 || !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "exiting at import") {
		t.Errorf("got %+v", failure.Data)
	}
}

func TestAnInterpreterThatIsMissingSaysSo(t *testing.T) {
	options := newTestOptions(t)
	options.Environments[0].Python = "/nonexistent/python3"
	client := startDaemon(t, options).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Echo"})
	failure := wireError(t, err, wire.KindStartFailed)
	if !strings.Contains(failure.Message, "/nonexistent/python3") {
		t.Errorf("got %v", failure)
	}
}

func TestACyclicResultIsRefusedWithItsPath(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Cycle"})
	if failure := wireError(t, err, wire.KindValue); !strings.Contains(failure.Message, "result[0][0]") {
		t.Errorf("got %v", failure)
	}
}

func TestAResultBeyondTheQuotaIsRefusedWithTheFigures(t *testing.T) {
	options := newTestOptions(t)
	options.Quota = 1 << 20
	client := startDaemon(t, options).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Fill", Inputs: map[string]any{"byte": 65, "count": 8 << 20}})
	if failure := wireError(t, err, wire.KindQuota); !strings.Contains(failure.Message, "1048576") {
		t.Errorf("got %v", failure)
	}
	mustCall(t, client, "Echo", nil)
}

func TestALargeResultTravelsInAMemoryFileThatIsGivenBack(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	result := mustCall(t, client, "Fill", map[string]any{"byte": 65, "count": 4 << 20})
	var value []map[string]string
	if err := json.Unmarshal(result.Value, &value); err != nil {
		t.Fatal(err)
	}
	if text := value[0]["$bytes"]; len(text) < 5<<20 || !strings.HasPrefix(text, "QUFB") {
		t.Errorf("got %d letters, beginning with %.8q", len(text), text)
	}
	if usage := daemon.daemon.files.Usage(); usage.Files == 0 {
		t.Error("the supervisor counts no memory file while the client has one")
	}
	result.Close()
	eventually(t, "the memory file's return", func() bool { return daemon.daemon.files.Usage().Files == 0 })
}

func TestASilentCallIsGivenUpAndItsWorkerReplacedWhenItDoesNotListen(t *testing.T) {
	options := newTestOptions(t)
	options.StopGrace = 100 * time.Millisecond
	client := startDaemon(t, options).connect()
	mustCall(t, client, "Echo", nil)
	path := marker(t)
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Block", Inputs: map[string]any{"marker": path}, Silence: 200 * time.Millisecond})
	wireError(t, err, wire.KindSilent)
	awaitEnd(t, atoi(t, awaitFile(t, path)), waitLong)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d, expected 2", result.Generation)
	}
}

func TestACallBeyondItsDeadlineIsGivenUp(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	mustCall(t, client, "Echo", nil)
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Wait", Deadline: 100 * time.Millisecond})
	wireError(t, err, wire.KindSilent)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 1 {
		t.Errorf("a worker that obeyed was replaced: generation %d", result.Generation)
	}
}

func TestWorkersOfTheOperatorGetTheRecordedEnvironment(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	result := mustCall(t, daemon.connect(), "Where", nil)
	var value []struct {
		Environ map[string]string `json:"environ"`
		Cwd     string            `json:"cwd"`
	}
	if err := result.Decode(&value); err != nil {
		t.Fatal(err)
	}
	if environ := value[0].Environ; environ["RECORDED"] != "yes" || environ[spawn.WorkerVariable] != result.Worker {
		t.Errorf("got %v", environ)
	}
	found := false
	for _, variable := range daemon.worker().Variables {
		found = found || variable.Name == "RECORDED" && variable.Source != ""
	}
	if !found {
		t.Error("status does not show the variable with its source")
	}
}

func TestOutputOfAWorkerIsInItsLogAndCanBeFollowed(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	mustCall(t, client, "Speak", map[string]any{"text": "to the log", "stream": "stderr"})
	lines := make(chan api.LogLine, 100)
	ctx, cancel := contextWithCancel(t)
	followed := make(chan error, 1)
	follower := daemon.connect()
	go func() {
		followed <- follower.Logs(ctx, api.LogsParams{Environment: "pack", Lines: -1, Follow: true}, func(line api.LogLine) { lines <- line })
	}()
	await := func(text, stream string) {
		for {
			select {
			case line := <-lines:
				if line.Line == text && line.Stream == stream && line.Generation == 1 && line.Session == operatorSession {
					return
				}
			case <-time.After(waitLong):
				t.Fatalf("%q never came", text)
			}
		}
	}
	await("to the log", "stderr")
	mustCall(t, client, "Speak", map[string]any{"text": "and more"})
	await("and more", "stdout")
	cancel()
	if err := <-followed; err != nil {
		t.Errorf("following ended with %v", err)
	}
	err := client.Logs(testContext(t), api.LogsParams{Environment: "nothing"}, func(api.LogLine) {})
	wireError(t, err, wire.KindUnknownEnvironment)
}

func TestTheLifeOfAWorkerIsTold(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
	wireError(t, err, wire.KindWorkerDied)
	mustCall(t, client, "Echo", nil)
	if _, err := client.Stop(testContext(t), api.StopParams{}); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var sequence uint64
	result, err := client.Events(testContext(t), api.EventsParams{}, func(event api.Event) {
		if event.Sequence != sequence+1 {
			t.Errorf("event %d follows %d", event.Sequence, sequence)
		}
		sequence = event.Sequence
		if event.Environment == "pack" {
			kinds = append(kinds, event.Kind)
			if event.Kind == "worker.gone" && event.Cause == "" {
				t.Errorf("no cause: %+v", event)
			}
		}
	})
	if err != nil || result.Last != sequence {
		t.Fatalf("got %+v, %v", result, err)
	}
	expected := []string{"worker.starting", "worker.busy", "worker.gone", "worker.starting", "worker.busy", "worker.stopping", "worker.gone"}
	if len(kinds) != len(expected) {
		t.Fatalf("got %v", kinds)
	}
	for i := range expected {
		if kinds[i] != expected[i] {
			t.Fatalf("got %v, expected %v", kinds, expected)
		}
	}
}

func TestProgressArrivesInOrderAndCountsAsASignOfLife(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	const steps, silence = 5, time.Hour
	path, seen := marker(t), make(chan api.Progress, steps)
	running := begin(testContext(t), client, api.Call{
		Node: "Steps", Inputs: map[string]any{"count": steps, "marker": path}, Silence: silence,
		Progress: func(progress api.Progress) { seen <- progress },
	})
	goOn := func() {
		awaitFile(t, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	// hours lets the call be silent for so long, and has its clock look.
	hours := func(count float64) {
		d := daemon.daemon
		d.mu.Lock()
		var call *call
		for call = range d.operator.places["pack"].current.inFlight {
			call.heardAt = call.heardAt.Add(-time.Duration(count * float64(time.Hour)))
		}
		d.mu.Unlock()
		if call == nil {
			t.Fatal("there is no call")
		}
		d.silent(call)
	}
	for step := range steps {
		awaitFile(t, path)
		hours(0.9)
		goOn()
		select {
		case got := <-seen:
			if got != (api.Progress{Value: float64(step + 1), Max: steps, NodeID: "node 7"}) {
				t.Errorf("at step %d: %+v", step+1, got)
			}
		case <-running.done:
			t.Fatalf("at step %d the call ended with %v", step+1, running.err)
		}
	}
	awaitFile(t, path)
	hours(1)
	wireError(t, running.wait(t), wire.KindSilent)
	goOn()
	mustCall(t, client, "Echo", nil)
}

func TestAWorkersQuestionReachesTheThreadThatWaitsForItsCall(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	sendRaw(t, conn, wire.Message{ID: 9, Method: api.MethodCall, Params: json.RawMessage(`{"environment":"pack","node":"Ask","encoding":"json"}`)},
		[]byte(`{"method":"test.question","params":{"x":1}}`)...)
	question := readMessage(t, conn)
	if question.Method != "test.question" || question.Lane != wire.LaneCaller || question.Call != 9 || string(question.Params) != `{"x":1}` {
		t.Fatalf("got %+v", question)
	}
	sendRaw(t, conn, wire.Message{ID: question.ID, Result: json.RawMessage(`{"answer":42}`)})
	frame, err := wire.ReadFrame(conn)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := wire.DecodeMessage(frame.Header); err != nil || reply.ID != 9 || string(frame.Body) != `[{"answer":42}]` {
		t.Errorf("got %s %s, %v", frame.Header, frame.Body, err)
	}
}

func TestAWorkersQuestionThatNobodyAnswersFailsThere(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	_, err := daemon.connect().Call(testContext(t), api.Call{
		Environment: "pack", Node: "Ask", Inputs: map[string]any{"method": "test.question", "params": map[string]any{}},
	})
	failure := wireError(t, err, wire.KindNodeRaised)
	if !strings.Contains(failure.Message, "test.question") {
		t.Errorf("got %v", failure)
	}
}

func TestAnInputThatTheNodeLacksIsNamedWithTheNearest(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Strict", Inputs: map[string]any{"radios": 1}})
	failure := wireError(t, err, wire.KindUnknownInput)
	if failure.Data.Nearest != "radius" {
		t.Errorf("got %+v", failure)
	}
}
