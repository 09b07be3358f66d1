//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// fault is one kind of bad luck. strike returns when it is over; recovery counts from there.
type fault struct {
	name    string
	strike  func(*strike) error
	unclear map[string]bool // kinds of errors that it may lead to, besides the usual ones
}

// strike is one occurrence.
type strike struct {
	world  *world
	ctx    context.Context
	random *rand.Rand
}

// faults are all kinds.
var faults = []fault{
	{name: "kill python", strike: killer(python)},
	{name: "kill launcher", strike: killer(launcher)},
	{name: "kill supervisor", strike: killer(supervisorProcess)},
	{name: "kill host", strike: killer(hostProcess)},
	{name: "kill python and launcher", strike: killer(python, launcher)},
	{name: "kill supervisor and python", strike: killer(supervisorProcess, python)},
	{name: "kill supervisor and launcher", strike: killer(supervisorProcess, launcher)},
	{name: "kill supervisor and host", strike: killer(supervisorProcess, hostProcess)},
	{name: "kill host and launcher", strike: killer(hostProcess, launcher)},
	{name: "kill everything but hosts", strike: (*strike).killEverything},
	{name: "term python", strike: func(s *strike) error { return s.signal(python, syscall.SIGTERM) }},
	{name: "term supervisor", strike: func(s *strike) error { return s.signal(supervisorProcess, syscall.SIGTERM) }},
	{name: "suspend python", strike: suspender(python)},
	{name: "suspend launcher", strike: suspender(launcher)},
	{name: "suspend supervisor", strike: suspender(supervisorProcess)},
	{name: "suspend host", strike: suspender(hostProcess)},
	{name: "suspend supervisor, kill python", strike: (*strike).killBehindItsBack},
	{name: "native crash", strike: func(s *strike) error { return s.harm("Signal", map[string]any{"number": int(syscall.SIGSEGV)}) }},
	{name: "exit", strike: func(s *strike) error { return s.harm("Leave", map[string]any{"code": s.random.IntN(3)}) }},
	{name: "close descriptors", strike: func(s *strike) error { return s.harm("CloseAll", map[string]any{}) }, unclear: map[string]bool{"value": true}},
	{name: "rubbish from worker", strike: func(s *strike) error {
		return s.harm("Garbage", map[string]any{"kind": []string{"noise", "torn", "huge", "text"}[s.random.IntN(4)]})
	}},
	{name: "lies from worker", strike: func(s *strike) error { return s.harm("Lies", map[string]any{}) }},
	{name: "flood", strike: func(s *strike) error {
		return s.harm("Flood", map[string]any{"megabytes": 20, "newline": s.random.IntN(2) == 0})
	}},
	{name: "children left", strike: (*strike).brood},
	{name: "quota", strike: func(s *strike) error { return s.harm("Make", map[string]any{"seed": 1, "size": 300 << 20}) }},
	{name: "rubbish from client", strike: (*strike).rubbishClients},
	{name: "deaf client", strike: (*strike).deafClient},
	{name: "stop by operator", strike: func(s *strike) error {
		return s.operate(func(ctx context.Context, client *api.Client, params api.StopParams) error {
			_, err := client.Stop(ctx, params)
			return err
		})
	}},
	{name: "restart by operator", strike: func(s *strike) error {
		return s.operate(func(ctx context.Context, client *api.Client, params api.StopParams) error {
			_, err := client.Restart(ctx, params)
			return err
		})
	}},
	{name: "no descriptors", strike: (*strike).noDescriptors, unclear: map[string]bool{"value": true}},
	{name: "log full", strike: (*strike).fullLog},
}

// chooseFaults picks faults by name.
func chooseFaults(only string) ([]fault, error) {
	if only == "" {
		return faults, nil
	}
	var chosen []fault
	for name := range strings.SplitSeq(only, ",") {
		index := slices.IndexFunc(faults, func(f fault) bool { return f.name == strings.TrimSpace(name) })
		if index < 0 {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
		chosen = append(chosen, faults[index])
	}
	return chosen, nil
}

// victim finds a process.
type victim func(*strike, *api.Status, *host, api.Worker) int

func python(_ *strike, _ *api.Status, _ *host, worker api.Worker) int   { return worker.PythonPID }
func launcher(_ *strike, _ *api.Status, _ *host, worker api.Worker) int { return worker.LauncherPID }
func hostProcess(_ *strike, _ *api.Status, h *host, _ api.Worker) int   { return h.command.Process.Pid }
func supervisorProcess(_ *strike, status *api.Status, _ *host, _ api.Worker) int {
	return status.Supervisor.PID
}

// pick chooses a host and one of its workers.
func (s *strike) pick() (*api.Status, *host, api.Worker, error) {
	status, err := s.world.status(s.ctx)
	if err != nil {
		return nil, nil, api.Worker{}, err
	}
	h := s.world.hosts[s.random.IntN(len(s.world.hosts))]
	environment := s.environment()
	for _, session := range status.Sessions {
		if session.PID != h.command.Process.Pid {
			continue
		}
		for _, worker := range status.Workers {
			if worker.Session == session.ID && worker.Environment == environment && worker.PythonPID > 0 {
				return status, h, worker, nil
			}
		}
	}
	return nil, nil, api.Worker{}, fmt.Errorf("host %d has no worker of %s", h.number, environment)
}

func (s *strike) environment() string {
	return s.world.config.Environments[s.random.IntN(len(s.world.config.Environments))]
}

// killer kills victims of one host, in an order that varies, a moment apart.
func killer(victims ...victim) func(*strike) error {
	return func(s *strike) error {
		status, h, worker, err := s.pick()
		if err != nil {
			return err
		}
		for _, index := range s.random.Perm(len(victims)) {
			pid := victims[index](s, status, h, worker)
			if pid == h.command.Process.Pid {
				h.mu.Lock()
				h.killed = true
				h.mu.Unlock()
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			if err := s.pass(time.Duration(s.random.IntN(20)) * time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}
}

// killEverything leaves the hosts alone.
func (s *strike) killEverything() error {
	status, _, _, err := s.pick()
	if err != nil {
		return err
	}
	pids := []int{status.Supervisor.PID}
	for _, worker := range status.Workers {
		pids = append(pids, worker.LauncherPID, worker.PythonPID)
	}
	s.random.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	for _, pid := range pids {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone with another
		}
	}
	return nil
}

func (s *strike) signal(victim victim, signal syscall.Signal) error {
	status, h, worker, err := s.pick()
	if err != nil {
		return err
	}
	return syscall.Kill(victim(s, status, h, worker), signal)
}

// suspender stops a process for up to a second.
func suspender(victim victim) func(*strike) error {
	return func(s *strike) error {
		status, h, worker, err := s.pick()
		if err != nil {
			return err
		}
		pid := victim(s, status, h, worker)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		err = s.pass(time.Duration(s.random.IntN(1000)) * time.Millisecond)
		return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
}

// killBehindItsBack ends a worker while the supervisor can not see it.
func (s *strike) killBehindItsBack() error {
	status, _, worker, err := s.pick()
	if err != nil {
		return err
	}
	if err := syscall.Kill(status.Supervisor.PID, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = syscall.Kill(worker.PythonPID, syscall.SIGKILL)
	err = s.pass(time.Duration(s.random.IntN(500)) * time.Millisecond)
	return errors.Join(err, syscall.Kill(status.Supervisor.PID, syscall.SIGCONT))
}

// harm has a host call a node that does harm, beside its other calls.
func (s *strike) harm(node string, inputs map[string]any) error {
	h := s.world.hosts[s.random.IntN(len(s.world.hosts))]
	if err := h.tell(map[string]any{"do": "harm", "environment": s.environment(), "node": node, "inputs": inputs}); err != nil {
		return err
	}
	_, err := h.await(s.ctx, callLimit, func(r hostReport) bool { return r.Harmed == node })
	return err
}

// brood has a node leave children behind, and then ends the worker, with which they have to go.
func (s *strike) brood() error {
	h := s.world.hosts[s.random.IntN(len(s.world.hosts))]
	environment := s.environment()
	for _, node := range []string{"Brood", "Leave"} {
		inputs := map[string]any{}
		if node == "Leave" {
			inputs["code"] = 0
		}
		if err := h.tell(map[string]any{"do": "harm", "environment": environment, "node": node, "inputs": inputs}); err != nil {
			return err
		}
		if _, err := h.await(s.ctx, callLimit, func(r hostReport) bool { return r.Harmed == node }); err != nil {
			return err
		}
	}
	return nil
}

// rubbishClients connect and send what is no conversation.
func (s *strike) rubbishClients() error {
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(s.random.Uint32())
	}
	for _, rubbish := range []string{
		"GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00null", "\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x20", "", string(noise),
	} {
		conn, err := net.Dial("unix", s.world.config.socket())
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte(rubbish)) // it may have been dropped already
		_ = conn.Close()
	}
	return nil
}

// deafClient asks for much and reads nothing.
func (s *strike) deafClient() error {
	conn, err := net.Dial("unix", s.world.config.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := wire.Message{ID: 1, Method: api.MethodHello, Params: wire.Params(api.HelloParams{
		Protocol: wire.ProtocolVersion, Role: api.RoleOperator, PID: os.Getpid(), Owner: strings.Repeat("d", 32), Name: "deaf",
	})}
	var flood []byte
	for id := range uint64(3000) {
		message := wire.Message{ID: id + 1, Method: api.MethodStatus}
		if id == 0 {
			message = hello
		}
		frame, err := wire.EncodeMessage(&message, nil)
		if err != nil {
			return err
		}
		if flood, err = wire.AppendFrame(flood, frame); err != nil {
			return err
		}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
	_, _ = conn.Write(flood) // it is dropped some time, or not read
	return nil
}

// operate has the operator act on one environment of all sessions.
func (s *strike) operate(act func(context.Context, *api.Client, api.StopParams) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	client, err := s.world.operator(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	err = act(ctx, client, api.StopParams{Environment: s.environment(), AllSessions: true})
	var refused *wire.Error
	if errors.As(err, &refused) {
		return nil // a restart that meets a worker which its session starts itself
	}
	return err
}

// noDescriptors takes the supervisor's descriptors away for a moment, in which clients connect and a worker dies.
func (s *strike) noDescriptors() error {
	status, _, worker, err := s.pick()
	if err != nil {
		return err
	}
	pid := status.Supervisor.PID
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return err
	}
	scarce := before
	scarce.Cur = uint64(len(open) + s.random.IntN(12))
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &scarce, nil); err != nil {
		return err
	}
	_ = syscall.Kill(worker.PythonPID, syscall.SIGKILL)
	var connections []net.Conn
	for range 20 {
		if conn, err := net.Dial("unix", s.world.config.socket()); err == nil {
			connections = append(connections, conn)
		}
	}
	err = s.pass(time.Duration(300+s.random.IntN(700)) * time.Millisecond)
	for _, conn := range connections {
		_ = conn.Close()
	}
	return errors.Join(err, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil))
}

// fullLog makes a log full, or lets it be one again, for the next supervisor.
func (s *strike) fullLog() error {
	status, _, _, err := s.pick()
	if err != nil {
		return err
	}
	log := filepath.Join(s.world.config.state(), "logs", s.environment()+".log")
	target, _ := os.Readlink(log)
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if target == "" {
		if err := os.Symlink("/dev/full", log); err != nil {
			return err
		}
	}
	if err := syscall.Kill(status.Supervisor.PID, syscall.SIGKILL); err != nil {
		return err
	}
	return s.harm("Flood", map[string]any{"megabytes": 1, "newline": true})
}

// pass lets time go by.
func (s *strike) pass(duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
