package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// oddParams are parameters that no method expects.
var oddParams = []string{
	``, `null`, `[]`, `"x"`, `-1`, `1e999`, `{}`, `{"environment":7}`, `{"environment":"pack","node":{}}`, `{"environment":"nowhere","node":"x"}`,
	`{"environment":"pack","node":"Echo","encoding":"smoke signals"}`, `{"environment":"pack","node":"Echo","silence_ms":-9223372036854775808}`,
	`{"files":[{"id":"nobody-1","count":-5},{"id":7},3]}`, `{"files":[{"id":"00000000000000000000000000000000-1","count":9223372036854775807}]}`,
	`{"bytes":-1}`, `{"bytes":9223372036854775807,"held":9223372036854775807}`, `{"bytes":"many"}`,
	`{"since":"yesterday","environment":"pack"}`, `{"level":"loud","environment":"pack"}`, `{"handles":[1,"x",{}],"environment":"pack"}`,
	strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000),
}

func TestEveryMethodAnswersOddParametersOnceAndHarmsNobody(t *testing.T) {
	options := newTestOptions(t)
	options.CrashCount = 0
	daemon := startDaemon(t, options)
	mustCall(t, daemon.connect(), "Echo", nil)
	names := append(slices.Collect(maps.Keys(methods)), api.MethodCall, api.MethodNodes, api.MethodPing, api.MethodHello, api.MethodCancel,
		api.MethodMemoryReserve, api.MethodMemoryReturn, api.MethodMemoryReleased, methodInstanceDrop, methodHandleDrop, methodHandleSettle,
		"comfyui.scan", methodComfyUIFolders, methodComfyUILogs, "no.such.method", "")
	names = slices.DeleteFunc(names, func(name string) bool { return name == api.MethodShutdown || name == api.MethodRestart || name == "" })
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	wanted := make(map[uint64]string)
	id := uint64(10)
	for _, name := range names {
		for _, params := range oddParams {
			if name == api.MethodStop && (!strings.Contains(params, `"environment"`) || strings.Contains(params, `"pack"`)) {
				continue // the ordinary meaning, or that of no parameters
			}
			message := wire.Message{Method: name, Params: json.RawMessage(params)}
			sendRaw(t, conn, message) // as a notification
			id++
			message.ID = id
			wanted[id] = fmt.Sprintf("%s with %.60s", name, params)
			sendRaw(t, conn, message)
		}
	}
	sendRaw(t, conn, wire.Message{ID: 9, Method: api.MethodPing})
	for pong := false; len(wanted) > 0; {
		message := readMessage(t, conn)
		switch {
		case message.Method != "": // events, logs, files that come back
		case message.ID == 9:
			pong = true
		case wanted[message.ID] == "":
			t.Fatalf("an answer to %d, which nobody waits for (pong: %v): %+v", message.ID, pong, message)
		default:
			delete(wanted, message.ID)
		}
	}
	result := mustCall(t, daemon.connect(), "Echo", nil)
	if result.Generation != 1 {
		t.Errorf("the worker was replaced: generation %d", result.Generation)
	}
	if usage := daemon.daemon.files.Usage(); usage.Files != 0 {
		t.Errorf("memory files are kept: %+v", usage)
	}
}

func TestRepeatedReorderedAndStaleMessagesOfAClientChangeNothing(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	call := func(id uint64, node, inputs string) {
		sendRaw(t, conn, wire.Message{ID: id, Method: api.MethodCall, Generation: 99, // of a worker that never was
			Params: wire.Params(api.CallParams{Environment: "pack", Node: node, Encoding: "json"})}, []byte(inputs)...)
	}
	sendRaw(t, conn, wire.Message{Method: api.MethodCancel, Call: 5}) // before its call
	call(5, "Wait", `{"seconds":0.3}`)
	call(5, "Echo", `{}`) // again, while it runs
	sendRaw(t, conn, wire.Message{ID: 5, Result: json.RawMessage(`{}`)})
	sendRaw(t, conn, wire.Message{ID: 77, Error: wire.NewError(wire.KindInternal, "a reply to nothing")})
	if refused := readMessage(t, conn); refused.ID != 5 || refused.Error == nil || !strings.Contains(refused.Error.Message, "under way already") {
		t.Errorf("the call that was sent again: %+v", refused)
	}
	if answer := readMessage(t, conn); answer.ID != 5 || answer.Error != nil {
		t.Errorf("the call: %+v", answer)
	}
	sendRaw(t, conn, wire.Message{Method: api.MethodCancel, Call: 5}) // after its end
	call(5, "Echo", `{}`)                                             // the number is free again
	if answer := readMessage(t, conn); answer.ID != 5 || answer.Error != nil {
		t.Errorf("the call that was sent later: %+v", answer)
	}
	sendRaw(t, conn, wire.Message{Method: methodInstanceDrop, Generation: 99, Params: json.RawMessage(`{"environment":"pack","instance":"x"}`)})
	if worker := daemon.worker(); worker.State != string(Ready) || worker.Calls != 2 || worker.Depth != 0 {
		t.Errorf("status shows %+v", worker)
	}
}

func TestWhatAWorkerSaysOutOfTurnChangesNothing(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	var messages []any
	for _, id := range []uint64{1, 99, 1 << 40} { // of the load, which is answered, and of requests that were never made
		messages = append(messages, map[string]any{"jsonrpc": "2.0", "id": id, "result": map[string]any{"nodes": []any{}}})
	}
	for _, method := range []string{
		notificationHello, notificationPhase, notificationProgress, api.MethodMemoryReturn, api.MethodMemoryReleased, notificationComfyReady,
		"comfyui.message", "no.such.notification",
	} {
		for _, params := range oddParams[1:4] {
			messages = append(messages, map[string]any{"jsonrpc": "2.0", "method": method, "params": json.RawMessage(params), "call": 424242, "generation": 77})
		}
	}
	for index, method := range []string{api.MethodMemoryReserve, "no.such.request", "comfyui.host", "memory.ask"} {
		for number, params := range []string{`[]`, `{"bytes":-1}`, `{"bytes":1e300}`, `{"question":7}`} {
			messages = append(messages, map[string]any{"jsonrpc": "2.0", "id": 5000 + 10*index + number, "method": method, "params": json.RawMessage(params)},
				map[string]any{"jsonrpc": "2.0", "id": 6000 + 10*index + number, "method": method, "params": json.RawMessage(params), "lane": wire.LaneCaller, "call": 424242})
		}
	}
	if result := mustCall(t, client, "Say", map[string]any{"messages": messages}); string(result.Value) != `["said"]` {
		t.Errorf("got %s", result.Value)
	}
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Say", Inputs: map[string]any{"messages": []any{}, "double": true}})
	var failure *wire.Error
	if !errors.As(err, &failure) || failure.Message != "first" {
		t.Errorf("of two answers the call got %v", err)
	}
	if result := mustCall(t, client, "Echo", map[string]any{"x": 1}); result.Generation != 1 || string(result.Value) != `[{"x":1}]` {
		t.Errorf("got %+v", result)
	}
	if worker := daemon.worker(); worker.State != string(Ready) || worker.Depth != 0 || worker.Calls != 3 || len(worker.Nodes) == 0 {
		t.Errorf("status shows %+v", worker)
	}
	if usage := daemon.daemon.files.Usage(); usage.Files != 0 || usage.ReservedBytes != 0 {
		t.Errorf("memory files: %+v", usage)
	}
}

func TestAWorkerThatSendsWhatIsNoFrameIsEndedWithThatReason(t *testing.T) {
	options := newTestOptions(t)
	options.CrashCount = 0
	options.Backoff = nil
	client := startDaemon(t, options).connect()
	for name, text := range map[string]string{
		"an HTTP request": "GET / HTTP/1.1\r\n\r\n", "not JSON": "\x00\x00\x00\x04\x00\x00\x00\x00{{{{", "too large": strings.Repeat("\u00ff", 8),
		"not a message": "\x00\x00\x00\x04\x00\x00\x00\x00null", "torn": "\x00\x00\x00\x40\x00\x00\x00\x00{",
	} {
		_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Write", Inputs: map[string]any{"text": text}})
		failure := wireError(t, err, wire.KindWorkerDied)
		t.Logf("%s: %v", name, failure)
		if !strings.Contains(failure.Message, "SIGKILL: what it sent ") {
			t.Errorf("%s: the error does not say why it was killed: %v", name, failure)
		}
	}
	mustCall(t, client, "Echo", nil)
}

func TestAClientOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	// As an administrator might who means well.
	for path, mode := range map[string]os.FileMode{options.Runtime: 0o755, options.Runtime + "/..": 0o755, options.config().Socket: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		ended <- func() error {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 12345, 12345, 12345); errno != 0 {
				return errno
			}
			socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			file := os.NewFile(uintptr(socket), "socket")
			defer file.Close()
			if err := unix.Connect(socket, &unix.SockaddrUnix{Name: options.config().Socket}); err != nil {
				return err
			}
			if count, err := file.Read(make([]byte, 1)); count != 0 || !errors.Is(err, io.EOF) {
				return fmt.Errorf("it read %d bytes, %v", count, err)
			}
			return nil
		}()
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if log := daemon.log.String(); !strings.Contains(log, "refused a client of another user") || !strings.Contains(log, "12345") {
		t.Errorf("the log says\n%s", log)
	}
	mustCall(t, daemon.connect(), "Echo", nil)
}
