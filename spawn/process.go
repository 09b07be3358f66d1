package spawn

import (
	"errors"
	"fmt"
	"os"
)

// Process identifies a process for good: a PID alone is used again.
type Process struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat on Linux, the creation time elsewhere; opaque, compared as text.
	StartTime string `json:"start_time,omitempty"`
}

// ErrProcessGone means that there is no such process, or that its PID now belongs to another one.
var ErrProcessGone = errors.New("no such process")

// String is for logs and errors.
func (p Process) String() string {
	return fmt.Sprintf("process %d (start time %s)", p.PID, p.StartTime)
}

// IsZero reports whether p names no process.
func (p Process) IsZero() bool { return p.PID == 0 }

// Identify finds the start time of a running process. It returns ErrProcessGone when there is none.
func Identify(pid int) (Process, error) {
	start, err := startTime(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	return Process{PID: pid, StartTime: start}, nil
}

// Self identifies this process.
func Self() (Process, error) { return Identify(os.Getpid()) }

// Alive reports whether the process runs: it exists, is the same one, and is not a zombie.
func (p Process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.StartTime
}

// Watch observes one process's end through a handle that can not be fooled by a reused PID. It must be closed.
type Watch struct {
	process Process
	done    chan struct{}
	handle  *processHandle
}

// WatchProcess starts to observe a process. It returns ErrProcessGone when it is not running; an empty StartTime fits
// any process with that PID.
func WatchProcess(process Process) (*Watch, error) { return watch(process, startTime) }

// watchChild is WatchProcess for a child that nobody has waited for: also one that has ended already.
func watchChild(pid int) (*Watch, error) { return watch(Process{PID: pid}, childStartTime) }

func watch(process Process, startTime func(pid int) (string, error)) (*Watch, error) {
	handle, err := openProcess(process.PID)
	if err != nil {
		return nil, fmt.Errorf("watching %v: %w", process, err)
	}
	// The handle is open: from here on the PID can not come to mean another process unnoticed.
	start, err := startTime(process.PID)
	if err == nil && process.StartTime != "" && start != process.StartTime {
		err = ErrProcessGone
	}
	if err != nil {
		handle.close()
		return nil, fmt.Errorf("watching %v: %w", process, err)
	}
	process.StartTime = start
	watch := &Watch{process: process, done: make(chan struct{}), handle: handle}
	handle.notify(watch.done)
	return watch, nil
}

// Process is what is watched, with its start time.
func (w *Watch) Process() Process { return w.process }

// Done is closed when the process has ended. It stays open after Close.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Kill ends the process at once. Killing an ended process is no error.
func (w *Watch) Kill() error {
	if err := w.handle.kill(); err != nil && !errors.Is(err, ErrProcessGone) {
		return fmt.Errorf("killing %v: %w", w.process, err)
	}
	return nil
}

// Close ends the observation and waits for its goroutine.
func (w *Watch) Close() { w.handle.close() }
