package spawn

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/windows"
)

const processAccess = windows.SYNCHRONIZE | windows.PROCESS_TERMINATE | windows.PROCESS_QUERY_LIMITED_INFORMATION

// processHandle is a handle to a process: as long as it is open its PID is not used again.
type processHandle struct {
	process windows.Handle
	quit    windows.Handle // an event that makes notify's goroutine return
	once    sync.Once
	watcher sync.WaitGroup
}

func openProcess(pid int) (*processHandle, error) {
	process, err := windows.OpenProcess(processAccess, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil, ErrProcessGone
	}
	if err != nil {
		return nil, os.NewSyscallError("OpenProcess", err)
	}
	quit, err := windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		_ = windows.CloseHandle(process)
		return nil, os.NewSyscallError("CreateEvent", err)
	}
	return &processHandle{process: process, quit: quit}, nil
}

// startTime is the process's creation time in 100 ns since 1601.
func startTime(pid int) (string, error) {
	handle, err := openProcess(pid)
	if err != nil {
		return "", err
	}
	defer handle.close()
	if handle.ended() {
		return "", ErrProcessGone
	}
	var creation, exit, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(handle.process, &creation, &exit, &kernel, &user); err != nil {
		return "", os.NewSyscallError("GetProcessTimes", err)
	}
	return strconv.FormatInt(int64(creation.HighDateTime)<<32|int64(creation.LowDateTime), 10), nil
}

func (h *processHandle) ended() bool {
	event, err := windows.WaitForSingleObject(h.process, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}

// notify closes done when the process ends. It is called at most once.
func (h *processHandle) notify(done chan<- struct{}) {
	h.watcher.Go(func() {
		event, err := windows.WaitForMultipleObjects([]windows.Handle{h.process, h.quit}, false, windows.INFINITE)
		if err == nil && event == windows.WAIT_OBJECT_0 {
			close(done)
		}
	})
}

func (h *processHandle) kill() error {
	err := windows.TerminateProcess(h.process, killedExitCode)
	if err != nil && h.ended() {
		return ErrProcessGone
	}
	return os.NewSyscallError("TerminateProcess", err)
}

// close ends notify's goroutine, if notify was called, and waits for it.
func (h *processHandle) close() {
	h.once.Do(func() {
		_ = windows.SetEvent(h.quit)
		h.watcher.Wait()
		_ = windows.CloseHandle(h.quit)
		_ = windows.CloseHandle(h.process)
	})
}

// childStartTime is startTime for a child that nobody has waited for.
func childStartTime(pid int) (string, error) { return startTime(pid) }
