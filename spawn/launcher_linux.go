package spawn

import (
	"os"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of what loses its parent below it, and names it for ps and top.
func (l *launcher) adoptOrphans() error {
	_ = os.WriteFile("/proc/self/comm", []byte("comfy-launcher"), 0)
	reaper, err := startReaper(l.isAdopted)
	if err != nil {
		return err
	}
	l.reaper = reaper
	return nil
}

// descriptorFolder lists this process's descriptors.
const descriptorFolder = "/proc/self/fd"

// isAdopted is true for every child but Python, whose status attend takes. While Python is being started nobody is
// reaped: it is not known yet which child it is.
func (l *launcher) isAdopted(stat procStat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.child == nil {
		return !l.starting
	}
	return stat.pid != l.child.process.PID
}

func (l *launcher) reapAdopted() { l.reaper.reap() }

func (l *launcher) leaveProcess() { l.reaper.stop() }

func replaceDescriptor(from, to int) error { return unix.Dup3(from, to, 0) }

// residentBytes is this process's resident set.
func residentBytes() int64 {
	stat, err := readStat(os.Getpid())
	if err != nil {
		return 0
	}
	return stat.residentPages * int64(os.Getpagesize())
}

// outOfMemoryKills counts what the kernel has killed for lack of memory since it started, in any control group.
func outOfMemoryKills() int64 {
	content, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	kills, _ := fieldAfter(content, "oom_kill") // absent before Linux 4.13
	return kills
}
