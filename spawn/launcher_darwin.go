package spawn

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// reaper has nothing to do: orphans go to launchd here.
type reaper struct{}

// BecomeSubreaper does nothing: this system gives orphans to launchd. Sweep finds them by their mark.
func BecomeSubreaper() (stop func(), err error) { return func() {}, nil }

func (l *launcher) adoptOrphans() error { return nil }
func (l *launcher) reapAdopted()        {}
func (l *launcher) leaveProcess()       {}

func replaceDescriptor(from, to int) error { return unix.Dup2(from, to) }

// closeInherited closes what the supervisor's own parents left open without meaning to: somebody may wait for the end
// of a pipe that this process would hold. What Go opened itself is marked close-on-exec.
func closeInherited() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		descriptor, err := strconv.Atoi(entry.Name())
		if err != nil || descriptor <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(descriptor)
		}
	}
	return nil
}

// outOfMemoryKills is not known here.
func outOfMemoryKills() int64 { return 0 }
