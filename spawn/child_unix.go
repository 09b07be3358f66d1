//go:build unix

package spawn

import (
	"os"

	"golang.org/x/sys/unix"
)

// framesDescriptor is the descriptor that Python finds its end of the connection at.
const framesDescriptor = "3"

// inheritedEnds is Python's end of the connection before Python has it.
type inheritedEnds struct{ file *os.File }

func (e inheritedEnds) close() { _ = e.file.Close() }

func (e inheritedEnds) arguments() []string { return []string{"--frames-fd", framesDescriptor} }

func frameConnection() (frameConn, inheritedEnds, error) {
	ends, err := socketPair()
	if err != nil {
		return nil, inheritedEnds{}, err
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
		return nil, inheritedEnds{}, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(ends[0]), "frames"), inheritedEnds{os.NewFile(uintptr(ends[1]), "frames of Python")}, nil
}

// signalName is the name of the signal that ended a process, empty if none did.
func signalName(state *os.ProcessState) string {
	if status, ok := state.Sys().(interface {
		Signaled() bool
		Signal() unix.Signal
	}); ok && status.Signaled() {
		if name := unix.SignalName(status.Signal()); name != "" {
			return name
		}
		return status.Signal().String()
	}
	return ""
}
