//go:build unix

package envbuild

import (
	"os/exec"
	"syscall"
	"time"
)

// ownGroup lets the end of a command's context end its whole process group.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
}
