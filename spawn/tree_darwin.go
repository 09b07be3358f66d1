package spawn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// treeMember is a process of a tree.
type treeMember struct {
	pid, parent, group int
	start              string
	uid                uint32
}

func (m treeMember) identity() Process { return Process{PID: m.pid, StartTime: m.start} }

func readProcessTable() (map[int]treeMember, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, os.NewSyscallError("sysctl", err)
	}
	table := make(map[int]treeMember, len(list))
	for index := range list {
		info := &list[index]
		if info.Proc.P_stat == zombieState {
			continue
		}
		pid := int(info.Proc.P_pid)
		table[pid] = treeMember{
			pid:    pid,
			parent: int(info.Eproc.Ppid),
			group:  int(info.Eproc.Pgid),
			start:  processStart(info),
			uid:    info.Eproc.Ucred.Uid,
		}
	}
	return table, nil
}

func below(table map[int]treeMember, pid, ancestor int) bool {
	for range len(table) + 1 {
		member, there := table[pid]
		if !there || member.parent <= 1 {
			return false
		}
		if member.parent == ancestor {
			return true
		}
		pid = member.parent
	}
	return false
}

// environmentValue finds a variable in a process's environment as it was when the program started; the system shows
// it for processes of this user.
func environmentValue(pid int, name string) string {
	content, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(content) < 4 {
		return ""
	}
	arguments := int(binary.LittleEndian.Uint32(content))
	// The path, zeros, the arguments, the environment.
	content = content[4:]
	end := bytes.IndexByte(content, 0)
	if end < 0 {
		return ""
	}
	content = bytes.TrimLeft(content[end:], "\x00")
	for ; arguments > 0 && len(content) > 0; arguments-- {
		_, content, _ = bytes.Cut(content, []byte{0})
	}
	prefix := []byte(name + "=")
	for len(content) > 0 {
		var variable []byte
		variable, content, _ = bytes.Cut(content, []byte{0})
		if len(variable) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(variable, prefix); found {
			return string(value)
		}
	}
	return ""
}

// members finds the tree: what descends from the launcher or Python, is in Python's process group, or carries the
// worker's ID. There are no subreapers here, so a grandchild that lost its parent is found by the last two alone.
func (t *Tree) members() ([]treeMember, error) {
	table, err := readProcessTable()
	if err != nil {
		return nil, fmt.Errorf("listing the processes of worker %s: %w", t.Worker, err)
	}
	alive := func(process Process) int {
		if member, there := table[process.PID]; there && member.start == process.StartTime {
			return member.pid
		}
		return 0
	}
	launcher, python := alive(t.Launcher), alive(t.Python)
	self, uid := os.Getpid(), uint32(os.Geteuid())
	var members []treeMember
	for pid, member := range table {
		if pid == self || pid == launcher {
			continue
		}
		switch {
		case pid == python,
			launcher > 0 && below(table, pid, launcher),
			python > 0 && (member.group == python || below(table, pid, python)),
			member.uid == uid && environmentValue(pid, WorkerVariable) == t.Worker:
			members = append(members, member)
		}
	}
	return members, nil
}

func (t *Tree) statistics() (TreeStatistics, error) {
	members, err := t.members()
	if err != nil {
		return TreeStatistics{}, err
	}
	statistics := TreeStatistics{Processes: len(members)}
	for _, member := range members {
		statistics.RSSBytes += residentBytesOf(member.pid)
	}
	return statistics, nil
}

func (t *Tree) terminate() error {
	members, err := t.members()
	if err != nil {
		return err
	}
	return signalMembers(members, unix.SIGTERM)
}

func signalMembers(members []treeMember, signal unix.Signal) error {
	var failures []error
	for _, member := range members {
		if start, err := startTime(member.pid); err != nil || start != member.start {
			continue
		}
		if err := unix.Kill(member.pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			failures = append(failures, fmt.Errorf("sending %v to process %d: %w", signal, member.pid, err))
		}
	}
	return errors.Join(failures...)
}

// killRound is the time between two looks.
const killRound = 20 * time.Millisecond

func (t *Tree) kill(ctx context.Context) ([]Process, error) {
	ticker := time.NewTicker(killRound)
	defer ticker.Stop()
	for {
		members, err := t.members()
		if err != nil || len(members) == 0 {
			return nil, err
		}
		if err := signalMembers(members, unix.SIGKILL); err != nil {
			return nil, fmt.Errorf("killing worker %s: %w", t.Worker, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return t.processes()
		}
	}
}
