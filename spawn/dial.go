package spawn

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// dialerOption makes gRPC connect to a launcher's address, which may be longer than a socket address allows.
func dialerOption(address func() (network, address string)) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		network, address := address()
		if network == "unix" {
			return dialUnix(ctx, address)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	})
}

// plainError takes the message out of a gRPC error: "rpc error: code = Aborted desc =" helps nobody.
func plainError(err error) error {
	if known, ok := status.FromError(err); ok && known != nil {
		return &launcherError{message: known.Message(), cause: err}
	}
	return err
}

// launcherError is an error that a launcher returned.
type launcherError struct {
	message string
	cause   error
}

func (e *launcherError) Error() string { return e.message }
func (e *launcherError) Unwrap() error { return e.cause }
