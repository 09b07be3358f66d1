package envbuild

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes orphans of descendants children of this process, so that none escapes by outliving its parent.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of descendants: %w", err)
	}
	return nil
}

// childAttributes also end the program when its guard is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startChild starts the program from a thread that is never given back: the kernel sends the parent-death
// signal when the thread ends, not the process.
func startChild(command *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- command.Start()
		select {} // keeps the thread until the guard exits
	}()
	return <-started
}

// killDescendants sends SIGKILL to every process below this one.
func killDescendants() {
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// The command name, in parentheses, may hold anything; state and parent follow its end.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(string(fields[1]))
		}
	}
	self := os.Getpid()
	for pid := range parents {
		for ancestor, steps := parents[pid], 0; ancestor > 1 && steps < len(parents); ancestor, steps = parents[ancestor], steps+1 {
			if ancestor == self {
				_ = syscall.Kill(pid, syscall.SIGKILL) // a child of ours is not reaped before, so its PID is its own
				break
			}
		}
	}
}
