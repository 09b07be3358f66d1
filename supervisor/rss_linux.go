package supervisor

import (
	"bytes"
	"os"
	"strconv"
)

// ownRSS is this process's resident memory in bytes; 0 when it can not be read.
func ownRSS() int64 {
	content, err := os.ReadFile("/proc/self/statm")
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
