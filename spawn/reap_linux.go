package spawn

import (
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper collects the children that this process was given as a subreaper. It never waits for "any child": that would
// take the status of a child that somebody else waits for.
type reaper struct {
	signals chan os.Signal
	quit    chan struct{}
	group   sync.WaitGroup
	adopted func(procStat) bool
}

// startReaper makes this process a subreaper and reaps every zombie child for which adopted says yes.
func startReaper(adopted func(procStat) bool) (*reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming a child subreaper: %w", err)
	}
	r := &reaper{signals: make(chan os.Signal, 1), quit: make(chan struct{}), adopted: adopted}
	signal.Notify(r.signals, unix.SIGCHLD)
	r.group.Go(r.run)
	return r, nil
}

func (r *reaper) run() {
	for {
		select {
		case <-r.signals:
			r.reap()
		case <-r.quit:
			r.reap()
			return
		}
	}
}

// reap collects what has ended by now.
func (r *reaper) reap() {
	table, err := readProcessTable()
	if err != nil {
		return // no descriptor is left; the next SIGCHLD comes
	}
	self := os.Getpid()
	for pid, stat := range table {
		if stat.parent == self && stat.ended() && r.adopted(stat) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

func (r *reaper) stop() {
	signal.Stop(r.signals)
	close(r.quit)
	r.group.Wait()
}

// BecomeSubreaper makes this process the parent of its orphaned descendants, such as those of a launcher that was
// killed, and reaps them by PID. A child is taken for adopted when it is in another session than this process and is
// no launcher of this process; children that a caller starts in a session of their own would be, so there must be none.
func BecomeSubreaper() (stop func(), err error) {
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("finding this process's session: %w", err)
	}
	r, err := startReaper(func(stat procStat) bool {
		_, own := ownLaunchers.Load(stat.pid)
		return !own && stat.session != session
	})
	if err != nil {
		return nil, err
	}
	return r.stop, nil
}
