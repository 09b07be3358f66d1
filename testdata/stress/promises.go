//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// settle waits until every promise about what is left holds, while nobody calls.
func (w *world) settle(ctx context.Context) error {
	limit := time.Now().Add(settleLimit)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		problems, err := w.look(ctx)
		if err != nil {
			return err
		}
		if len(problems) == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s later: %s", settleLimit, strings.Join(problems, "; "))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look compares what there is with what there should be.
func (w *world) look(ctx context.Context) (problems []string, err error) {
	complain := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	accounts := make([]*hostAccounts, len(w.hosts))
	for index, h := range w.hosts {
		if err := h.tell(map[string]any{"do": "accounts"}); err != nil {
			return nil, err
		}
		report, err := h.await(ctx, callLimit, func(r hostReport) bool { return r.Accounts != nil })
		if err != nil {
			return nil, err
		}
		accounts[index] = report.Accounts
	}
	status, err := w.status(ctx)
	if err != nil {
		return nil, err
	}
	var reserved int64
	check := func(kind string, process processAccounts) {
		reserved += process.Pool.Free + process.Pool.Lent + process.Pool.Filling
		if process.Pool.Lent != 0 || process.Pool.Filling != 0 || process.Holds != 0 {
			complain("%s %d has lent %d bytes, is filling %d, and holds %d files of others", kind, process.PID, process.Pool.Lent, process.Pool.Filling, process.Holds)
		}
		w.steady(kind, process.PID, process.Descriptors-process.MemoryFiles, 3, complain)
		if process.Threads > 30 {
			complain("%s %d has %d threads", kind, process.PID, process.Threads)
		}
	}
	for _, host := range accounts {
		check("host", host.processAccounts)
		for environment, failed := range host.Failed {
			complain("asking the worker of %s: %s", environment, failed)
		}
		for _, process := range host.Workers {
			check("worker", process)
		}
	}
	if status.MemoryFiles.Open != 0 || status.MemoryFiles.ReservedBytes != reserved {
		complain("the supervisor keeps %d memory files, and counts %d bytes where the processes have %d", status.MemoryFiles.Open, status.MemoryFiles.ReservedBytes, reserved)
	}
	w.lookAtSessions(status, complain)
	live := make(map[string]api.Worker)
	for _, worker := range status.Workers {
		if worker.PythonPID > 0 {
			live[worker.ID] = worker
		}
	}
	if expected := len(w.hosts) * len(w.config.Environments); len(live) != expected {
		complain("there are %d live workers, not %d", len(live), expected)
	}
	w.lookAtFolders(status, live, complain)
	w.lookAtProcesses(status, live, complain)
	w.lookAtDescriptors(status, complain)
	if status.Supervisor.RSSBytes > 400<<20 {
		complain("the supervisor has %d MB", status.Supervisor.RSSBytes>>20)
	}
	return problems, nil
}

// steady holds a count of a process against that of an earlier look.
func (w *world) steady(kind string, pid, count, slack int, complain func(string, ...any)) {
	key := fmt.Sprintf("%s %d", kind, pid)
	w.looks[key]++
	before, known := w.descriptors[key]
	if !known {
		w.descriptors[key] = count
		return
	}
	if count > before+slack {
		complain("%s %d has %d descriptors, and had %d", kind, pid, count, before)
	}
}

func (w *world) lookAtSessions(status *api.Status, complain func(string, ...any)) {
	expected := map[int]bool{0: true} // the operator's
	for _, h := range w.hosts {
		expected[h.command.Process.Pid] = true
	}
	for _, session := range status.Sessions {
		if !expected[session.PID] || session.Ended {
			complain("there is a session of process %d", session.PID)
		}
		delete(expected, session.PID)
	}
	for pid := range expected {
		complain("process %d has no session", pid)
	}
}

// lookAtFolders compares the runtime folder with what lives.
func (w *world) lookAtFolders(status *api.Status, live map[string]api.Worker, complain func(string, ...any)) {
	sessions := map[string]bool{}
	for _, session := range status.Sessions {
		if session.Role == api.RoleHost {
			sessions[session.ID] = true
		}
	}
	for folder, expected := range map[string]int{"workers": len(live), "sessions": len(sessions)} {
		entries, err := os.ReadDir(filepath.Join(w.config.runtime(), folder))
		if err != nil {
			complain("%v", err)
			continue
		}
		if len(entries) != expected {
			complain("the folder %s has %d entries, not %d", folder, len(entries), expected)
		}
	}
	entries, err := os.ReadDir(w.config.runtime())
	if err != nil {
		complain("%v", err)
	}
	for _, entry := range entries {
		if !slices.Contains([]string{"workers", "sessions", "supervisor.lock", "supervisor.sock"}, entry.Name()) {
			complain("%s is left in the runtime folder", entry.Name())
		}
	}
}

// ours lists the processes of this run with their environment.
func (w *world) ours() map[int]string {
	found := make(map[int]string)
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte(w.config.Folder)) {
			continue // gone, or another one
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		stat, statErr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || statErr != nil || pid == os.Getpid() || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		found[pid] = strings.ReplaceAll(string(environ), "\x00", "\n")
	}
	return found
}

// lookAtProcesses finds those that nobody should have left.
func (w *world) lookAtProcesses(status *api.Status, live map[string]api.Worker, complain func(string, ...any)) {
	expected := map[int]bool{status.Supervisor.PID: true}
	for _, h := range w.hosts {
		expected[h.command.Process.Pid] = true
	}
	for _, worker := range live {
		expected[worker.PythonPID], expected[worker.LauncherPID] = true, true
	}
	for _, pid := range slices.Sorted(maps.Keys(w.ours())) {
		if !expected[pid] {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // for people
			complain("process %d is left: %.80s", pid, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
}

// lookAtDescriptors looks at those of the supervisor and of launchers, from outside.
func (w *world) lookAtDescriptors(status *api.Status, complain func(string, ...any)) {
	// A worker costs its supervisor connections for control, for the loan and to Python, and a handle; one that it has
	// launched itself another handle and two pipes. The operator's connection may still be ending.
	expected := map[string]int{"socket": 2 + len(w.hosts), "anon_inode:[pidfd]": len(w.hosts), "pipe": 0, "/memfd": 0}
	for _, worker := range status.Workers {
		if worker.LauncherPID == 0 {
			continue
		}
		expected["socket"] += 3
		expected["anon_inode:[pidfd]"]++
		if !worker.Adopted {
			expected["anon_inode:[pidfd]"]++
			expected["pipe"] += 2
		}
		_, total := descriptors(worker.LauncherPID)
		w.steady("launcher", worker.LauncherPID, total, 2, complain)
	}
	counts, total := descriptors(status.Supervisor.PID)
	for kind, most := range expected {
		if counts[kind] > most {
			complain("the supervisor %d has %d descriptors of the kind %s, not %d", status.Supervisor.PID, counts[kind], kind, most)
		}
		total -= counts[kind]
	}
	w.steady("supervisor", status.Supervisor.PID, total, 3, complain)
}

// descriptors counts those of a process, by what comes before a colon in what they refer to.
func descriptors(pid int) (counts map[string]int, total int) {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(folder) // of a process that is gone there are none
	counts = make(map[string]int)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(folder, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		kind := target
		if before, _, found := strings.Cut(target, ":"); found && before != "anon_inode" {
			kind = before
		}
		counts[kind]++
		total++
	}
	return counts, total
}

// killAll ends what is left of a run.
func (w *world) killAll() {
	for pid := range w.ours() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}
