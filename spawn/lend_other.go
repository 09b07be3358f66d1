//go:build !linux

package spawn

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// canLend is false: macOS has no sockets of this family that keep the borders of packets, Windows hands over no sockets.
const canLend = false

var errNoLending = errors.New("connections are not lent on this system")

// lentEnd is never open here.
type lentEnd struct{}

func lentConnection() (lentEnd, inheritedEnds, error) {
	return lentEnd{}, inheritedEnds{}, errNoLending
}

func (lentEnd) close() {}

func (lentEnd) shutdown() {}

func (l *launcher) lendTraffic(context.Context, launcherpb.Launcher_TrafficServer) error {
	<-l.traffic
	return status.Error(codes.Unimplemented, errNoLending.Error())
}

func newLentConn(_ *worker, _ launcherpb.Launcher_TrafficClient, cancel context.CancelFunc) (traffic, error) {
	cancel()
	return nil, errNoLending
}
