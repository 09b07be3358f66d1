package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// ErrNotRunning is returned by Connect when no supervisor listens and it was not told to start one.
var ErrNotRunning = errors.New("no supervisor is running")

// Options say which supervisor a client wants and who it is.
type Options struct {
	// Socket is the supervisor's address: a path, or a pipe's name on Windows.
	Socket string
	// Role is RoleOperator unless given.
	Role string
	// Name is the program and its version, for people.
	Name string
	// Environ is the environment that an operator's workers fall back to, as os.Environ returns it.
	Environ []string
	// HostFacts describe the host as JSON; HostFactsFile is where to read them instead.
	HostFacts     json.RawMessage
	HostFactsFile string
	// ComfyUI is the folder of the host's ComfyUI, if there is one.
	ComfyUI string
	// Token reconnects to an earlier session of this process.
	Token string
	// Start says how to start a supervisor when none listens; nil: do not.
	Start *Launch
}

// Client is a connection to a supervisor. Its methods may be called from several goroutines.
type Client struct {
	// Hello is what the supervisor said at the start.
	Hello HelloResult

	peer  *wire.Peer
	ended chan struct{} // closed when nothing is read any more
	files *receivedFiles

	mu            sync.Mutex
	notifications map[uint64]func(*wire.Message) // by the request that they belong to
}

// Connect reaches a supervisor, starting it first when options say how, and introduces this process.
func Connect(ctx context.Context, options Options) (*Client, error) {
	conn, err := Dial(ctx, options.Socket)
	if err != nil && options.Start != nil {
		_, startErr := options.Start.Run(ctx)
		if conn, err = Dial(ctx, options.Socket); err != nil && startErr != nil && strings.Contains(startErr.Error(), "already running") {
			conn, err = dialSoon(ctx, options.Socket)
		}
		if err != nil && startErr != nil {
			return nil, startErr
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrNotRunning, options.Socket, err)
	}
	client := &Client{
		ended:         make(chan struct{}),
		files:         newReceivedFiles(),
		notifications: make(map[uint64]func(*wire.Message)),
	}
	client.peer = wire.NewPeer(wire.NewStream(conn), client)
	client.files.release = client.released
	go func() {
		defer close(client.ended)
		_ = client.peer.Run() // its error is what pending requests end with
	}()
	hello, err := options.hello()
	if err != nil {
		client.Close()
		return nil, err
	}
	if err := client.request(ctx, MethodHello, hello, &client.Hello); err != nil {
		client.Close()
		return nil, fmt.Errorf("introducing this process to the supervisor at %s: %w", options.Socket, err)
	}
	return client, nil
}

// dialSoon reaches a supervisor that somebody else has just started: a socket that is not there yet has no event.
func dialSoon(ctx context.Context, socket string) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := Dial(ctx, socket)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (o Options) hello() (HelloParams, error) {
	var owner [16]byte
	if _, err := rand.Read(owner[:]); err != nil {
		return HelloParams{}, fmt.Errorf("making a client ID: %w", err)
	}
	startTime, err := ownStartTime()
	if err != nil {
		return HelloParams{}, err
	}
	hello := HelloParams{
		Protocol:      wire.ProtocolVersion,
		Role:          o.Role,
		PID:           os.Getpid(),
		StartTime:     startTime,
		Token:         o.Token,
		Owner:         hex.EncodeToString(owner[:]),
		Name:          o.Name,
		Environ:       environMap(o.Environ),
		HostFacts:     o.HostFacts,
		HostFactsFile: o.HostFactsFile,
		ComfyUI:       o.ComfyUI,
	}
	if hello.Role == "" {
		hello.Role = RoleOperator
	}
	return hello, nil
}

// environMap turns NAME=VALUE strings into a map; of a name given twice, the last counts.
func environMap(environ []string) map[string]string {
	values := make(map[string]string, len(environ))
	for _, pair := range environ {
		for i := 1; i < len(pair); i++ { // from 1: Windows has names that begin with =
			if pair[i] == '=' {
				values[pair[:i]] = pair[i+1:]
				break
			}
		}
	}
	return values
}

// Goodbye ends this host's session and with it the connection: its workers go at once, where after a Close alone the
// supervisor waits for the host to come back.
func (c *Client) Goodbye() error {
	return c.peer.Notify(&wire.Message{Method: MethodGoodbye, Params: wire.Params(struct{}{})}, nil)
}

// Close ends the connection and waits for the client's goroutine.
func (c *Client) Close() error {
	err := c.peer.Close()
	<-c.ended
	c.files.closeAll()
	return err
}

// Ended is closed when the connection has ended.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// request sends a request and decodes its result, which may be nil.
func (c *Client) request(ctx context.Context, method string, params, result any) error {
	reply, body, err := c.peer.Request(ctx, &wire.Message{Method: method, Params: wire.Params(params)}, nil)
	if err != nil {
		return err
	}
	return decodeResult(method, reply, body, result)
}

// decodeResult decodes a reply's result, which is the body when it is large; result may be nil.
func decodeResult(method string, reply *wire.Message, body []byte, result any) error {
	if result == nil {
		return nil
	}
	content := []byte(reply.Result)
	var elsewhere InBody
	if len(body) > 0 && json.Unmarshal(content, &elsewhere) == nil && elsewhere.InBody {
		content = body
	}
	if err := json.Unmarshal(content, result); err != nil {
		return fmt.Errorf("decoding the result of %s: %w", method, err)
	}
	return nil
}

// Ping asks for a sign of life and returns how long it took.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := c.request(ctx, MethodPing, struct{}{}, nil)
	return time.Since(begin), err
}

// Status returns everything the supervisor knows.
func (c *Client) Status(ctx context.Context, params StatusParams) (*Status, error) {
	status := new(Status)
	return status, c.request(ctx, MethodStatus, params, status)
}

// Environments lists the environments that this session can use.
func (c *Client) Environments(ctx context.Context) ([]Environment, error) {
	list := []Environment{}
	for {
		var part EnvironmentsResult
		if err := c.request(ctx, MethodEnvironments, EnvironmentsParams{After: len(list)}, &part); err != nil {
			return nil, err
		}
		list = append(list, part.Environments...)
		if !part.More || len(part.Environments) == 0 {
			return list, nil
		}
	}
}

// Nodes starts an environment's worker, if none runs, and returns the contracts of its nodes.
func (c *Client) Nodes(ctx context.Context, environment string) (*NodesResult, error) {
	request := &wire.Message{Method: MethodNodes, Params: wire.Params(EnvironmentParams{Environment: environment})}
	reply, body, err := c.exchange(ctx, request, nil, func(*wire.Message) {})
	if err != nil {
		return nil, err
	}
	held := c.files.take(reply.Files)
	defer held.release()
	var result struct {
		NodesResult
		NodesInBody bool `json:"nodes_in_body"`
	}
	if err := json.Unmarshal(reply.Result, &result); err != nil {
		return nil, fmt.Errorf("decoding the nodes of %s: %w", environment, err)
	}
	if !result.NodesInBody {
		return &result.NodesResult, nil
	}
	if place := reply.BodyFile; place != nil {
		if body, err = (&Result{files: held.files}).read(place.Index, place.Offset, place.Length); err != nil {
			return nil, fmt.Errorf("reading the nodes of %s: %w", environment, err)
		}
	}
	content, err := EnvelopeJSON(body)
	if err == nil {
		err = json.Unmarshal(content, &result.NodesResult)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding the nodes of %s: %w", environment, err)
	}
	return &result.NodesResult, nil
}

// Stop ends workers; they are gone when it returns.
func (c *Client) Stop(ctx context.Context, params StopParams) ([]Worker, error) {
	var result StopResult
	err := c.request(ctx, MethodStop, params, &result)
	return result.Stopped, err
}

// Restart ends workers and starts their replacements, which are ready when it returns.
func (c *Client) Restart(ctx context.Context, params StopParams) ([]Worker, error) {
	var result StopResult
	err := c.request(ctx, MethodRestart, params, &result)
	return result.Stopped, err
}

// Release asks idle workers for memory and returns what each gave back.
func (c *Client) Release(ctx context.Context, params ReleaseParams) ([]Released, error) {
	var result ReleaseResult
	err := c.request(ctx, MethodRelease, params, &result)
	return result.Released, err
}

// Budget returns what the supervisor knows of the machine's memory.
func (c *Client) Budget(ctx context.Context) (*Budget, error) {
	budget := new(Budget)
	return budget, c.request(ctx, MethodBudget, struct{}{}, budget)
}

// Reset forgets the crashes of workers, so that the next call starts one at once.
func (c *Client) Reset(ctx context.Context, params StopParams) ([]Worker, error) {
	var result StopResult
	err := c.request(ctx, MethodReset, params, &result)
	return result.Stopped, err
}

// Shutdown ends the supervisor with all its workers. It returns when nothing of them is left, which is when the
// supervisor closes the connection.
func (c *Client) Shutdown(ctx context.Context, force bool) error {
	if err := c.request(ctx, MethodShutdown, ShutdownParams{Force: force}, nil); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the supervisor to end: %w", ctx.Err())
	}
}

// Logs hands an environment's log lines to line, in order, on the reading goroutine, and returns when there are no
// more: with params.Follow, when the context ends.
func (c *Client) Logs(ctx context.Context, params LogsParams, line func(LogLine)) error {
	return c.stream(ctx, MethodLogs, params, nil, func(message *wire.Message) {
		var entry LogLine
		if message.Method == NotificationLog && json.Unmarshal(message.Params, &entry) == nil {
			line(entry)
		}
	})
}

// Events hands events to event, in order, on the reading goroutine, and returns when there are no more: with
// params.Follow, when the context ends.
func (c *Client) Events(ctx context.Context, params EventsParams, event func(Event)) (EventsResult, error) {
	var result EventsResult
	err := c.stream(ctx, MethodEvents, params, &result, func(message *wire.Message) {
		var entry Event
		if message.Method == NotificationEvent && json.Unmarshal(message.Params, &entry) == nil {
			event(entry)
		}
	})
	return result, err
}

// stream sends a request whose answer is preceded by notifications.
func (c *Client) stream(ctx context.Context, method string, params, result any, notified func(*wire.Message)) error {
	reply, body, err := c.exchange(ctx, &wire.Message{Method: method, Params: wire.Params(params)}, nil, notified)
	if err != nil {
		return err
	}
	return decodeResult(method, reply, body, result)
}

// cancelGrace is how long a cancelled request may take to answer before it is forgotten.
const cancelGrace = 10 * time.Second

// exchange sends a request, hands on what is notified about it and returns the reply. When the context ends the
// request is cancelled, and its reply awaited for a while: what it holds must come back to be released. The files of a
// reply that is no error are the caller's to take and release.
func (c *Client) exchange(ctx context.Context, request *wire.Message, body []byte, notified func(*wire.Message)) (*wire.Message, []byte, error) {
	type answer struct {
		message *wire.Message
		body    []byte
		err     error
	}
	answers := make(chan answer, 1)
	var abandoned atomic.Bool
	discard := func() { // an answer that nobody waits for any more must not keep its files
		select {
		case late := <-answers:
			if late.message != nil {
				c.files.take(late.message.Files).release()
			}
		default:
		}
	}
	var registered uint64
	id, err := c.peer.StartPrepared(request, body, func(id uint64) {
		registered = id
		c.mu.Lock()
		c.notifications[id] = notified
		c.mu.Unlock()
	}, func(message *wire.Message, body []byte, err error) {
		if message != nil {
			c.files.receive(message.Files)
		}
		answers <- answer{message, body, err}
		if abandoned.Load() {
			discard()
		}
	})
	defer func() {
		c.mu.Lock()
		delete(c.notifications, registered)
		c.mu.Unlock()
	}()
	if err != nil {
		return nil, nil, err
	}
	settle := func(got answer) (*wire.Message, []byte, error) {
		if got.err != nil && got.message != nil { // an exception's arguments are Python's and of no use here
			c.files.take(got.message.Files).release()
		}
		return got.message, got.body, got.err
	}
	select {
	case got := <-answers:
		return settle(got)
	case <-ctx.Done():
	}
	if err := c.peer.Notify(&wire.Message{Method: MethodCancel, Call: id}, nil); err != nil {
		return nil, nil, ctx.Err()
	}
	timer := time.NewTimer(cancelGrace)
	defer timer.Stop()
	select {
	case got := <-answers:
		return settle(got)
	case <-timer.C:
		abandoned.Store(true)
		discard()
		return nil, nil, ctx.Err()
	}
}

// HandleRequest answers what the supervisor asks of a client.
func (c *Client) HandleRequest(request *wire.Message, _ []byte, reply wire.ReplyFunc) {
	answer := &wire.Message{}
	switch request.Method {
	case MethodPing:
	case MethodMemoryInventory:
		answer.Result = wire.Params(InventoryResult{Owned: []wire.File{}, Holds: c.files.holds()})
	default:
		answer.Error = wire.Errorf(wire.KindUnknownMethod, "this client answers no %q", request.Method)
	}
	_ = reply(answer, nil) // a connection that ended is noticed where it is read
}

// HandleNotification hands a notification to the request that it belongs to.
func (c *Client) HandleNotification(notification *wire.Message, _ []byte) {
	c.mu.Lock()
	notified := c.notifications[notification.Call]
	c.mu.Unlock()
	if notified != nil {
		notified(notification)
	}
}

// released tells the supervisor that files are not referred to any more.
func (c *Client) released(files []FileCount) {
	_ = c.peer.Notify(&wire.Message{Method: MethodMemoryReleased, Params: wire.Params(ReleasedParams{Files: files})}, nil)
	// Without a connection there is nobody to tell: the supervisor drops what a client held when it ends.
}
