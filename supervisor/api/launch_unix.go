//go:build unix

package api

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// inherit hands a file to the child and returns the number of its descriptor there.
func inherit(command *exec.Cmd, file *os.File) string {
	command.ExtraFiles = append(command.ExtraFiles, file)
	return strconv.Itoa(2 + len(command.ExtraFiles))
}

// detach gives the child a session of its own: no terminal's signal reaches it.
func detach(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

func rootDirectory() string { return "/" }
