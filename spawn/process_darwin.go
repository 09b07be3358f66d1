package spawn

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// zombieState is SZOMB in kinfo_proc.
const zombieState = 5

func readProcess(pid int) (*unix.KinfoProc, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) { // EIO: the answer is empty
		return nil, ErrProcessGone
	}
	if err != nil {
		return nil, os.NewSyscallError("sysctl", err)
	}
	return info, nil
}

func processStart(info *unix.KinfoProc) string {
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec)
}

func startTime(pid int) (string, error) {
	info, err := readProcess(pid)
	if err != nil {
		return "", err
	}
	if info.Proc.P_stat == zombieState {
		return "", ErrProcessGone
	}
	return processStart(info), nil
}

// processHandle is a kqueue that reports the process's end. It keeps the start time, since signals go to a PID.
type processHandle struct {
	pid     int
	start   string
	queue   int
	quit    [2]int // a pipe; its closed writing end makes notify's goroutine return
	once    sync.Once
	watcher sync.WaitGroup
}

func openProcess(pid int) (*processHandle, error) {
	start, err := startTime(pid)
	if err != nil {
		return nil, err
	}
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(queue)
	handle := &processHandle{pid: pid, start: start, queue: queue}
	if err := unix.Pipe(handle.quit[:]); err != nil {
		_ = unix.Close(queue)
		return nil, os.NewSyscallError("pipe", err)
	}
	unix.CloseOnExec(handle.quit[0])
	unix.CloseOnExec(handle.quit[1])
	var exit, quit unix.Kevent_t
	unix.SetKevent(&exit, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	exit.Fflags = unix.NOTE_EXIT
	unix.SetKevent(&quit, handle.quit[0], unix.EVFILT_READ, unix.EV_ADD)
	if _, err := unix.Kevent(queue, []unix.Kevent_t{exit, quit}, nil, nil); err != nil {
		handle.close()
		if errors.Is(err, unix.ESRCH) {
			return nil, ErrProcessGone
		}
		return nil, os.NewSyscallError("kevent", err)
	}
	return handle, nil
}

// notify closes done when the process ends. It is called at most once.
func (h *processHandle) notify(done chan<- struct{}) {
	h.watcher.Go(func() {
		events := make([]unix.Kevent_t, 2)
		for {
			count, err := unix.Kevent(h.queue, nil, events, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			for _, event := range events[:max(count, 0)] {
				if event.Filter == unix.EVFILT_READ {
					return
				}
				close(done)
				return
			}
		}
	})
}

func (h *processHandle) signal(signal unix.Signal) error {
	if start, err := startTime(h.pid); err != nil || start != h.start {
		return ErrProcessGone
	}
	err := unix.Kill(h.pid, signal)
	if errors.Is(err, unix.ESRCH) {
		return ErrProcessGone
	}
	return os.NewSyscallError("kill", err)
}

func (h *processHandle) kill() error { return h.signal(unix.SIGKILL) }

// close ends notify's goroutine, if notify was called, and waits for it.
func (h *processHandle) close() {
	h.once.Do(func() {
		_ = unix.Close(h.quit[1])
		h.watcher.Wait()
		_ = unix.Close(h.quit[0])
		_ = unix.Close(h.queue)
	})
}

// childStartTime is startTime for a child that nobody has waited for.
func childStartTime(pid int) (string, error) { return startTime(pid) }
