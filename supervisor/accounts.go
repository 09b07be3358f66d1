package supervisor

import (
	"context"
	"encoding/json"
	"path/filepath"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// newKeeper makes the keeper of the memory accounts of a daemon.
func (d *Daemon) newKeeper() *budget.Keeper {
	rules := d.config.Rules
	if rules == (memory.Rules{}) {
		rules = memory.DefaultRules()
	}
	return budget.New(budget.Config{
		Rules:        rules,
		Limits:       d.config.Idle,
		Sweep:        d.config.SweepInterval,
		OpenCards:    d.config.OpenCards,
		ProcessLocal: runtime.GOOS == "windows", // WDDM
		RAM:          func(ctx context.Context) (probe.Machine, error) { return probe.ReadRAM(ctx, "/") },
		File:         filepath.Join(d.config.StateDirectory, "estimates.json"),
		Parent:       parentOf,
		Event:        func(event api.Event) { d.event(event) },
		Note: func(party memory.Party, line string) {
			if w := d.workerOf(party); w != nil {
				d.note(w, levelWarning, "%s", line)
			}
		},
		Released: func(party memory.Party) {
			if w := d.workerOf(party); w != nil {
				d.send(w, Message{Kind: ReleasedAll, Cause: "gave its memory back"})
			}
		},
		End: d.endIdle,
	})
}

// parentOf finds a process's parent.
func parentOf(pid int) (int, bool) {
	found, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, false
	}
	parent, err := found.Ppid()
	return int(parent), err == nil
}

// endIdle ends a worker that has been idle for long, or keeps what no release moves; one that was called meanwhile lives on.
func (d *Daemon) endIdle(action memory.Action) {
	w := d.workerOf(action.Party)
	if w == nil {
		return
	}
	kind := "worker.reaped"
	if action.Kind == memory.EndIdle {
		kind = "worker.ended_idle"
	}
	d.mu.Lock()
	var e effects
	used := action.Kind == memory.Reap && time.Since(w.record.IdleSince) < w.limits.reap // it answered questions since
	if !used && (w.record.State == Ready || w.record.State == Released) {
		e.tell(d, api.Event{Kind: kind, Session: action.Party.Session, Environment: action.Party.Environment,
			Generation: action.Party.Generation, Cause: action.Cause, Terms: map[string]any{"terms": action.Terms}})
		e.add(d.step(w, Message{Kind: StopAsked, Cause: "idle: " + action.Terms.String()}, nil))
	}
	d.mu.Unlock()
	d.perform(e)
}

// party is what the memory accounts call a worker.
func (w *worker) account() memory.Party {
	return memory.Party{Session: w.place.session.id, Environment: w.place.environment, Generation: w.generation}
}

// workerOf finds the worker of a party, nil when another generation has its place.
func (d *Daemon) workerOf(party memory.Party) *worker {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.allSessions() {
		if s.id != party.Session {
			continue
		}
		if p := s.places[party.Environment]; p != nil && p.current.generation == party.Generation {
			return p.current
		}
	}
	return nil
}

// joinAccounts makes a worker's process known to the memory accounts; Daemon.mu is held.
func (d *Daemon) joinAccounts(w *worker, process spawn.Worker) {
	environ := w.environ
	if w.adopted {
		environ = startEnviron(process.Record().Python)
	}
	group := process.Record().Cgroup
	defer func() {
		for _, ask := range w.early {
			ask()
		}
		w.early = nil
	}()
	d.accounts.Join(budget.Member{
		Party: w.account(),
		Line:  &workerLine{peer: w.peer, generation: w.generation},
		PIDs:  []int{process.PythonPID(), process.Record().Launcher.PID},
		// Clocks and caps are those of the settings over those of the manifest.
		Environ: environ, Caps: w.limits.caps, IdleRelease: w.limits.idleRelease, Reap: w.limits.reap, Adopted: w.adopted,
		Weigh: func(ctx context.Context) (resident, shared memory.Bytes, err error) {
			statistics, err := process.Statistics(ctx)
			return memory.Bytes(statistics.RSSBytes), memory.Bytes(sharedRSS(process.PythonPID())), err
		},
		HoldRAM: func(high, most memory.Bytes) error { return spawn.HoldMemory(group, int64(high), int64(most)) },
	})
}

// tellPhase tells the memory accounts where a process stands, when that has changed; Daemon.mu is held.
func (d *Daemon) tellPhase(w *worker) {
	phase := w.accountPhase()
	if phase == w.told {
		return
	}
	w.told = phase
	if phase == memory.Gone {
		d.accounts.Gone(w.account())
	} else {
		d.accounts.Phase(w.account(), phase)
	}
}

// accountPhase is where the process stands for the memory accounts; Daemon.mu is held. One that only answers questions on its
// side lane, a dropdown's values or a route, computes nothing on a card: it gives memory back when asked, and is not in use.
func (w *worker) accountPhase() memory.Phase {
	state := w.record.State
	if !state.alive() {
		return memory.Gone
	}
	if state != Busy {
		return memory.Phase(state)
	}
	for call := range w.inFlight {
		if call.lane != wire.LaneSide {
			return memory.Busy
		}
	}
	return memory.Ready
}

// joinHostAccounts makes a host's process known to the memory accounts.
func (d *Daemon) joinHostAccounts(s *session, adopted bool) {
	d.accounts.Join(budget.Member{
		Party: memory.Host(s.id), Line: &hostLine{daemon: d, session: s}, PIDs: []int{s.process.PID}, Environ: environList(s.environ), Adopted: adopted,
	})
}

// hearMemory takes a worker's notification about its memory; false: it is about something else.
func (h *workerHandler) hearMemory(notification *wire.Message) bool {
	accounts, party := h.daemon.accounts, h.worker.account()
	switch notification.Method {
	case budget.MethodCensus:
		hear(notification, func(said budget.Census) { accounts.Census(party, said) })
	case budget.MethodResident:
		hear(notification, func(said budget.Resident) { accounts.Resident(party, said) })
	case budget.MethodFinished:
		hear(notification, func(said budget.Finished) { accounts.Finished(party, said) })
	case budget.MethodWithdraw:
		hear(notification, func(said budget.Resident) { accounts.Withdraw(party, said.ID) })
	default:
		return false
	}
	return true
}

// hear decodes a notification; what makes no sense is ignored.
func hear[T any](notification *wire.Message, take func(T)) {
	var said T
	if json.Unmarshal(notification.Params, &said) == nil {
		take(said)
	}
}

// lease takes a worker's request for room on a card. It is answered when there is some, or when waiting for it has ended.
func (h *workerHandler) lease(request *wire.Message, reply wire.ReplyFunc) {
	d, w := h.daemon, h.worker
	w.leases.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.peer == nil { // one that is being adopted speaks before it is known
		w.early = append(w.early, func() { h.askLease(request, reply) })
		return
	}
	h.askLease(request, reply)
}

// askLease hands a request for room to the memory accounts; it never waits.
func (h *workerHandler) askLease(request *wire.Message, reply wire.ReplyFunc) {
	h.daemon.accounts.Lease(h.worker.account(), request.Params,
		func(answer budget.LeaseAnswer) { _ = reply(&wire.Message{Result: wire.Params(answer)}, nil) }, // a worker that is gone needs no answer
		func(err error) {
			refuse(reply, wire.Errorf(wire.KindBadRequest, "decoding %s: %v", request.Method, err))
		})
}

// hearHostMemory takes a host's notification about its memory, or about what it needs of its workers'.
func (d *Daemon) hearHostMemory(s *session, notification *wire.Message) {
	if s.role != api.RoleHost {
		return
	}
	switch notification.Method {
	case budget.MethodCensus:
		hear(notification, func(said budget.Census) { d.accounts.Census(memory.Host(s.id), said) })
	case budget.MethodPrompt:
		d.accounts.Prompt(s.id, notification.Params)
	case budget.MethodNeed:
		hear(notification, func(said budget.Need) { d.accounts.Need(s.id, said) })
	}
}
