package envbuild

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// detach keeps a console's Ctrl-C from the guard: the build is told, and tells the guard.
func detach(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// tree is the Job Object that the guard and everything below it belong to.
type tree struct{ job windows.Handle }

// prepareTree puts this process into a Job Object that ends with its last handle: with this process.
func prepareTree() (*tree, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return nil, fmt.Errorf("setting up a job object: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return nil, fmt.Errorf("joining a job object: %w", err)
	}
	return &tree{job: job}, nil
}

func (t *tree) configure(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{HideWindow: true}
}

func (t *tree) start(command *exec.Cmd) error { return command.Start() }

// kill ends everything in the job, this process last of all.
func (t *tree) kill() { _ = windows.TerminateJobObject(t.job, 1) }

// sweep: what the program left behind ends with this process, which holds the job's only handle.
func (t *tree) sweep() {}

func exitCode(state *os.ProcessState) int {
	if state == nil {
		return guardFailedCode
	}
	return state.ExitCode()
}
