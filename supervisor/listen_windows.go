package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// listen opens the named pipe that stands for the socket, open to its user alone.
func listen(_ context.Context, socket string) (net.Listener, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("finding out who we are: %w", err)
	}
	listener, err := winio.ListenPipe(api.PipeName(socket), &winio.PipeConfig{
		SecurityDescriptor: "D:P(A;;GA;;;" + user.User.Sid.String() + ")", // protected: nothing is inherited
		InputBufferSize:    64 << 10,
		OutputBufferSize:   64 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", api.PipeName(socket), err)
	}
	return listener, nil
}

// removeSocket has nothing to do: a pipe goes with its listener.
func removeSocket(string) error { return nil }

// privateDirectory makes a folder; the user's own application data is private already.
func privateDirectory(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("making the folder %s: %w", path, err)
	}
	return nil
}

// newTryWrite returns nothing: a pipe's writes wait, so all of them go through the queue.
func newTryWrite(net.Conn) func([]byte) (int, error) { return nil }
