package spawn

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
)

// ownBinary is this program's file as it was started.
func ownBinary() (string, error) { return os.Executable() }

func launcherDirectory(folder string) string { return folder }

// launcherAttributes give a launcher its own session: no terminal and no signal to our group reaches it.
func launcherAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// socketPathLimit is the longest path that fits into a socket address.
const socketPathLimit = 103

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > socketPathLimit {
		return nil, fmt.Errorf("the socket's path %s has %d bytes, at most %d are possible: choose a shorter runtime folder with COMFY_SUPERVISOR_RUNTIME_DIR",
			path, len(path), socketPathLimit)
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
