package supervisor

import (
	"bytes"
	"os"
	"strconv"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

// ownRSS is this process's resident memory in bytes; 0 when it can not be read.
func ownRSS() int64 {
	content, err := spawn.ReadProcessFile(os.Getpid(), "statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(content)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// sharedRSS is what of a process's resident memory are pages of shared memory files, in bytes; 0 when it can not be read.
func sharedRSS(pid int) int64 {
	content, err := spawn.ReadProcessFile(pid, "status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(content) {
		if value, found := bytes.CutPrefix(line, []byte("RssShmem:")); found {
			if fields := bytes.Fields(value); len(fields) == 2 {
				kilobytes, _ := strconv.ParseInt(string(fields[0]), 10, 64) // 0 when it is no number
				return kilobytes << 10
			}
		}
	}
	return 0
}
