//go:build unix

package envbuild

import (
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// detach gives a guard its own session: a terminal's Ctrl-C is for the build, which then tells the guard, and
// nothing that runs under it can ask a question there.
func detach(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// tree is the process tree of one guard.
type tree struct {
	leader atomic.Int64 // process group of the program
	ending atomic.Bool
}

// prepareTree makes this process the one that orphans of its descendants come to, where the system can.
func prepareTree() (*tree, error) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	return &tree{}, becomeReaper()
}

func (t *tree) configure(command *exec.Cmd) { command.SysProcAttr = childAttributes() }

func (t *tree) start(command *exec.Cmd) error {
	if err := startChild(command); err != nil {
		return err
	}
	t.leader.Store(int64(command.Process.Pid))
	if t.ending.Load() {
		t.kill()
	}
	return nil
}

// kill ends the program's process group and every other descendant, again and again while new ones appear: the
// guard's own end follows from the program's.
func (t *tree) kill() {
	t.ending.Store(true)
	if leader := t.leader.Load(); leader > 0 {
		_ = syscall.Kill(-int(leader), syscall.SIGKILL) // gone already is as good
		killDescendants()
	}
}

// sweep ends and reaps what the program left behind.
func (t *tree) sweep() {
	t.kill()
	for {
		killDescendants()
		var status syscall.WaitStatus
		_, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && err != syscall.EINTR {
			return // ECHILD: nobody is left
		}
	}
}

// exitCode is the program's code, or 128 and the signal's number as a shell has it.
func exitCode(state *os.ProcessState) int {
	if state == nil {
		return guardFailedCode
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
