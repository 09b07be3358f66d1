package supervisor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// peerOf reads what a socket knows; its error begins with what could not be read.
func peerOf(descriptor int) (credentials, error) {
	user, err := unix.GetsockoptXucred(descriptor, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return credentials{}, fmt.Errorf("user: %w", err)
	}
	pid, err := unix.GetsockoptInt(descriptor, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		return credentials{}, fmt.Errorf("PID: %w", err)
	}
	return credentials{pid: pid, uid: int(user.Uid)}, nil
}
