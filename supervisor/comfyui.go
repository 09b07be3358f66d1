package supervisor

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// What ComfyUI's adapter in a host and its other half in a worker say to each other passes through here without being
// understood: methods that begin with comfyuiPrefix, in both directions.
const (
	comfyuiPrefix = "comfyui."
	// methodComfyUIFolders is the host's notification that its folder registry has changed; later workers start with it.
	methodComfyUIFolders = comfyuiPrefix + "folders"
	// notificationComfyUIWorker tells a host that a worker of its session has another state.
	notificationComfyUIWorker = comfyuiPrefix + "worker"
	// methodComfyUILogs asks for the lines of all the session's workers, as log notifications that belong to no request.
	methodComfyUILogs = comfyuiPrefix + "logs"
)

// comfyuiParams are what the supervisor reads of a question's parameters.
type comfyuiParams struct {
	Environment string `json:"environment"`
	// IfAwake: a worker that does not run is not started for this; the answer then has awake = false.
	IfAwake bool `json:"if_awake,omitempty"`
	// StartMilliseconds is how long a worker that is started for this may take at least until it is ready: a pack that
	// is imported for the first time may have much to do. 0: the ordinary limit.
	StartMilliseconds int64 `json:"start_ms,omitempty"`
}

// awakeResult answers a question that would have needed a worker to be started.
type awakeResult struct {
	Awake bool `json:"awake"`
}

// acceptQuestion passes a host's question on to a worker's side lane; calls that compute do not hold it up.
func (d *Daemon) acceptQuestion(c *client, request *wire.Message, body []byte, reply wire.ReplyFunc) {
	var params comfyuiParams
	if err := json.Unmarshal(request.Params, &params); err != nil || params.Environment == "" {
		refuse(reply, wire.Errorf(wire.KindBadRequest, "%s needs an environment", request.Method))
		return
	}
	shipment, err := d.files.Receive(c.party, request.Files)
	if err != nil {
		refuse(reply, wire.Errorf(wire.KindValue, "taking the values of %s: %v", request.Method, err))
		return
	}
	if params.IfAwake && !d.awake(c.session, params.Environment) {
		shipment.Discard()
		_ = reply(&wire.Message{Result: wire.Params(awakeResult{})}, nil) // a client that is gone needs no answer
		return
	}
	d.admit(c.session, &call{
		client: c, id: request.ID, reply: reply, environment: params.Environment, node: request.Method,
		method: request.Method, lane: wire.LaneSide, params: request.Params, body: body, bodyFile: request.BodyFile,
		shipment: shipment, patience: time.Duration(params.StartMilliseconds) * time.Millisecond,
	})
}

// awake reports whether an environment's worker of a session takes calls right now.
func (d *Daemon) awake(s *session, environment string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := s.places[environment]
	return p != nil && (p.current.record.State == Ready || p.current.record.State == Busy)
}

// hearComfyUI takes a host's notification; other ones go to the worker that they name.
func (d *Daemon) hearComfyUI(c *client, notification *wire.Message) {
	if notification.Method != methodComfyUIFolders {
		d.passOn(c.session, notification)
		return
	}
	var params struct {
		Folders json.RawMessage `json:"folders"`
	}
	if json.Unmarshal(notification.Params, &params) != nil {
		return
	}
	d.mu.Lock()
	c.session.folders = params.Folders
	d.mu.Unlock()
}

// sessionFolders is the folder registry that a session's workers start with; Daemon.mu is held.
func (s *session) sessionFolders() json.RawMessage {
	if s.folders != nil {
		return s.folders
	}
	var state struct {
		Folders json.RawMessage `json:"folders"`
	}
	if len(s.hostState) == 0 || json.Unmarshal(s.hostState, &state) != nil {
		return nil
	}
	return state.Folders
}

// passMessage takes what a worker says to its host: in the order of the call that it belongs to, where it names one.
func (h *workerHandler) passMessage(notification *wire.Message, body []byte) {
	d, w := h.daemon, h.worker
	shipment, err := d.files.Receive(w.party, notification.Files)
	if err != nil {
		d.log.Warn().Err(err).Str("worker", w.id).Str("method", notification.Method).Msg("taking a message's memory files")
		return
	}
	target, id := h.target(notification.Call)
	if target == nil { // a call that is not waited for any more, or a host that is away
		shipment.Discard()
		return
	}
	_ = target.peer.Notify(&wire.Message{
		Method: notification.Method, Params: wire.Params(comfyuiParams{Environment: w.place.environment}), Call: id,
		Generation: w.generation, Files: shipment.Deliver(target.party), BodyFile: notification.BodyFile,
	}, body) // a client that is gone is noticed by its reader
}

// target is the client that a worker's message goes to, and its ID for the call.
func (h *workerHandler) target(id uint64) (*client, uint64) {
	if id != 0 {
		if call := h.daemon.heard(h.worker, id); call != nil && call.method == "" {
			return call.client, call.id
		}
	}
	return h.daemon.anyClient(h.worker.place.session), 0
}

// anyClient returns a connection of a session, nil when it has none.
func (d *Daemon) anyClient(s *session) *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range s.clients {
		return c
	}
	return nil
}

// askHost passes a worker's request to its host's process, and the answer back.
func (h *workerHandler) askHost(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	target := h.daemon.anyClient(h.worker.place.session)
	if target == nil {
		refuse(reply, wire.Errorf(wire.KindCancelled, "%s: the host is not connected", request.Method))
		return
	}
	h.askClient(target, 0, wire.LaneSide, request, body, reply)
}

// workerParams tell a host about one of its workers.
type workerParams struct {
	Environment string `json:"environment"`
	Generation  uint64 `json:"generation"`
	State       string `json:"state"`
	Cause       string `json:"cause,omitempty"`
}

// tellHost tells a session's host of an event in the life of one of its workers: what it holds of that worker may be
// worth nothing any more.
func (d *Daemon) tellHost(event api.Event) {
	state, ok := strings.CutPrefix(event.Kind, "worker.")
	if !ok {
		return
	}
	d.mu.Lock()
	var hosts []*client
	if s := d.sessions[event.Session]; s != nil && s.role == api.RoleHost {
		for c := range s.clients {
			hosts = append(hosts, c)
		}
	}
	d.mu.Unlock()
	for _, c := range hosts {
		_ = c.peer.Notify(&wire.Message{Method: notificationComfyUIWorker, Generation: event.Generation, Params: wire.Params(workerParams{
			Environment: event.Environment, Generation: event.Generation, State: state, Cause: event.Cause,
		})}, nil) // a client that is gone needs to know nothing
	}
}

// showHost passes a worker's line on to the hosts that want to see it. It waits for nobody: a host that reads too
// slowly misses lines, which the log has.
func (d *Daemon) showHost(s *session, line api.LogLine) {
	d.mu.Lock()
	var readers []*client
	for c := range s.clients {
		if c.wantsLogs {
			readers = append(readers, c)
		}
	}
	d.mu.Unlock()
	for _, c := range readers {
		if c.box.backlog() < outboxBytes/2 {
			_ = c.peer.Notify(&wire.Message{Method: api.NotificationLog, Params: wire.Params(line)}, nil)
		}
	}
}

// isComfyUI reports whether a method passes through.
func isComfyUI(method string) bool { return strings.HasPrefix(method, comfyuiPrefix) }
