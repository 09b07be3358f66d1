package supervisor

import (
	"os"

	"github.com/shirou/gopsutil/v3/process"
)

// ownRSS is this process's resident memory in bytes; 0 when it can not be read.
func ownRSS() int64 {
	self, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return 0
	}
	info, err := self.MemoryInfo()
	if err != nil {
		return 0
	}
	return int64(info.RSS)
}

// sharedRSS is 0: pages of shared files are not charged to a process here.
func sharedRSS(int) int64 { return 0 }
