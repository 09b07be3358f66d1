package spawn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

const canLend = true

// lentEnd is the launcher's own descriptor of the connection that it lends; zero when there is none. It is a bare number
// so that Go's poller does not wake this process at every frame.
type lentEnd struct{ descriptor int }

// lentConnection makes a connection for packets: the launcher's end and Python's.
func lentConnection() (lentEnd, inheritedEnds, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return lentEnd{}, inheritedEnds{}, os.NewSyscallError("socketpair", err)
	}
	return lentEnd{ends[0]}, inheritedEnds{os.NewFile(uintptr(ends[1]), "frames of Python")}, nil
}

func (e lentEnd) close() {
	if e.descriptor > 0 {
		_ = unix.Close(e.descriptor)
	}
}

// shutdown asks Python to end, unless Python does not read.
func (e lentEnd) shutdown() {
	frame, err := wire.AppendFrame(nil, wire.Frame{Header: []byte(shutdownRequest)})
	if err != nil {
		return
	}
	for {
		err := unix.Send(e.descriptor, frame, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EAGAIN) {
			ready := []unix.PollFd{{Fd: int32(e.descriptor), Events: unix.POLLOUT}}
			if count, err := unix.Poll(ready, int(shutdownPatience/time.Millisecond)); count == 0 && err == nil {
				return
			}
		} else if !errors.Is(err, unix.EINTR) {
			return // it is sent, or Python is gone already
		}
	}
}

// lendTraffic is Traffic where the connection to Python is lent: the stream carries phases and the end. The caller has
// the turn; it is given back when the supervisor has let go of the connection.
func (l *launcher) lendTraffic(turn context.Context, stream launcherpb.Launcher_TrafficServer) error {
	lease, err := newLease(l.key)
	if err != nil {
		<-l.traffic
		return status.Error(codes.Internal, err.Error())
	}
	defer l.group.Go(func() {
		lease.end()
		<-l.traffic
	})
	if err := stream.SendHeader(metadata.Pairs(lendingHeader, lineName)); err != nil {
		return err
	}
	sender := &upwardSender{stream: stream}
	select {
	case <-l.started:
	case <-l.ended: // Python could not be started
		return l.sendEnd(sender)
	case <-turn.Done():
		return turnOver(turn)
	}
	lease.begin(l.child.lent)
	l.group.Go(func() { l.carryPhases(turn, sender) })
	select {
	case <-l.ended:
		return l.sendEnd(sender)
	case <-turn.Done():
		return turnOver(turn)
	}
}

// lease is the lending of a connection to one supervisor.
type lease struct {
	key      string
	listener *net.UnixListener
	done     chan struct{} // closed when borrower is set, or nobody has come; nil before begin
	borrower *net.UnixConn // open at the other end as long as the supervisor uses what it was lent
}

// newLease listens for a supervisor that knows the launcher's key. The current directory is the launcher's folder.
func newLease(key string) (*lease, error) {
	_ = os.Remove(lineName) // of an earlier lease whose end was cut short
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: lineName, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for the supervisor that the connection to Python is lent to: %w", err)
	}
	return &lease{key: key, listener: listener}, nil
}

// begin serves the first who knows the key.
func (l *lease) begin(end lentEnd) {
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		for l.borrower == nil {
			conn, err := l.listener.AcceptUnix()
			if err != nil { // closed by end
				return
			}
			if l.lend(conn, end) == nil {
				l.borrower = conn
			} else {
				_ = conn.Close()
			}
		}
		_ = l.listener.Close()
	}()
}

// lend checks the key that the other side shows first, and hands the descriptor over.
func (l *lease) lend(conn *net.UnixConn, end lentEnd) error {
	if err := conn.SetDeadline(time.Now().Add(lineLimit / 3)); err != nil {
		return err
	}
	shown := make([]byte, len(l.key))
	if _, err := io.ReadFull(conn, shown); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(shown, []byte(l.key)) != 1 {
		return errors.New("a wrong key")
	}
	_, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(end.descriptor), nil)
	return err
}

// end waits until the supervisor has let go, but not for long.
func (l *lease) end() {
	_ = l.listener.Close()
	if l.done == nil {
		return
	}
	<-l.done
	if l.borrower == nil {
		return
	}
	_ = l.borrower.SetReadDeadline(time.Now().Add(releaseLimit))
	_, _ = l.borrower.Read(make([]byte, 1)) // nothing is ever sent: it returns at the end, or at the deadline
	_ = l.borrower.Close()
}

// fetchLine gets the descriptor of a launcher's connection to Python. The lease is to be closed when it is used no more.
func fetchLine(ctx context.Context, folder, key string) (line *os.File, lease net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, lineLimit)
	defer cancel()
	conn, err := dialUnix(ctx, hostAddress(folder, "unix", lineName))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, key); err != nil {
		return nil, nil, err
	}
	descriptor, err := readDescriptor(conn)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(descriptor, true); err != nil {
		_ = unix.Close(descriptor)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(descriptor), "frames"), conn, nil
}

// readDescriptor reads the one descriptor that a launcher sends.
func readDescriptor(conn net.Conn) (int, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, size, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	for index := range messages {
		if descriptors, err := unix.ParseUnixRights(&messages[index]); err == nil && len(descriptors) == 1 {
			return descriptors[0], nil
		}
	}
	return -1, errors.New("the launcher refused, or sent no descriptor")
}
