//go:build !linux

package bench

import (
	"time"

	"github.com/shirou/gopsutil/v3/process"
)

// memoryOf is a process's resident set; what of it is private is not known here.
func memoryOf(pid int) (private, resident int64, err error) {
	found, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, 0, err
	}
	memory, err := found.MemoryInfo()
	if err != nil {
		return 0, 0, err
	}
	return 0, int64(memory.RSS), nil
}

// processorTime is what a process has used so far.
func processorTime(pid int) (time.Duration, error) {
	found, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, err
	}
	times, err := found.Times()
	if err != nil {
		return 0, err
	}
	return time.Duration((times.User + times.System) * float64(time.Second)), nil
}
