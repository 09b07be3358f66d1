package spawn

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func socketPair() ([2]int, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return ends, os.NewSyscallError("socketpair", err)
}

// prepare gives Python its own process group, its death with the launcher's thread, and its place in the control group.
func (c *child) prepare(inherited inheritedEnds, cgroup string) (release func(), err error) {
	c.command.ExtraFiles = []*os.File{inherited.file}
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cgroup == "" {
		return func() {}, nil
	}
	folder, err := openCgroup(cgroup)
	if err != nil {
		return nil, err
	}
	c.command.SysProcAttr.UseCgroupFD = true
	c.command.SysProcAttr.CgroupFD = int(folder.Fd())
	return func() { _ = folder.Close() }, nil
}
