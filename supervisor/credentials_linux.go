package supervisor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// peerOf reads what a socket knows; its error begins with what could not be read.
func peerOf(descriptor int) (credentials, error) {
	found, err := unix.GetsockoptUcred(descriptor, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return credentials{}, fmt.Errorf("credentials: %w", err)
	}
	return credentials{pid: int(found.Pid), uid: int(found.Uid)}, nil
}
