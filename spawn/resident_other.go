//go:build darwin || windows

package spawn

import (
	"os"

	"github.com/shirou/gopsutil/v3/process"
)

// residentBytesOf is what a process has in RAM: its resident or its working set.
func residentBytesOf(pid int) int64 {
	memory, err := (&process.Process{Pid: int32(pid)}).MemoryInfo()
	if err != nil {
		return 0 // it ended meanwhile
	}
	return int64(memory.RSS)
}

// residentBytes is that of this process.
func residentBytes() int64 { return residentBytesOf(os.Getpid()) }
