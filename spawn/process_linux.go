package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// processTurns are those of reading about processes: many clients may ask for that at once.
var processTurns = NewTurns(4)

func readAboutProcesses(path string) (content []byte, err error) {
	processTurns.Do(func() { content, err = os.ReadFile(path) })
	return content, err
}

// ReadProcessFile reads a file of /proc/PID.
func ReadProcessFile(pid int, name string) ([]byte, error) {
	return readAboutProcesses("/proc/" + strconv.Itoa(pid) + "/" + name)
}

// procStat is what /proc/PID/stat says that matters here.
type procStat struct {
	pid, parent, group, session int
	state                       byte
	startTime                   string
	residentPages               int64
}

// readStat reads /proc/PID/stat. It returns ErrProcessGone when there is no such process; a zombie is one.
func readStat(pid int) (procStat, error) {
	content, err := ReadProcessFile(pid, "stat")
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return procStat{}, ErrProcessGone
		}
		return procStat{}, err
	}
	return parseStat(content)
}

func parseStat(content []byte) (procStat, error) {
	// The second field is the command in parentheses and may hold anything, parentheses included.
	end := bytes.LastIndexByte(content, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("stat line %q has no command", content)
	}
	open := bytes.IndexByte(content, '(')
	fields := bytes.Fields(content[end+1:])
	if open < 1 || len(fields) < 22 {
		return procStat{}, fmt.Errorf("stat line %q is too short", content)
	}
	stat := procStat{state: fields[0][0], startTime: string(fields[19])}
	for _, number := range []struct {
		text []byte
		to   *int
	}{{bytes.TrimSpace(content[:open]), &stat.pid}, {fields[1], &stat.parent}, {fields[2], &stat.group}, {fields[3], &stat.session}} {
		value, err := strconv.Atoi(string(number.text))
		if err != nil {
			return procStat{}, fmt.Errorf("stat line %q: %w", content, err)
		}
		*number.to = value
	}
	pages, err := strconv.ParseInt(string(fields[21]), 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("stat line %q: %w", content, err)
	}
	stat.residentPages = pages
	return stat, nil
}

// ended reports whether the process has ended and only waits to be reaped.
func (s procStat) ended() bool { return s.state == 'Z' || s.state == 'X' }

func startTime(pid int) (string, error) {
	stat, err := readStat(pid)
	if err != nil {
		return "", err
	}
	if stat.ended() {
		return "", ErrProcessGone
	}
	return stat.startTime, nil
}

// childStartTime is startTime for a child that nobody has waited for; it may have ended.
func childStartTime(pid int) (string, error) {
	stat, err := readStat(pid)
	return stat.startTime, err
}

// processHandle is a pidfd.
type processHandle struct {
	file    *os.File
	watcher sync.WaitGroup // notify's goroutine
}

func openProcess(pid int) (*processHandle, error) {
	// Non-blocking, so that the Go runtime's poller waits for it and no thread does.
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrProcessGone
	}
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	return &processHandle{file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// notify closes done when the process ends. It is called at most once.
func (h *processHandle) notify(done chan<- struct{}) {
	h.watcher.Go(func() {
		connection, err := h.file.SyscallConn()
		if err != nil {
			return // closed
		}
		ended := false
		_ = connection.Read(func(fd uintptr) bool { // fails only when closed
			ended = pidfdEnded(int(fd))
			return ended
		})
		if ended {
			close(done)
		}
	})
}

// pidfdEnded reports whether a pidfd's process has ended.
func pidfdEnded(fd int) bool {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(poll, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && ready > 0 && poll[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0
	}
}

func (h *processHandle) signal(signal unix.Signal) error {
	connection, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := connection.Control(func(fd uintptr) {
		result = unix.PidfdSendSignal(int(fd), signal, nil, 0)
	}); err != nil {
		return err
	}
	if errors.Is(result, unix.ESRCH) {
		return ErrProcessGone
	}
	return os.NewSyscallError("pidfd_send_signal", result)
}

func (h *processHandle) kill() error { return h.signal(unix.SIGKILL) }

// close ends notify's goroutine, if notify was called, and waits for it.
func (h *processHandle) close() {
	_ = h.file.Close() // a second Close is harmless
	h.watcher.Wait()
}
