package supervisor

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/windows"
)

// credentials are what the system says about the process at the other end of a connection.
type credentials struct {
	pid int
	uid int
}

// readCredentials asks the system who opened the pipe. Only its own user could, so the user is ours.
func readCredentials(conn net.Conn) (credentials, error) {
	pipe, ok := conn.(interface{ Fd() uintptr })
	if !ok {
		return credentials{}, fmt.Errorf("a connection of type %T has no credentials", conn)
	}
	var pid uint32
	if err := windows.GetNamedPipeClientProcessId(windows.Handle(pipe.Fd()), &pid); err != nil {
		return credentials{}, fmt.Errorf("reading a client's PID: %w", err)
	}
	return credentials{pid: int(pid), uid: os.Geteuid()}, nil
}
