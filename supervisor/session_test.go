//go:build unix

package supervisor

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func host() api.Options {
	return api.Options{Role: api.RoleHost, Name: "host in the test", Environ: []string{"PATH=" + os.Getenv("PATH"), "HOST_VARIABLE=1"}}
}

func TestAHostThatComesBackWithItsTokenFindsItsWorkersWarm(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	first := connectAs(t, options, host())
	before := mustCall(t, first, "Echo", nil)
	first.Close()
	again := host()
	again.Token = first.Hello.Token
	second := connectAs(t, options, again)
	if second.Hello.Session != first.Hello.Session || second.Hello.Token != first.Hello.Token {
		t.Errorf("the session changed: %+v, %+v", first.Hello, second.Hello)
	}
	if after := mustCall(t, second, "Echo", nil); after.PythonPID != before.PythonPID {
		t.Errorf("the worker changed: %+v, %+v", before.CallResult, after.CallResult)
	}
}

func TestAHostWithoutItsTokenHasReplacedItsProgramAndLosesItsWorkersAtOnce(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	first := connectAs(t, options, host())
	before := mustCall(t, first, "Echo", nil)
	second := connectAs(t, options, host())
	if second.Hello.Session == first.Hello.Session {
		t.Error("the session was kept")
	}
	awaitEnd(t, before.PythonPID, waitLong)
	select {
	case <-first.Ended():
	case <-time.After(waitLong):
		t.Error("the old connection was kept")
	}
	if after := mustCall(t, second, "Echo", nil); after.PythonPID == before.PythonPID || after.Generation != 1 {
		t.Errorf("got %+v", after.CallResult)
	}
}

func TestAHostThatDoesNotComeBackInTimeLosesItsWorkers(t *testing.T) {
	options := newTestOptions(t)
	options.Reconnect = 100 * time.Millisecond
	startDaemon(t, options)
	client := connectAs(t, options, host())
	before := mustCall(t, client, "Echo", nil)
	client.Close()
	awaitEnd(t, before.PythonPID, waitLong)
}

func TestAHostThatSaysGoodbyeLosesItsWorkersAtOnce(t *testing.T) {
	options := newTestOptions(t)
	options.Reconnect = time.Hour
	startDaemon(t, options)
	client := connectAs(t, options, host())
	before := mustCall(t, client, "Echo", nil)
	if err := client.Goodbye(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, before.PythonPID, waitLong)
	select {
	case <-client.Ended():
	case <-time.After(waitLong):
		t.Error("the connection was kept")
	}
	again := host()
	again.Token = client.Hello.Token
	if next := connectAs(t, options, again); next.Hello.Session == client.Hello.Session {
		t.Error("the session was kept")
	}
}

func TestAHostFindsItsWorkersWarmAfterTheSupervisorWasKilled(t *testing.T) {
	options := newTestOptions(t)
	first := startSeparateDaemon(t, options)
	client := connectAs(t, options, host())
	before := mustCall(t, client, "Echo", nil)
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	<-client.Ended()
	second := startDaemon(t, options)
	again := host()
	again.Token = client.Hello.Token
	returned := connectAs(t, options, again)
	if returned.Hello.Session != client.Hello.Session {
		t.Errorf("the session changed: %s, %s", client.Hello.Session, returned.Hello.Session)
	}
	if after := mustCall(t, returned, "Echo", nil); after.PythonPID != before.PythonPID {
		t.Errorf("the worker changed: %+v, %+v", before.CallResult, after.CallResult)
	}
	status, err := second.connect().Status(testContext(t), api.StatusParams{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(status.Sessions, func(s api.Session) bool { return s.ID == client.Hello.Session && s.PID == os.Getpid() }) {
		t.Errorf("status shows %+v", status.Sessions)
	}
}

func TestAHostsWorkersStartFromTheEnvironmentItHadWhenItRegistered(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	result := mustCall(t, connectAs(t, options, host()), "Where", nil)
	var value []struct {
		Environ map[string]string `json:"environ"`
	}
	if err := result.Decode(&value); err != nil {
		t.Fatal(err)
	}
	environ := value[0].Environ
	if environ["HOST_VARIABLE"] != "1" || environ["RECORDED"] != "" {
		t.Errorf("got %v", environ)
	}
}

func TestAClientOfAnotherPIDNamespaceIsRefusedWithThatReason(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	for _, seen := range []int{0, os.Getpid() + 1} { // 0 is what the kernel tells about namespaces beside ours
		_, err := daemon.daemon.identify(credentials{pid: seen, uid: os.Geteuid()}, api.HelloParams{PID: os.Getpid()})
		if failure := wireError(t, err, wire.KindBadRequest); !strings.Contains(failure.Message, "PID namespace") || failure.Data.Remedy == "" {
			t.Errorf("got %v", failure)
		}
	}
}

func TestAClientThatLiesAboutItsStartIsRefused(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	_, err := daemon.daemon.identify(credentials{pid: os.Getpid(), uid: os.Geteuid()}, api.HelloParams{PID: os.Getpid(), StartTime: "1"})
	wireError(t, err, wire.KindBadRequest)
	self, err := spawn.Self()
	if err != nil {
		t.Fatal(err)
	}
	process, err := daemon.daemon.identify(credentials{pid: os.Getpid(), uid: os.Geteuid()}, api.HelloParams{PID: os.Getpid(), StartTime: self.StartTime})
	if err != nil || process != self {
		t.Errorf("got %v, %v", process, err)
	}
}

func TestAForeignUserIsToldApart(t *testing.T) {
	if sameUser(credentials{uid: os.Geteuid() + 1}) || !sameUser(credentials{uid: os.Geteuid()}) {
		t.Error("users are not told apart")
	}
}

// dialRaw connects without introducing itself.
func dialRaw(t *testing.T, options testOptions) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: options.config().Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendRaw sends one message with a body.
func sendRaw(t *testing.T, conn net.Conn, message wire.Message, body ...byte) {
	t.Helper()
	frame, err := wire.EncodeMessage(&message, body)
	if err != nil {
		t.Fatal(err)
	}
	content, err := wire.AppendFrame(nil, frame)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(content); err != nil {
		t.Fatal(err)
	}
}

func helloRaw(t *testing.T, conn net.Conn) {
	t.Helper()
	self, err := spawn.Self()
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, conn, wire.Message{ID: 1, Method: api.MethodHello, Params: wire.Params(api.HelloParams{
		Protocol: wire.ProtocolVersion, Role: api.RoleOperator, PID: os.Getpid(), StartTime: self.StartTime, Owner: strings.Repeat("0", 32), Name: "raw",
	})})
	frame, err := wire.ReadFrame(conn)
	if err != nil {
		t.Fatal(err)
	}
	if message, err := wire.DecodeMessage(frame.Header); err != nil || message.Error != nil {
		t.Fatalf("hello was answered with %s, %v", frame.Header, err)
	}
}

func TestAnythingBeforeHelloIsRefusedAndEndsTheConnection(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	for name, message := range map[string]wire.Message{
		"a call":             {ID: 1, Method: api.MethodCall, Params: json.RawMessage(`{"environment":"pack","node":"Echo"}`)},
		"nonsense":           {ID: 1, Method: api.MethodHello, Params: json.RawMessage(`[]`)},
		"another protocol":   {ID: 1, Method: api.MethodHello, Params: json.RawMessage(`{"protocol":99,"role":"host"}`)},
		"an unknown role":    {ID: 1, Method: api.MethodHello, Params: wire.Params(api.HelloParams{Protocol: 1, Role: "king", PID: os.Getpid(), Owner: strings.Repeat("0", 32)})},
		"a missing owner ID": {ID: 1, Method: api.MethodHello, Params: wire.Params(api.HelloParams{Protocol: 1, Role: api.RoleHost, PID: os.Getpid()})},
	} {
		conn := dialRaw(t, options)
		sendRaw(t, conn, message)
		frame, err := wire.ReadFrame(conn)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		reply, err := wire.DecodeMessage(frame.Header)
		if err != nil || reply.Error == nil || reply.Error.Data.Kind != wire.KindBadRequest {
			t.Errorf("%s was answered with %s", name, frame.Header)
		}
		if _, err := wire.ReadFrame(conn); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
	}
}

func TestAClientThatNeverReadsIsDroppedAndHarmsNobody(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	other := daemon.connect()
	mustCall(t, other, "Echo", nil)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	events := make(chan api.Event, 1)
	following := daemon.connect()
	go func() {
		_, _ = following.Events(testContext(t), api.EventsParams{Follow: true}, func(event api.Event) {
			if event.Kind == "client.dropped" {
				select {
				case events <- event:
				default:
				}
			}
		})
	}()
	text := strings.Repeat("x", 32<<10)
	frame, err := wire.EncodeMessage(&wire.Message{ID: 2, Method: "no such method " + text[:100]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := wire.AppendFrame(nil, frame)
	if err != nil {
		t.Fatal(err)
	}
	flood := []byte(strings.Repeat(string(content), 1000))
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		for { // answers pile up until the supervisor has had enough
			if _, err := conn.Write(flood); err != nil {
				return
			}
		}
	}()
	slowest := time.Duration(0)
	for done := false; !done; {
		select {
		case <-flooding:
			done = true
		default:
		}
		begun := time.Now()
		mustCall(t, other, "Echo", nil)
		slowest = max(slowest, time.Since(begun))
	}
	select {
	case event := <-events:
		if event.Cause != errSlowClient.Error() {
			t.Errorf("got %+v", event)
		}
	case <-time.After(waitLong):
		t.Error("no event tells that the client was dropped")
	}
	t.Logf("the slowest call of the other client took %s", slowest)
}

func TestAClientThatSendsRubbishIsDroppedAlone(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	for _, rubbish := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x00\x00\x00\x04\x00\x00\x00\x00null",
		"\x00\x00\x00\x10\x00\x00\x00\x00{\"jsonrpc\":\"1\"}\n",
		"\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x00\x00\x20",
	} {
		conn := dialRaw(t, options)
		if _, err := conn.Write([]byte(rubbish)); err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after %q: %v", rubbish, err)
		}
	}
	mustCall(t, daemon.connect(), "Echo", nil)
}

func TestTwoHundredConnectionsAreServed(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	for range 200 {
		connectOperator(t, options)
	}
	status, err := daemon.connect().Status(testContext(t), api.StatusParams{})
	if err != nil {
		t.Fatal(err)
	}
	if clients := status.Sessions[0].Clients; clients != 201 {
		t.Errorf("the operator's session has %d clients, expected 201", clients)
	}
}
