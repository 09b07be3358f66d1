//go:build unix

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// listen opens the socket. What lies at its path is removed when nobody listens there any more.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := privateDirectory(filepath.Dir(socket)); err != nil {
		return nil, err
	}
	if err := removeStaleSocket(ctx, socket); err != nil {
		return nil, err
	}
	address, release, err := api.SocketAddress(socket)
	if err != nil {
		return nil, err
	}
	defer release()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", socket, err)
	}
	listener.SetUnlinkOnClose(false) // by then the address may lead elsewhere; we remove the path ourselves
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("making %s private: %w", socket, err)
	}
	return listener, nil
}

func removeStaleSocket(ctx context.Context, socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for a stale socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("listening at %s: there is a %s; remove it or choose another socket", socket, info.Mode().Type())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if conn, err := api.Dial(ctx, socket); err == nil {
		_ = conn.Close()
		return fmt.Errorf("listening at %s: another process listens there already, for another runtime directory", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a stale socket: %w", err)
	}
	return nil
}

// removeSocket removes the socket's path after the listener was closed.
func removeSocket(socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket: %w", err)
	}
	return nil
}

// privateDirectory makes a folder that only this user can enter, or makes an existing one so.
func privateDirectory(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making the private folder %s: %w", path, err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Errorf("checking the private folder %s: %w", path, err)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the folder %s belongs to user %d, not to us (%d): choose another one with --runtime-dir", path, stat.Uid, os.Geteuid())
	}
	if stat.Mode&0o077 != 0 {
		if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("making the folder %s private: %w", path, err)
		}
	}
	return nil
}
