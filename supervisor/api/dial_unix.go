//go:build unix

package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// maxSocketPath is the longest path that a Unix socket's address holds on Linux; elsewhere it is 103.
const maxSocketPath = 107

// SocketAddress returns a path to a socket that an address can hold. Too long ones are reached through a descriptor of
// their folder, which release closes.
func SocketAddress(path string) (address string, release func(), err error) {
	longest := maxSocketPath
	if runtime.GOOS != "linux" {
		longest = 103
	}
	if len(path) <= longest {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("socket path %s has %d bytes, at most %d: choose a shorter runtime directory", path, len(path), longest)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("opening the socket's folder: %w", err)
	}
	address = fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path))
	return address, func() { _ = folder.Close() }, nil
}

// Dial connects to a supervisor's socket.
func Dial(ctx context.Context, socket string) (io.ReadWriteCloser, error) {
	address, release, err := SocketAddress(socket)
	if err != nil {
		return nil, err
	}
	defer release()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", address)
}
