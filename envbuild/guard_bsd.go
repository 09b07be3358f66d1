//go:build unix && !linux

package envbuild

import (
	"os/exec"
	"syscall"
)

// becomeReaper: this system has no reaper but init; the process group is what is ended.
func becomeReaper() error { return nil }

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func startChild(command *exec.Cmd) error { return command.Start() }

// killDescendants: the process group has been ended; who left it is not found here.
func killDescendants() {}
