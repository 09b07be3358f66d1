//go:build linux || darwin

package supervisor

import (
	"fmt"
	"net"
)

// credentials are what the system says about the process at the other end of a connection.
type credentials struct {
	pid int // as seen from our PID namespace; 0 when it is in none below ours
	uid int
}

// readCredentials asks the kernel who connected.
func readCredentials(conn net.Conn) (credentials, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return credentials{}, fmt.Errorf("a connection of type %T has no credentials", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return credentials{}, fmt.Errorf("reading a client's credentials: %w", err)
	}
	var found credentials
	var socketErr error
	if err := raw.Control(func(descriptor uintptr) {
		found, socketErr = peerOf(int(descriptor))
	}); err != nil {
		return credentials{}, fmt.Errorf("reading a client's credentials: %w", err)
	}
	if socketErr != nil {
		return credentials{}, fmt.Errorf("reading a client's %w", socketErr)
	}
	return found, nil
}
