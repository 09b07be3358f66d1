package supervisor

import (
	"encoding/json"
	"fmt"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// Methods between the supervisor and workers, besides those of package api.
const (
	methodLoad         = "load"
	methodStacks       = "stacks"
	methodInstanceDrop = "instance.drop"
	methodHandleDrop   = "handle.drop"
	// methodHandleSettle is a host's request: the worker answers once it has let go of what the host has dropped before.
	methodHandleSettle = "handle.settle"

	notificationHello    = "hello"
	notificationPhase    = "phase"
	notificationProgress = "progress"
)

// workerHandler takes what a worker sends of its own accord, on the worker's reading goroutine. What it says counts
// only as long as its generation is the current one: a call that has ended is unknown here.
type workerHandler struct {
	daemon *Daemon
	worker *worker
}

// HandleRequest serves memory files and passes on what is meant for the host's thread that waits in the call.
func (h *workerHandler) HandleRequest(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	switch {
	case request.Method == api.MethodMemoryReserve:
		h.daemon.reserve(h.worker.party, request, reply)
	case request.Method == api.MethodPing:
		_ = reply(&wire.Message{}, nil) // a worker that is gone is noticed where it is read
	case request.Method == budget.MethodLease:
		h.lease(request, reply)
	case request.Lane == wire.LaneCaller:
		h.askCaller(request, body, reply)
	case isComfyUI(request.Method):
		h.askHost(request, body, reply)
	default:
		refuse(reply, wire.Errorf(wire.KindUnknownMethod, "the supervisor knows no method %q for workers", request.Method))
	}
}

// askCaller passes a worker's request to the client whose call it belongs to, and the answer back.
func (h *workerHandler) askCaller(request *wire.Message, body []byte, reply wire.ReplyFunc) {
	d, w := h.daemon, h.worker
	call := d.liveCall(w, request.Call)
	if call == nil {
		refuse(reply, wire.Errorf(wire.KindBadRequest, "%s: call %d is not waited for any more", request.Method, request.Call))
		return
	}
	h.askClient(call.client, call.id, wire.LaneCaller, request, body, reply)
}

// askClient passes a worker's request to a client, and the answer back.
func (h *workerHandler) askClient(target *client, id uint64, lane string, request *wire.Message, body []byte, reply wire.ReplyFunc) {
	d, w := h.daemon, h.worker
	shipment, err := d.files.Receive(w.party, request.Files)
	if err != nil {
		refuse(reply, wire.Errorf(wire.KindValue, "%s: taking its values: %v", request.Method, err))
		return
	}
	_, err = target.peer.Start(&wire.Message{
		Method: request.Method, Params: request.Params, Lane: lane, Call: id, Generation: w.generation,
		DeadlineMilliseconds: request.DeadlineMilliseconds, Files: shipment.Deliver(target.party), BodyFile: request.BodyFile,
	}, body, func(answer *wire.Message, body []byte, err error) {
		if answer == nil {
			refuse(reply, wire.Errorf(wire.KindCancelled, "%s: the caller is gone", request.Method))
			return
		}
		shipment, err := d.files.Receive(target.party, answer.Files)
		if err != nil {
			refuse(reply, wire.Errorf(wire.KindValue, "%s: taking the answer: %v", request.Method, err))
			return
		}
		_ = reply(&wire.Message{Result: answer.Result, Error: answer.Error, Files: shipment.Deliver(w.party), BodyFile: answer.BodyFile}, body)
	})
	if err != nil {
		refuse(reply, wire.Errorf(wire.KindCancelled, "%s: the caller is gone", request.Method))
	}
}

// HandleNotification takes what needs no answer; what makes no sense is ignored.
func (h *workerHandler) HandleNotification(notification *wire.Message, body []byte) {
	d, w := h.daemon, h.worker
	switch notification.Method {
	case notificationProgress:
		h.progress(notification)
	case notificationPhase:
		h.phase(notification)
	case notificationHello: // spawn has checked who it is; from here on the interpreter runs our program
		d.setPhase(w, "loading the pack")
	case api.MethodMemoryReturn:
		d.returned(w.party, notification)
	case api.MethodMemoryReleased:
		d.released(w.party, notification)
	case notificationComfyReady:
		d.comfyReady(w, notification)
	default:
		if h.hearMemory(notification) {
			return
		}
		if isComfyUI(notification.Method) {
			h.passMessage(notification, body)
		}
	}
}

// HandleStray gives back the files of a reply that comes too late.
func (h *workerHandler) HandleStray(reply *wire.Message) { h.daemon.stray(h.worker.party, reply) }

// progress is a sign of life of its call and goes on to the client.
func (h *workerHandler) progress(notification *wire.Message) {
	call := h.daemon.heard(h.worker, notification.Call)
	if call == nil {
		return
	}
	if h.worker.leases.Load() {
		h.daemon.accounts.Progress(h.worker.account())
	}
	_ = call.client.peer.Notify(&wire.Message{
		Method: api.NotificationProgress, Params: notification.Params, Call: call.id, Generation: h.worker.generation,
	}, nil) // a client that is gone is noticed by its reader
}

func (h *workerHandler) phase(notification *wire.Message) {
	var phase struct {
		Phase  string `json:"phase"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(notification.Params, &phase) != nil {
		return
	}
	text := phase.Phase
	if phase.Detail != "" {
		text = fmt.Sprintf("%s: %s", phase.Phase, phase.Detail)
	}
	h.daemon.setPhase(h.worker, text)
}

func (d *Daemon) setPhase(w *worker, phase string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.record.State == Starting {
		w.phase = phase
	}
}

// liveCall finds a call that a worker speaks of and that its client still waits for.
func (d *Daemon) liveCall(w *worker, id uint64) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := w.byID[id]
	if call == nil || call.answered {
		return nil
	}
	return call
}
