package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// killedExitCode is the exit code of what we terminate: STATUS_CONTROL_C_EXIT, which nothing returns by itself.
const killedExitCode = 0xC000013A

// launcherJob is the Job Object of a launcher's process, which everything it starts is born into. It is never closed:
// its end is the launcher's, and kills all that is in it. Zero in other processes.
var launcherJob = sync.OnceValues(func() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		_ = windows.CloseHandle(job)
		return 0, os.NewSyscallError("SetInformationJobObject", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		_ = windows.CloseHandle(job)
		return 0, os.NewSyscallError("AssignProcessToJobObject", err)
	}
	return job, nil
})

// maxJobProcesses bounds the list of a job's processes.
const maxJobProcesses = 4096

// jobProcesses is JOBOBJECT_BASIC_PROCESS_ID_LIST with room for maxJobProcesses.
type jobProcesses struct {
	assigned, listed uint32
	pids             [maxJobProcesses]uintptr
}

// members lists the processes in the launcher's job. Elsewhere, after a launcher's death, the kernel has ended them.
func (t *Tree) members() ([]int, error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	if t.Launcher != self {
		if t.Python.Alive() {
			return []int{t.Python.PID}, nil
		}
		return nil, nil
	}
	job, err := launcherJob()
	if err != nil {
		return nil, err
	}
	list := new(jobProcesses)
	err = windows.QueryInformationJobObject(job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(list)), uint32(unsafe.Sizeof(*list)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil, fmt.Errorf("listing the processes of worker %s: %w", t.Worker, os.NewSyscallError("QueryInformationJobObject", err))
	}
	var members []int
	for _, pid := range list.pids[:min(list.listed, maxJobProcesses)] {
		if int(pid) != self.PID {
			members = append(members, int(pid))
		}
	}
	return members, nil
}

func (t *Tree) processes() ([]Process, error) {
	members, err := t.members()
	if err != nil {
		return nil, err
	}
	var processes []Process
	for _, pid := range members {
		if process, err := Identify(pid); err == nil {
			processes = append(processes, process)
		}
	}
	return processes, nil
}

func (t *Tree) statistics() (TreeStatistics, error) {
	members, err := t.members()
	if err != nil {
		return TreeStatistics{}, err
	}
	statistics := TreeStatistics{Processes: len(members)}
	for _, pid := range members {
		statistics.RSSBytes += residentBytesOf(pid)
	}
	return statistics, nil
}

// terminate has nothing to send: a console event would reach what has a console only.
func (t *Tree) terminate() error { return nil }

// killRound is the time between two looks.
const killRound = 20 * time.Millisecond

func (t *Tree) kill(ctx context.Context) ([]Process, error) {
	ticker := time.NewTicker(killRound)
	defer ticker.Stop()
	for {
		members, err := t.members()
		if err != nil || len(members) == 0 {
			return nil, err
		}
		var failures []error
		for _, pid := range members {
			handle, err := openProcess(pid)
			if err == nil {
				err = handle.kill()
				handle.close()
			}
			if err != nil && !errors.Is(err, ErrProcessGone) {
				failures = append(failures, fmt.Errorf("process %d: %w", pid, err))
			}
		}
		if err := errors.Join(failures...); err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("killing worker %s: %w", t.Worker, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return t.processes()
		}
	}
}

// Sweep has nothing to do: a launcher's Job Object ends with it and takes its tree along.
func Sweep(context.Context, map[string]bool) (killed []Process, err error) { return nil, nil }

// findLaunchers returns the recorded launcher while it lives.
func findLaunchers(tree *Tree) ([]Process, error) {
	if tree.Launcher.IsZero() || !tree.Launcher.Alive() {
		return nil, nil
	}
	return []Process{tree.Launcher}, nil
}

// BecomeSubreaper does nothing: processes have no parent to lose here.
func BecomeSubreaper() (stop func(), err error) { return func() {}, nil }
