package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// memoryOf is what a process has for itself and has written, and its resident set.
func memoryOf(pid int) (private, resident int64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(content) {
		fields := bytes.Fields(line)
		if len(fields) != 3 {
			continue
		}
		kibibytes, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			continue // the address range
		}
		switch string(fields[0]) {
		case "Private_Dirty:":
			private = kibibytes << 10
		case "Rss:":
			resident = kibibytes << 10
		}
	}
	return private, resident, nil
}

// processorTime is what all threads of a process have used so far; the scheduler counts nanoseconds.
func processorTime(pid int) (time.Duration, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, thread := range threads {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		if err != nil {
			continue // it has ended
		}
		var used, waited, slices int64
		if _, err := fmt.Sscan(string(content), &used, &waited, &slices); err != nil {
			return 0, fmt.Errorf("reading %q: %w", content, err)
		}
		total += time.Duration(used)
	}
	return total, nil
}
