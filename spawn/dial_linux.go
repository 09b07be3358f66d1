package spawn

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// socketPathLimit is the longest path that fits into a socket address.
const socketPathLimit = 107

// dialUnix connects to a socket, through a descriptor of its folder if its path is too long.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	if len(path) <= socketPathLimit {
		return dialer.DialContext(ctx, "unix", path)
	}
	folder, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(folder)
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder, filepath.Base(path)))
}
