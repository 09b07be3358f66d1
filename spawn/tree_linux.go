package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// members finds the tree: what descends from the launcher or from Python, what is in Python's process group or in the
// control group, and what carries the worker's ID.
func (t *Tree) members() ([]procStat, error) {
	table, err := readProcessTable()
	if err != nil {
		return nil, fmt.Errorf("listing the processes of worker %s: %w", t.Worker, err)
	}
	launcher := 0
	if stat, there := table[t.Launcher.PID]; there && stat.startTime == t.Launcher.StartTime {
		launcher = stat.pid
	}
	python := 0
	if stat, there := table[t.Python.PID]; there && stat.startTime == t.Python.StartTime {
		python = stat.pid
	}
	self := os.Getpid()
	inCgroup := cgroupMembers(t.Cgroup)
	var members []procStat
	for pid, stat := range table {
		if pid == self || pid == launcher || stat.ended() {
			continue
		}
		switch {
		case pid == python,
			launcher > 0 && table.below(pid, launcher),
			python > 0 && (stat.group == python || table.below(pid, python)),
			slices.Contains(inCgroup, pid),
			stat.parent == self && t.orphaned(stat),
			environmentValue(pid, WorkerVariable) == t.Worker:
			members = append(members, stat)
		}
	}
	return members, nil
}

// orphaned recognises, among this process's children, those that came here from a dead launcher's tree although they
// cleared their environment: they still are in its session or in Python's group.
func (t *Tree) orphaned(stat procStat) bool {
	return t.Launcher.PID > 0 && stat.session == t.Launcher.PID || t.Python.PID > 0 && stat.group == t.Python.PID
}

func (s procStat) identity() Process { return Process{PID: s.pid, StartTime: s.startTime} }

// statistics is asked often, so it does not look at every environment: below a live launcher nothing else tells more
// than descent.
func (t *Tree) statistics() (TreeStatistics, error) {
	if pids := cgroupMembers(t.Cgroup); len(pids) > 0 {
		var statistics TreeStatistics
		for _, pid := range pids {
			if stat, err := readStat(pid); err == nil && !stat.ended() {
				statistics.add(stat)
			}
		}
		return statistics, nil
	}
	table, err := readProcessTable()
	if err != nil {
		return TreeStatistics{}, fmt.Errorf("listing the processes of worker %s: %w", t.Worker, err)
	}
	var statistics TreeStatistics
	for pid, stat := range table {
		if !stat.ended() && (pid == t.Python.PID || table.below(pid, t.Launcher.PID) || table.below(pid, t.Python.PID)) {
			statistics.add(stat)
		}
	}
	return statistics, nil
}

func (s *TreeStatistics) add(stat procStat) {
	s.Processes++
	s.RSSBytes += stat.residentPages * int64(os.Getpagesize())
}

func (t *Tree) terminate() error {
	members, err := t.members()
	if err != nil {
		return err
	}
	var failures []error
	for _, member := range members {
		handle, err := openMember(member)
		if err == nil {
			err = handle.signal(unix.SIGTERM)
			handle.close()
		}
		if err != nil && !errors.Is(err, ErrProcessGone) {
			failures = append(failures, fmt.Errorf("sending SIGTERM to process %d: %w", member.pid, err))
		}
	}
	return errors.Join(failures...)
}

// openMember opens a process that a table showed, if it still is the same one.
func openMember(member procStat) (*processHandle, error) {
	handle, err := openProcess(member.pid)
	if err != nil {
		return nil, err
	}
	start, err := startTime(member.pid)
	if err == nil && start != member.startTime {
		err = ErrProcessGone
	}
	if err != nil {
		handle.close()
		return nil, err
	}
	return handle, nil
}

// killRound is how long one round waits for what it killed before it looks again. Ends wake it earlier.
const killRound = 50 * time.Millisecond

func (t *Tree) kill(ctx context.Context) ([]Process, error) {
	for {
		if t.Cgroup != "" {
			killCgroup(t.Cgroup) // atomic against forks; what it misses is found below
		}
		members, err := t.members()
		if err != nil {
			return nil, err
		}
		if len(members) == 0 {
			return nil, nil
		}
		t.killGroup(members)
		if err := killMembers(members); err != nil {
			return nil, fmt.Errorf("killing worker %s: %w", t.Worker, err)
		}
		if ctx.Err() != nil {
			return t.left()
		}
	}
}

// left lists what does not end, at the time limit.
func (t *Tree) left() ([]Process, error) {
	members, err := t.members()
	if err != nil {
		return nil, err
	}
	var left []Process
	for _, member := range members {
		left = append(left, member.identity())
	}
	return left, nil
}

// killGroup kills Python's process group in one step, which its forks can not outrun. The group's number is safe to
// use while Python exists, as a zombie too, or while one of the members is in it.
func (t *Tree) killGroup(members []procStat) {
	for _, member := range members {
		if t.Python.PID > 1 && member.group == t.Python.PID {
			_ = unix.Kill(-t.Python.PID, unix.SIGKILL) // ESRCH: all ended meanwhile
			return
		}
	}
}

// killMembers kills processes through pidfds and waits a moment for their ends.
func killMembers(members []procStat) error {
	var handles []*processHandle
	defer func() {
		for _, handle := range handles {
			handle.close()
		}
	}()
	var failures []error
	for _, member := range members {
		handle, err := openMember(member)
		if err == nil {
			if err = handle.kill(); err != nil {
				handle.close()
			}
		}
		switch {
		case err == nil:
			handles = append(handles, handle)
		case !errors.Is(err, ErrProcessGone):
			failures = append(failures, fmt.Errorf("process %d: %w", member.pid, err))
		}
	}
	deadline := time.NewTimer(killRound)
	defer deadline.Stop()
	for _, handle := range handles {
		ended := make(chan struct{})
		handle.notify(ended)
		select {
		case <-ended:
		case <-deadline.C:
			return errors.Join(failures...)
		}
	}
	return errors.Join(failures...)
}
