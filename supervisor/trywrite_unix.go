//go:build unix

package supervisor

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// newTryWrite returns a function that writes what the connection takes at once and does not wait; nil when the
// connection has no descriptor to do so.
func newTryWrite(conn net.Conn) func([]byte) (int, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return func(content []byte) (int, error) {
		var written int
		var writeErr error
		err := raw.Write(func(descriptor uintptr) bool {
			for {
				written, writeErr = unix.Write(int(descriptor), content)
				if !errors.Is(writeErr, unix.EINTR) {
					return true // also after EAGAIN: waiting is somebody else's business
				}
			}
		})
		if err != nil {
			return 0, err
		}
		if errors.Is(writeErr, unix.EAGAIN) {
			return 0, nil
		}
		return max(0, written), writeErr
	}
}
