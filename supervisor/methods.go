package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// method serves a request in a goroutine of its client; the context ends when the client cancels it or vanishes.
type method func(d *Daemon, ctx context.Context, c *client, request *wire.Message) (any, error)

// methods are the requests that may take their time.
var methods map[string]method

func init() { // here, since the functions lead back to the table
	methods = map[string]method{
		api.MethodStop:         (*Daemon).serveStop,
		api.MethodRestart:      (*Daemon).serveRestart,
		api.MethodReset:        (*Daemon).serveReset,
		api.MethodEnvironments: (*Daemon).serveEnvironments,
		api.MethodStatus:       (*Daemon).serveStatus,
		api.MethodLogs:         (*Daemon).serveLogs,
		api.MethodEvents:       (*Daemon).serveEvents,
		api.MethodShutdown:     (*Daemon).serveShutdown,
		api.MethodBudget:       (*Daemon).serveBudget,
		api.MethodRelease:      (*Daemon).serveRelease,
		budget.MethodUnload:    (*Daemon).serveUnload,
	}
}

// decode reads a request's parameters; absent ones are the zero value.
func decode[T any](request *wire.Message) (T, error) {
	var params T
	if len(request.Params) == 0 {
		return params, nil
	}
	if err := json.Unmarshal(request.Params, &params); err != nil {
		return params, wire.Errorf(wire.KindBadRequest, "decoding %s: %v", request.Method, err)
	}
	return params, nil
}

// chosen returns the workers that a stop, restart or reset is about, those of the client's own session unless it asks
// for all; Daemon.mu is held.
func (d *Daemon) chosen(c *client, params api.StopParams, wanted func(*worker) bool) []*worker {
	sessions := []*session{c.session}
	if params.AllSessions {
		sessions = d.allSessions()
	}
	var found []*worker
	for _, s := range sessions {
		for name, p := range s.places {
			if (params.Environment == "" || params.Environment == name) && wanted(p.current) {
				found = append(found, p.current)
			}
		}
	}
	slices.SortFunc(found, func(a, b *worker) int {
		return strings.Compare(a.place.session.id+"\x00"+a.place.environment, b.place.session.id+"\x00"+b.place.environment)
	})
	return found
}

// serveStop ends workers and answers when they are gone.
func (d *Daemon) serveStop(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.StopParams](request)
	if err != nil {
		return nil, err
	}
	stopped, _, err := d.stopWorkers(ctx, c, params, "asked to stop by "+c.describe(), func(w *worker) bool {
		return w.record.State.alive() || w.record.State == Backoff
	})
	return api.StopResult{Stopped: stopped}, err
}

// stopWorkers stops workers and waits for their ends.
func (d *Daemon) stopWorkers(ctx context.Context, c *client, params api.StopParams, cause string, wanted func(*worker) bool) ([]api.Worker, []*worker, error) {
	d.mu.Lock()
	found := d.chosen(c, params, wanted)
	stopped := make([]api.Worker, len(found))
	var all effects
	for i, w := range found {
		stopped[i] = d.describeWorker(w, false)
		all.add(d.step(w, Message{Kind: StopAsked, Cause: cause}, nil))
	}
	d.mu.Unlock()
	d.perform(all)
	for _, w := range found {
		select {
		case <-w.settled:
		case <-ctx.Done():
			return stopped, found, fmt.Errorf("waiting for the end of the worker of %s: %w", w.place.environment, ctx.Err())
		}
	}
	return stopped, found, nil
}

// serveRestart stops workers, forgets their crashes and starts their replacements.
func (d *Daemon) serveRestart(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.StopParams](request)
	if err != nil {
		return nil, err
	}
	stopped, found, err := d.stopWorkers(ctx, c, params, "restarted by "+c.describe(), func(w *worker) bool {
		return w.record.State != Gone || w.generation > 0
	})
	if err != nil {
		return nil, err
	}
	for _, w := range found {
		d.send(w, Message{Kind: ResetAsked, Cause: "restarted by " + c.describe()})
		if _, err := d.withWorker(ctx, c, w.place.session, w.place.environment, request.ID, func(*worker) any { return struct{}{} }); err != nil {
			return nil, err
		}
	}
	return api.StopResult{Stopped: stopped}, nil
}

// serveReset forgets crashes.
func (d *Daemon) serveReset(_ context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.StopParams](request)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	found := d.chosen(c, params, func(w *worker) bool { return w.record.State == Quarantined || w.record.State == Backoff })
	reset := make([]api.Worker, len(found))
	var all effects
	for i, w := range found {
		reset[i] = d.describeWorker(w, false)
		all.add(d.step(w, Message{Kind: ResetAsked, Cause: "reset by " + c.describe()}, nil))
	}
	d.mu.Unlock()
	d.perform(all)
	return api.StopResult{Stopped: reset}, nil
}

// withWorker calls a function with a place's worker once that is ready, and starts one if there is none.
func (d *Daemon) withWorker(ctx context.Context, c *client, s *session, environment string, id uint64, use func(*worker) any) (json.RawMessage, error) {
	type outcome struct {
		result json.RawMessage
		err    *wire.Error
	}
	outcomes := make(chan outcome, 1)
	waiting := &call{client: c, id: id, environment: environment, node: "(start)", local: use,
		reply: func(answer *wire.Message, _ []byte) error {
			outcomes <- outcome{answer.Result, answer.Error}
			return nil
		}}
	d.admit(s, waiting)
	select {
	case got := <-outcomes:
		if got.err != nil {
			return nil, got.err
		}
		return got.result, nil
	case <-ctx.Done():
		d.mu.Lock()
		e := d.withdraw(waiting)
		d.mu.Unlock()
		d.perform(e)
		return nil, wire.Errorf(wire.KindCancelled, "waiting for the worker of %s: %v", environment, ctx.Err())
	}
}

// serveLogs sends the kept lines of an environment's log, and the new ones until the client cancels.
func (d *Daemon) serveLogs(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.LogsParams](request)
	if err != nil {
		return nil, err
	}
	var since time.Time
	if params.Since != "" {
		if since, err = time.Parse(time.RFC3339, params.Since); err != nil {
			return nil, wire.Errorf(wire.KindBadRequest, "since is %q, expected a time like %s", params.Since, time.RFC3339)
		}
	}
	if params.Environment == "" {
		return nil, wire.NewError(wire.KindBadRequest, "logs needs an environment")
	}
	if !d.logs.exists(params.Environment) {
		if _, err := d.findEnvironment(c.session, params.Environment); err != nil {
			return nil, err
		}
	}
	log := d.logs.of(params.Environment)
	if log == nil {
		return nil, errClosing()
	}
	least, err := parseLevel(params.Level)
	if err != nil {
		return nil, err
	}
	important := newLevelFilter(least)
	wanted := func(line *api.LogLine) bool { return important(line) && !line.Time.Before(since) }
	lines := newFeed[api.LogLine](followCapacity)
	var follow func(api.LogLine)
	if params.Follow {
		follow = lines.offer
	}
	kept, stop, err := log.read(params.Environment, params.Lines, wanted, follow)
	if err != nil {
		return nil, err
	}
	defer stop()
	show := func(line api.LogLine) error {
		return c.show(ctx, &wire.Message{Method: api.NotificationLog, Call: request.ID, Params: wire.Params(line)})
	}
	for _, line := range kept {
		if err := show(line); err != nil {
			return nil, err
		}
	}
	for params.Follow {
		items, dropped, ok := lines.take(ctx)
		if !ok {
			break
		}
		if dropped > 0 {
			items = append(items, api.LogLine{Environment: params.Environment, Stream: streamSupervisor, Time: time.Now(),
				Line: levelled(levelWarning, "%d lines are not shown: they came faster than they were read; the log has them", dropped)})
		}
		for _, line := range items {
			if !wanted(&line) {
				continue
			}
			if err := show(line); err != nil {
				return nil, err
			}
		}
	}
	return struct{}{}, nil
}

// followCapacity is how many lines or events may wait for a client that follows.
const followCapacity = 4096

// show sends a client something that it asked to see, once there is room: a client that reads slowly gets it slowly. An
// error means that it is not wanted any more.
func (c *client) show(ctx context.Context, notification *wire.Message) error {
	for c.box.backlog() > outboxBytes/2 {
		select {
		case <-c.box.written:
		case <-c.box.drained:
			return wire.ErrPeerGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.box.tellWritten() // others may wait for the same room
	err := c.peer.Notify(notification, nil)
	if err != nil && !isGone(err) { // too large to be shown, which the rest is not
		c.daemon.log.Warn().Err(err).Str("notification", notification.Method).Msg("not shown to a client")
		return nil
	}
	return err
}

// serveEvents sends the kept events, and the new ones until the client cancels.
func (d *Daemon) serveEvents(ctx context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.EventsParams](request)
	if err != nil {
		return nil, err
	}
	coming := newFeed[api.Event](followCapacity)
	var follow func(api.Event)
	if params.Follow {
		follow = coming.offer
	}
	kept, follower, last, dropped := d.events.replay(params.Since, follow)
	defer d.events.unfollow(follower)
	result := api.EventsResult{Last: last, Dropped: dropped}
	show := func(events []api.Event) error {
		for _, event := range events {
			result.Last = event.Sequence
			if err := c.show(ctx, &wire.Message{Method: api.NotificationEvent, Call: request.ID, Params: wire.Params(event)}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := show(kept); err != nil {
		return nil, err
	}
	for params.Follow {
		events, lost, ok := coming.take(ctx)
		if !ok {
			break
		}
		if err := show(events); err != nil {
			return nil, err
		}
		result.Dropped += uint64(lost) // who follows sees the gap in the sequence
	}
	return result, nil
}

// serveShutdown ends the daemon, unless hosts live and the client does not insist.
func (d *Daemon) serveShutdown(_ context.Context, c *client, request *wire.Message) (any, error) {
	params, err := decode[api.ShutdownParams](request)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	var others []string
	for _, s := range d.sessions {
		if s.role == api.RoleHost && s != c.session {
			others = append(others, fmt.Sprintf("%s (process %d)", s.name, s.process.PID))
		}
	}
	d.mu.Unlock()
	if len(others) > 0 && !params.Force {
		slices.Sort(others)
		return nil, &wire.Error{Code: -32000, Message: "hosts still use this supervisor: " + strings.Join(others, ", "),
			Data: wire.ErrorData{Kind: wire.KindBadRequest, Remedy: "stop them first, or insist"}}
	}
	d.close("asked to end by " + c.describe())
	return struct{}{}, nil
}

// describe names a client in causes.
func (c *client) describe() string {
	return fmt.Sprintf("%s (process %d)", c.hello.Name, c.who.pid)
}
