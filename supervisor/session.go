package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// operatorSession is the ID of the session that belongs to the daemon itself.
const operatorSession = "operator"

// session owns workers: a host's, as long as that process lives, or the operator's, as long as the daemon does.
type session struct {
	id        string
	role      string
	token     string
	process   spawn.Process // the host; zero for the operator
	name      string
	comfyui   string
	since     time.Time
	environ   map[string]string // the base of its workers' variables
	hostFacts json.RawMessage   // what environments depend on: envbuild.Facts
	folders   json.RawMessage   // the host's folder registry, as last heard; guarded by Daemon.mu
	hostState json.RawMessage   // what the host's process says about itself: mirror.HostState
	stack     string

	// Guarded by Daemon.mu.
	clients        map[*client]struct{}
	owners         map[string]struct{} // the IDs under which its host holds and makes memory files
	places         map[string]*place   // by environment
	ended          bool
	reconnectUntil time.Time
	reconnect      *time.Timer
	watched        context.CancelFunc // ends the watch over the host
}

// place is where the workers of one environment in one session follow each other.
type place struct {
	session     *session
	environment string
	current     *worker
}

// place returns the place of an environment, made when missing; Daemon.mu is held.
func (d *Daemon) place(s *session, environment string) *place {
	p := s.places[environment]
	if p == nil {
		p = &place{session: s, environment: environment}
		p.current = d.newWorker(p, Record{State: Gone})
		s.places[environment] = p
	}
	return p
}

// hello introduces a client: it checks who it is and gives it its session.
func (d *Daemon) hello(c *client, hello api.HelloParams) (api.HelloResult, error) {
	if hello.Protocol != wire.ProtocolVersion {
		return api.HelloResult{}, wire.Errorf(wire.KindBadRequest,
			"the client speaks protocol %d, this supervisor %d: one of them is of another version; restart the supervisor after an upgrade",
			hello.Protocol, wire.ProtocolVersion)
	}
	if len(hello.Owner) < 16 || len(hello.Owner) > 64 {
		return api.HelloResult{}, wire.NewError(wire.KindBadRequest, "hello lacks an owner ID of 16 to 64 characters")
	}
	process, err := d.identify(c.who, hello)
	if err != nil {
		return api.HelloResult{}, err
	}
	var result api.HelloResult
	switch hello.Role {
	case api.RoleOperator:
		result, err = d.joinOperator(c, hello, process)
	case api.RoleHost:
		result, err = d.joinHost(c, hello, process)
	default:
		return api.HelloResult{}, wire.Errorf(wire.KindBadRequest, "hello has the role %q; known are %q and %q", hello.Role, api.RoleHost, api.RoleOperator)
	}
	if err != nil {
		return result, err
	}
	if hello.Token != "" {
		if err := d.files.Adopt(c.party, inventory(hello)); err != nil {
			d.log.Warn().Err(err).Int("pid", c.who.pid).Msg("some memory files of a host that came back are lost")
		}
		d.inventoryDone(c.session)
	}
	return result, nil
}

// identify compares what a client says about itself with what the system says about it.
func (d *Daemon) identify(who credentials, hello api.HelloParams) (spawn.Process, error) {
	if who.pid != hello.PID {
		return spawn.Process{}, &wire.Error{Code: -32000,
			Message: fmt.Sprintf("the client calls itself process %d, but the supervisor sees process %d: it runs in another PID namespace, where memory files can not be opened by PID",
				hello.PID, who.pid),
			Data: wire.ErrorData{Kind: wire.KindBadRequest,
				Remedy: "run the host and its supervisor in the same container"}}
	}
	process, err := spawn.Identify(who.pid)
	if err != nil {
		return spawn.Process{}, wire.Errorf(wire.KindBadRequest, "looking at the client's process: %v", err)
	}
	if hello.StartTime != "" && hello.StartTime != process.StartTime {
		return spawn.Process{}, wire.Errorf(wire.KindBadRequest,
			"the client says it started at %s, but process %d started at %s", hello.StartTime, who.pid, process.StartTime)
	}
	return process, nil
}

// joinOperator adds a command line's connection to the operator's session.
func (d *Daemon) joinOperator(c *client, hello api.HelloParams, process spawn.Process) (api.HelloResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return api.HelloResult{}, errClosing()
	}
	d.attachClient(c, d.operator, hello, process)
	return d.helloResult(d.operator), nil
}

// joinHost gives a host its session: the one it had when it knows the token, else a new one. A process that comes
// without the token of its session has replaced its program (exec): what the old program had is ended at once.
func (d *Daemon) joinHost(c *client, hello api.HelloParams, process spawn.Process) (api.HelloResult, error) {
	facts, state, err := hostFacts(hello)
	if err != nil {
		return api.HelloResult{}, err
	}
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		return api.HelloResult{}, errClosing()
	}
	var all effects
	old := d.hostSession(process)
	if old != nil && hello.Token != "" && subtle.ConstantTimeCompare([]byte(old.token), []byte(hello.Token)) == 1 {
		for other := range old.clients { // the connection that this one replaces
			other.box.finish()
		}
		d.stopReconnect(old)
		d.attachClient(c, old, hello, process)
		result := d.helloResult(old)
		d.mu.Unlock()
		d.recordSession(old)
		d.accounts.Connected(memory.Host(old.id))
		d.event(api.Event{Kind: "session.reconnected", Session: old.id, Terms: map[string]any{"pid": process.PID}})
		return result, nil
	}
	if old != nil {
		all.add(d.endSession(old, "the host replaced its program: it came back without its session's token"))
	}
	s := d.newSession(api.RoleHost, randomID(8), process)
	s.describeHost(hello.Name, hello.ComfyUI, hello.Environ, facts, state)
	d.sessions[s.id] = s
	d.attachClient(c, s, hello, process)
	result := d.helloResult(s)
	d.mu.Unlock()
	d.perform(all)
	d.joinHostAccounts(s, false)
	d.recordSession(s)
	d.watchHost(s)
	d.event(api.Event{Kind: "session.began", Session: s.id, Terms: map[string]any{"pid": process.PID, "name": s.name, "comfyui": s.comfyui}})
	return result, nil
}

// recordSession writes down what a later supervisor needs to know of a session.
func (d *Daemon) recordSession(s *session) {
	d.mu.Lock()
	file, ended := s.file(), s.ended
	d.mu.Unlock()
	if ended {
		return
	}
	if err := writeSessionFile(d.sessionFolder(), file); err != nil {
		d.log.Error().Err(err).Str("session", s.id).Msg("this session will not survive a restart of the supervisor")
	}
}

// hostFacts returns the two documents about a host: what environments depend on, which the commands leave in a file,
// and what the process says about itself, which it sends. Where there is only one of them, it is both.
func hostFacts(hello api.HelloParams) (facts, state json.RawMessage, err error) {
	if len(hello.HostFacts) > 0 && string(hello.HostFacts) != "null" {
		facts, state = hello.HostFacts, hello.HostFacts
	}
	if hello.HostFactsFile == "" {
		return facts, state, nil
	}
	factsTurns.Do(func() { facts, err = readHostFacts(hello.HostFactsFile) })
	if err != nil {
		return nil, nil, wire.Errorf(wire.KindBadRequest, "reading the host facts: %v", err)
	}
	if !json.Valid(facts) {
		return nil, nil, wire.Errorf(wire.KindBadRequest, "the host facts in %s are not JSON", hello.HostFactsFile)
	}
	if state == nil {
		state = facts
	}
	return facts, state, nil
}

// maxHostFactsBytes is far more than any host has to say.
const maxHostFactsBytes = 16 << 20

// readHostFacts reads a file that a client names: it may be anything.
func readHostFacts(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxHostFactsBytes {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxHostFactsBytes)
	}
	return os.ReadFile(path)
}

// describeHost keeps what a host says about itself.
func (s *session) describeHost(name, comfyui string, environ map[string]string, facts, state json.RawMessage) {
	s.name, s.comfyui, s.environ, s.hostFacts, s.hostState = name, comfyui, environ, facts, state
	s.stack = stackOf(facts)
	if s.comfyui == "" {
		s.comfyui = comfyuiOf(facts)
	}
}

// hostSession finds the session of a process; Daemon.mu is held.
func (d *Daemon) hostSession(process spawn.Process) *session {
	for _, s := range d.sessions {
		if s.role == api.RoleHost && s.process == process {
			return s
		}
	}
	return nil
}

func (d *Daemon) newSession(role, id string, process spawn.Process) *session {
	return &session{
		id:      id,
		role:    role,
		token:   randomID(16),
		process: process,
		since:   time.Now(),
		clients: make(map[*client]struct{}),
		places:  make(map[string]*place),
		owners:  make(map[string]struct{}),
	}
}

// attachClient ties a connection to a session; Daemon.mu is held.
func (d *Daemon) attachClient(c *client, s *session, hello api.HelloParams, process spawn.Process) {
	c.session = s
	c.hello = hello
	c.party = spawn.Party{ID: hello.Owner, PID: process.PID}
	s.clients[c] = struct{}{}
	s.owners[hello.Owner] = struct{}{}
	d.join(c.party, c.peer)
}

func (d *Daemon) helloResult(s *session) api.HelloResult {
	return api.HelloResult{
		Protocol:   wire.ProtocolVersion,
		Session:    s.id,
		Token:      s.token,
		Supervisor: d.describe(),
		Memory:     d.memoryRules(),
	}
}

// clientLeft opens the window in which a host without a connection may come back; Daemon.mu is held.
func (d *Daemon) clientLeft(s *session) {
	if s.role != api.RoleHost || s.ended || len(s.clients) > 0 || d.closing {
		return
	}
	d.awaitReconnect(s)
}

// awaitReconnect ends a session unless its host returns in time; Daemon.mu is held.
func (d *Daemon) awaitReconnect(s *session) {
	d.stopReconnect(s)
	s.reconnectUntil = time.Now().Add(d.config.Reconnect)
	s.reconnect = d.after(d.config.Reconnect, func() {
		d.mu.Lock()
		if s.reconnectUntil.IsZero() || len(s.clients) > 0 {
			d.mu.Unlock()
			return
		}
		e := d.endSession(s, fmt.Sprintf("its host did not reconnect within %s", d.config.Reconnect))
		d.mu.Unlock()
		d.perform(e)
	})
}

// stopReconnect closes the window; Daemon.mu is held.
func (d *Daemon) stopReconnect(s *session) {
	s.reconnectUntil = time.Time{}
	if s.reconnect != nil {
		s.reconnect.Stop()
		s.reconnect = nil
	}
}

// watchHost ends a session as soon as its host's process has ended.
func (d *Daemon) watchHost(s *session) {
	watch, err := spawn.WatchProcess(s.process)
	if err != nil {
		d.closeSession(s, fmt.Sprintf("its host, process %d, is gone: %v", s.process.PID, err))
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	d.mu.Lock()
	ended := s.ended
	s.watched = cancel
	d.mu.Unlock()
	if ended {
		cancel()
	}
	d.goSafely(func() {
		defer watch.Close()
		defer cancel()
		select {
		case <-watch.Done():
			d.closeSession(s, fmt.Sprintf("its host, process %d, ended", s.process.PID))
		case <-ctx.Done():
		}
	})
}

// closeSession ends a session and carries out what follows.
func (d *Daemon) closeSession(s *session, cause string) {
	d.mu.Lock()
	e := d.endSession(s, cause)
	d.mu.Unlock()
	d.perform(e)
}

// endSession ends a session and kills its workers; Daemon.mu is held. The operator's ends with the daemon only.
func (d *Daemon) endSession(s *session, cause string) effects {
	var all effects
	if s.ended {
		return all
	}
	s.ended = true
	delete(d.sessions, s.id)
	d.ending[s] = struct{}{}
	d.stopReconnect(s)
	if s.watched != nil {
		s.watched()
	}
	for c := range s.clients {
		c.box.finish()
	}
	for _, p := range s.places {
		all.add(d.step(p.current, Message{Kind: StopAsked, Cause: cause, Force: true}, nil))
	}
	all.ended = append(all.ended, endedSession{s, cause})
	d.forgetIfSettled(s)
	return all
}

// forgetIfSettled drops an ended session once none of its workers is alive; Daemon.mu is held.
func (d *Daemon) forgetIfSettled(s *session) {
	if !s.ended {
		return
	}
	for _, p := range s.places {
		if !p.current.isSettled() {
			return
		}
	}
	delete(d.ending, s)
}

func (s *session) file() sessionFile {
	return sessionFile{
		ID: s.id, Role: s.role, Token: s.token, PID: s.process.PID, StartTime: s.process.StartTime,
		Owners: slices.Sorted(maps.Keys(s.owners)), Name: s.name, ComfyUI: s.comfyui, Since: s.since, Environ: s.environ, HostFacts: s.hostFacts, HostState: s.hostState,
	}
}

func errClosing() *wire.Error {
	return wire.NewError(wire.KindStopped, "the supervisor is ending")
}

// randomID returns a random ID of a number of bytes, as hexadecimal digits.
func randomID(bytes int) string {
	content := make([]byte, bytes)
	_, _ = rand.Read(content) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(content)
}
