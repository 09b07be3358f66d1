//go:build !linux

package spawn

import "github.com/shirou/gopsutil/v3/mem"

// DefaultMemoryFileQuota is half of the memory that is available now, in bytes; 1 GiB when the system does not tell.
func DefaultMemoryFileQuota() int64 {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return 1 << 30
	}
	return int64(memory.Available / 2)
}
