package spawn

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultMemoryFileQuota is half of the memory that is available to this process now, in bytes: what /proc/meminfo
// calls available, or what the limits of its control groups leave, whichever is less.
func DefaultMemoryFileQuota() int64 { return availableMemory("/proc", "/sys/fs/cgroup") / 2 }

// availableMemory takes the places of /proc and of the control groups' mounts, for tests.
func availableMemory(proc, cgroups string) int64 {
	available := int64(math.MaxInt64)
	if content, err := os.ReadFile(filepath.Join(proc, "meminfo")); err == nil {
		if kibibytes, found := fieldAfter(content, "MemAvailable:"); found {
			available = kibibytes << 10
		}
	}
	content, err := os.ReadFile(filepath.Join(proc, "self", "cgroup"))
	if err != nil {
		return available
	}
	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			for _, mount := range []string{cgroups, filepath.Join(cgroups, "unified")} {
				available = min(available, cgroupLeft(mount, parts[2], "memory.max", "memory.current", "inactive_file"))
			}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			available = min(available, cgroupLeft(filepath.Join(cgroups, "memory"), parts[2],
				"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
		}
	}
	return available
}

// cgroupLeft is what the limits of a control group and its ancestors leave. File pages that nobody uses count as free.
func cgroupLeft(mount, group, limitFile, usageFile, reclaimable string) int64 {
	left := int64(math.MaxInt64)
	// Inside a container the group's own path may not be visible: the mount's root then is the container's group.
	for group = filepath.Clean("/" + group); ; group = filepath.Dir(group) {
		folder := filepath.Join(mount, group)
		limit, limited := readNumber(filepath.Join(folder, limitFile))
		usage, known := readNumber(filepath.Join(folder, usageFile))
		if limited && known {
			if content, err := os.ReadFile(filepath.Join(folder, "memory.stat")); err == nil {
				if bytes, found := fieldAfter(content, reclaimable); found {
					usage -= min(bytes, usage)
				}
			}
			left = min(left, max(0, limit-usage))
		}
		if group == "/" {
			return left
		}
	}
}

// readNumber reads a file that holds one number; "max" is none.
func readNumber(path string) (int64, bool) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	number, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
	return number, err == nil
}

// fieldAfter finds the number after a name at the beginning of a line.
func fieldAfter(content []byte, name string) (int64, bool) {
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == name {
			number, err := strconv.ParseInt(fields[1], 10, 64)
			return number, err == nil
		}
	}
	return 0, false
}
