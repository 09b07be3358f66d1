//go:build unix

package supervisor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// adapter is what a ComfyUI's adapter is to the supervisor: a host with questions that also hears.
type adapter struct {
	t     *testing.T
	peer  *wire.Peer
	heard chan *wire.Message
}

func (a *adapter) HandleRequest(request *wire.Message, _ []byte, reply wire.ReplyFunc) {
	a.HandleNotification(request, nil)
	_ = reply(&wire.Message{Result: wire.Params(map[string]string{"answered": request.Method})}, nil)
}

func (a *adapter) HandleNotification(notification *wire.Message, _ []byte) {
	select {
	case a.heard <- notification:
	default: // of what nobody in the test waits for
	}
}

// connectAdapter introduces this process as a host whose ComfyUI is an empty folder, with the facts given.
func connectAdapter(t *testing.T, options testOptions, facts map[string]any) *adapter {
	t.Helper()
	self, err := spawn.Self()
	if err != nil {
		t.Fatal(err)
	}
	made := &adapter{t: t, heard: make(chan *wire.Message, 1000)}
	made.peer = wire.NewPeer(wire.NewStream(dialRaw(t, options)), made)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = made.peer.Run()
	}()
	t.Cleanup(func() {
		_ = made.peer.Close()
		<-ended
	})
	made.ask(api.MethodHello, api.HelloParams{
		Protocol: wire.ProtocolVersion, Role: api.RoleHost, PID: os.Getpid(), StartTime: self.StartTime, Owner: strings.Repeat("a", 32),
		Name: "ComfyUI", ComfyUI: t.TempDir(), Environ: map[string]string{"PATH": os.Getenv("PATH")}, HostFacts: wire.Params(facts),
	})
	return made
}

// pythonValue is a value's JSON as Python's side of a connection has it in a body.
func pythonValue(text string) []byte {
	document := `{"v":` + text + `,"s":[]}`
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(document))), document...)
}

// ask sends a request with an empty value and returns the answer's result and value.
func (a *adapter) ask(method string, params any) (result json.RawMessage, value string) {
	a.t.Helper()
	reply, body, err := a.peer.Request(testContext(a.t), &wire.Message{Method: method, Params: wire.Params(params)}, pythonValue("null"))
	if err != nil {
		a.t.Fatalf("%s: %v", method, err)
	}
	if len(body) > 4 {
		value = string(body[4 : 4+binary.LittleEndian.Uint32(body)])
	}
	return reply.Result, value
}

// hear waits for a notification or request that is as wanted.
func (a *adapter) hear(what string, wanted func(*wire.Message) bool) *wire.Message {
	a.t.Helper()
	limit := time.After(waitLong)
	for {
		select {
		case message := <-a.heard:
			if wanted(message) {
				return message
			}
		case <-limit:
			a.t.Fatalf("waited too long for %s", what)
		}
	}
}

// hearWorker waits for the news that a worker has a state.
func (a *adapter) hearWorker(state State) {
	a.t.Helper()
	a.hear("the state "+string(state), func(message *wire.Message) bool {
		var params workerParams
		return message.Method == notificationComfyUIWorker && json.Unmarshal(message.Params, &params) == nil &&
			params.Environment == "pack" && params.State == string(state)
	})
}

type question struct {
	Environment string `json:"environment"`
	Node        string `json:"node,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	IfAwake     bool   `json:"if_awake,omitempty"`
	StartMS     int64  `json:"start_ms,omitempty"`
}

func TestAQuestionOfAnAdapterReachesAWorkerBesideItsCalls(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	if result, _ := host.ask("comfyui.inputs", question{Environment: "pack", IfAwake: true}); string(result) != `{"awake":false}` {
		t.Fatalf("a worker that does not run answered %s", result)
	}
	if _, value := host.ask("comfyui.scan", question{Environment: "pack"}); !strings.Contains(value, `"Strict"`) || !strings.Contains(value, `"radius"`) {
		t.Errorf("the pack is described as %s", value)
	}
	path := marker(t)
	inputs := `{"m":{"inputs":{"m":{"marker":"` + path + `"}}}}`
	params := map[string]any{"environment": "pack", "node": "Block", "function": "run", "instance": "one", "comfyui": map[string]any{"graph": nil}}
	answered := make(chan string, 1)
	if _, err := host.peer.Start(&wire.Message{Method: api.MethodCall, Params: wire.Params(params)}, pythonValue(inputs), func(reply *wire.Message, _ []byte, err error) {
		if err == nil && reply.Error != nil {
			err = reply.Error
		}
		answered <- fmt.Sprint(err)
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node", func() bool {
		_, err := os.Stat(path)
		return err == nil || len(answered) > 0
	})
	if _, value := host.ask("comfyui.inputs", question{Environment: "pack", IfAwake: true}); !strings.Contains(value, `"radius"`) {
		t.Errorf("while a node computes, its inputs are %s", value)
	}
	select {
	case err := <-answered:
		t.Errorf("the node did not compute meanwhile: %s", err)
	default:
	}
}

func TestAWorkerHasLetGoOfWhatWasDroppedBeforeItSaysSo(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	settle := question{Environment: "pack", IfAwake: true}
	if result, _ := host.ask(methodHandleSettle, settle); string(result) != `{"awake":false}` {
		t.Errorf("a worker that does not run answered %s", result)
	}
	call := func(node, path string, answered func(*wire.Message, []byte, error)) {
		message := &wire.Message{Method: api.MethodCall, Params: wire.Params(question{Environment: "pack", Node: node})}
		if _, err := host.peer.Start(message, pythonValue(`{"m":{"marker":"`+path+`"}}`), answered); err != nil {
			t.Fatal(err)
		}
	}
	kept, made := marker(t), make(chan string, 1)
	call("Keep", kept, func(reply *wire.Message, body []byte, err error) { made <- fmt.Sprintf("%s %v", body, err) })
	if answer := <-made; !strings.Contains(answer, `"h"`) {
		t.Fatalf("the node returned %s", answer)
	}
	drop := map[string]any{"environment": "pack", "generation": 1, "handles": []any{map[string]int{"id": 1, "count": 1}}}
	if err := host.peer.Notify(&wire.Message{Method: methodHandleDrop, Params: wire.Params(drop)}, nil); err != nil {
		t.Fatal(err)
	}
	if result, _ := host.ask(methodHandleSettle, settle); string(result) != `{"settled":true}` {
		t.Errorf("the worker answered %s", result)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the object is still there: %v", err)
	}

	computes, ended := marker(t), make(chan struct{})
	call("Block", computes, func(*wire.Message, []byte, error) { close(ended) })
	eventually(t, "the node", func() bool {
		_, err := os.Stat(computes)
		return err == nil
	})
	if result, _ := host.ask(methodHandleSettle, settle); string(result) != `{"settled":false}` {
		t.Errorf("a worker that computes answered %s", result)
	}
	select {
	case <-ended:
		t.Error("the answer waited for the node")
	default:
	}
}

func TestAnAdapterHearsWhatBecomesOfItsWorkers(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	host.ask("comfyui.scan", question{Environment: "pack"})
	host.hearWorker(Starting)
	host.hearWorker(Busy)
	host.ask(api.MethodStop, api.StopParams{Environment: "pack"})
	host.hearWorker(Stopping)
	host.hearWorker(Gone)
}

func TestLinesOfAllWorkersReachTheAdapterThatAsks(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	host.ask(methodComfyUILogs, map[string]any{})
	words := []byte(`{"text":"said by a node"}`)
	speak := &wire.Message{Method: api.MethodCall, Params: wire.Params(question{Environment: "pack", Node: "Speak", Encoding: "json"})}
	if _, _, err := host.peer.Request(testContext(t), speak, words); err != nil {
		t.Fatal(err)
	}
	host.hear("the worker's line", func(message *wire.Message) bool {
		var line api.LogLine
		return message.Method == api.NotificationLog && message.Call == 0 && json.Unmarshal(message.Params, &line) == nil && line.Line == "said by a node"
	})
}

func TestAScanMayTakeLongerThanAnOrdinaryStart(t *testing.T) {
	options := newTestOptions(t)
	options.Start = time.Millisecond
	startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	_, _, err := host.peer.Request(testContext(t), &wire.Message{Method: "comfyui.scan", Params: wire.Params(question{Environment: "pack"})}, pythonValue("null"))
	wireError(t, err, wire.KindStartFailed)
	if _, value := host.ask("comfyui.scan", question{Environment: "pack", StartMS: waitLong.Milliseconds()}); !strings.Contains(value, `"Echo"`) {
		t.Errorf("the pack is described as %s", value)
	}
}

func TestACancelledNodeThatGoesOnCostsItsWorkerAfterTheDeadline(t *testing.T) {
	options := newTestOptions(t)
	options.CancelDeadline = 100 * time.Millisecond
	client := startDaemon(t, options).connect()
	mustCall(t, client, "Echo", nil)
	ctx, cancel := contextWithCancel(t)
	path := marker(t)
	call := begin(ctx, client, api.Call{Node: "Block", Inputs: map[string]any{"marker": path}})
	pid := atoi(t, awaitFile(t, path))
	cancel()
	if failure := wireError(t, call.wait(t), wire.KindStopped); !strings.Contains(failure.Message, "cancel_deadline") {
		t.Errorf("the call's error is %v", failure)
	}
	awaitEnd(t, pid, waitLong)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d, expected 2", result.Generation)
	}
	if worker := onlyWorker(t, client, "pack"); worker.Crashes != 0 {
		t.Errorf("it counts as %d crashes", worker.Crashes)
	}
}

func TestWhatDiffersBetweenAHostAndItsWorkerIsInTheStatus(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	facts := map[string]any{
		"args":      map[string]any{"disable_metadata": true, "fp8_e4m3fn_unet": true, "deterministic": true},
		"attention": "sub_quad",
	}
	host := connectAdapter(t, options, facts)
	report := map[string]any{
		"flags":     map[string]any{"disable_metadata": true, "fp8_e4m3fn_unet": false},
		"skipped":   map[string]string{"deterministic": "this ComfyUI has no such flag"},
		"attention": "pytorch",
		"pager":     map[string]string{"outcome": "ledger", "reason": "there is no GPU"},
		"missing":   []map[string]string{{"name": "comfy.utils.PROGRESS_BAR_HOOK", "without": "no bars"}},
	}
	encoded, err := json.Marshal(map[string]any{"method": notificationComfyReady, "params": report})
	if err != nil {
		t.Fatal(err)
	}
	reply, _, err := host.peer.Request(testContext(t), &wire.Message{Method: api.MethodCall, Params: wire.Params(question{
		Environment: "pack", Node: "Tell", Encoding: "json",
	})}, encoded)
	if err != nil {
		t.Fatalf("telling: %v (%v)", err, reply)
	}
	worker := onlyWorker(t, daemon.connect(), "pack")
	if worker.Mirrored == nil {
		t.Fatal("the status has nothing of it")
	}
	want := []api.Difference{
		{Name: "flag fp8_e4m3fn_unet", Host: "true", Worker: "false"},
		{Name: "attention", Host: "sub_quad", Worker: "pytorch"},
	}
	if difference := cmp.Diff(want, worker.Mirrored.Differences); difference != "" {
		t.Errorf("differences (-want +got):\n%s", difference)
	}
	if worker.Mirrored.HostHash == "" || worker.Mirrored.HostHash == worker.Mirrored.WorkerHash {
		t.Errorf("the hashes are %q and %q", worker.Mirrored.HostHash, worker.Mirrored.WorkerHash)
	}
	if worker.Mirrored.Pager != (api.PagerOutcome{Outcome: "ledger", Reason: "there is no GPU"}) {
		t.Errorf("the pager is %+v", worker.Mirrored.Pager)
	}
	var lines []string
	if err := daemon.connect().Logs(testContext(t), api.LogsParams{Environment: "pack", Lines: 100}, func(line api.LogLine) {
		lines = append(lines, line.Line)
	}); err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []string{
		"flag fp8_e4m3fn_unet differs from the host's: true there, false here",
		"the host's deterministic is not in force: this ComfyUI has no such flag",
		"this ComfyUI has no comfy.utils.PROGRESS_BAR_HOOK: no bars",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, wanted) }) {
			t.Errorf("the log lacks %q:\n%s", wanted, strings.Join(lines, "\n"))
		}
	}
}

// A dropdown's values, or a route that is long in coming, are no computation: memory can be asked back meanwhile.
func TestAWorkerThatOnlyAnswersAQuestionComputesNothingForTheMemoryAccounts(t *testing.T) {
	options := newTestOptions(t)
	running := startDaemon(t, options)
	host := connectAdapter(t, options, nil)
	type asked struct {
		question
		Function string `json:"function,omitempty"`
	}
	start := func(method, node, function, value, marker string) (answered chan struct{}) {
		answered = make(chan struct{})
		message := &wire.Message{Method: method, Params: wire.Params(asked{question{Environment: "pack", Node: node}, function})}
		if _, err := host.peer.Start(message, pythonValue(fmt.Sprintf(value, `{"m":{"name":"a","marker":"`+marker+`"}}`)), func(reply *wire.Message, _ []byte, err error) {
			if err != nil || reply.Error != nil {
				t.Errorf("%s: %v %v", method, err, reply)
			}
			close(answered)
		}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the start of "+method, func() bool {
			_, err := os.Stat(marker + ".a")
			return err == nil
		})
		return answered
	}
	end := func(marker string, answered chan struct{}) {
		if err := os.WriteFile(marker+".b", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-answered
	}
	stands := func(state State, phase memory.Phase) {
		t.Helper()
		d := running.daemon
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, s := range d.allSessions() {
			if p := s.places["pack"]; p != nil {
				if w := p.current; w.record.State != state || w.told != phase {
					t.Errorf("the worker is %s, and the accounts know it as %s; want %s and %s", w.record.State, w.told, state, phase)
				}
				return
			}
		}
		t.Error("there is no worker")
	}
	question, call := marker(t), marker(t)
	asks := start("comfyui.ask", "Strict", "VALIDATE_INPUTS", `{"m":{"inputs":%s}}`, question)
	stands(Busy, memory.Ready)
	calls := start(api.MethodCall, "Meet", "run", "%s", call)
	stands(Busy, memory.Busy)
	end(call, calls)
	stands(Busy, memory.Ready)
	end(question, asks)
	stands(Ready, memory.Ready)
}
