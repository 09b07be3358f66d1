package spawn

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the names of our control groups.
const cgroupPrefix = "comfy-supervisor-worker-"

// createCgroup makes a control group (version 2) for a worker below this process's own, where that is allowed: in a
// delegated subtree. No controller is switched on; it is there to be killed at once.
func createCgroup(worker string) (string, error) {
	parent, err := ownCgroup()
	if err != nil {
		return "", err
	}
	path := filepath.Join(parent, cgroupPrefix+worker)
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", fmt.Errorf("no control group is delegated to us: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, "cgroup.kill")); err != nil {
		return "", errors.Join(fmt.Errorf("control groups can not be killed by this kernel (5.14 can): %w", err), os.Remove(path))
	}
	return path, nil
}

// expectedCgroup is where createCgroup puts a worker's group; empty when it can not be told.
func expectedCgroup(worker string) string {
	parent, err := ownCgroup()
	if err != nil {
		return ""
	}
	return filepath.Join(parent, cgroupPrefix+worker)
}

// ownCgroup finds the folder of this process's control group of version 2.
func ownCgroup() (string, error) {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("finding the control group of this process: %w", err)
	}
	group, found := "", false
	for line := range strings.Lines(string(content)) {
		if group, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			break
		}
	}
	if !found {
		return "", errors.New("there are no control groups of version 2")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("finding the control groups' mount: %w", err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(mounts))
	for scanner.Scan() {
		before, after, found := strings.Cut(scanner.Text(), " - ")
		fields := strings.Fields(before)
		if !found || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, mount := fields[3], fields[4]
		relative, err := filepath.Rel(root, group)
		if err != nil || strings.HasPrefix(relative, "..") {
			continue // this mount shows another part
		}
		return filepath.Join(mount, relative), nil
	}
	return "", errors.New("control groups of version 2 are not mounted")
}

// HoldMemory sets a worker's control group's limits on memory, in bytes: above high its processes are slowed down while the
// kernel takes pages from them, at most they end. An error says why the kernel does not limit it; then nothing does.
func HoldMemory(cgroup string, high, most int64) error {
	if !ourCgroup(cgroup) {
		return errors.New("no control group of version 2 is delegated to the supervisor")
	}
	for _, limit := range []struct {
		file  string
		bytes int64
	}{{"memory.high", high}, {"memory.max", most}} {
		path := filepath.Join(cgroup, limit.file)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the memory controller is not delegated to the supervisor's control groups (%s is missing)", path)
		}
		if err := os.WriteFile(path, []byte(strconv.FormatInt(limit.bytes, 10)), 0); err != nil {
			return fmt.Errorf("limiting a worker's memory: %w", err)
		}
	}
	return nil
}

// openCgroup opens a control group's folder so that a child can be born in it.
func openCgroup(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// killCgroup kills every process in a control group of ours. A group that is gone is no error.
func killCgroup(path string) {
	if ourCgroup(path) {
		_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0) // members are looked for anyway
	}
}

// cgroupMembers lists the processes in a control group; those of a group that is gone are none.
func cgroupMembers(path string) []int {
	if !ourCgroup(path) {
		return nil
	}
	content, err := readAboutProcesses(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ourCgroup keeps a damaged record from having somebody else's group killed.
func ourCgroup(path string) bool {
	id, found := strings.CutPrefix(filepath.Base(path), cgroupPrefix)
	return found && validWorkerID(id)
}

// removeCgroup removes an empty control group. The kernel refuses for a moment after the last process ended, without
// saying when the moment is over, so it is asked again for up to a second.
func removeCgroup(path string) error {
	if !ourCgroup(path) {
		return nil
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for attempt := 0; ; attempt++ {
		err := unix.Rmdir(path)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || attempt >= 200:
			return fmt.Errorf("removing the control group %s: %w", path, err)
		}
		<-ticker.C
	}
}
