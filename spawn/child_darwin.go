package spawn

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock() // no child may be born before the descriptors are marked
	defer syscall.ForkLock.RUnlock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return ends, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	return ends, nil
}

// prepare gives Python its own process group. There is no parent-death signal here: Python ends at the end of its
// connection, and a supervisor's sweep finds what does not.
func (c *child) prepare(inherited inheritedEnds, _ string) (release func(), err error) {
	c.command.ExtraFiles = []*os.File{inherited.file}
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() {}, nil
}
