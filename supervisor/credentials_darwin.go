package supervisor

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// credentials are what the system says about the process at the other end of a connection.
type credentials struct {
	pid int
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
	var user *unix.Xucred
	var pid int
	var userErr, pidErr error
	if err := raw.Control(func(descriptor uintptr) {
		user, userErr = unix.GetsockoptXucred(int(descriptor), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		pid, pidErr = unix.GetsockoptInt(int(descriptor), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	}); err != nil {
		return credentials{}, fmt.Errorf("reading a client's credentials: %w", err)
	}
	if userErr != nil {
		return credentials{}, fmt.Errorf("reading a client's user: %w", userErr)
	}
	if pidErr != nil {
		return credentials{}, fmt.Errorf("reading a client's PID: %w", pidErr)
	}
	return credentials{pid: pid, uid: int(user.Uid)}, nil
}
