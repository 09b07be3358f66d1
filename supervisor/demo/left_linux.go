package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// processesLeft lists processes that carry the id of a worker of ours.
func (r *run) processesLeft() ([]string, error) {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, file := range environs {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended, or is another user's
		}
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			id, found := bytes.CutPrefix(variable, []byte("COMFY_SUPERVISOR_WORKER="))
			if _, ours := r.seen[string(id)]; found && ours {
				left = append(left, fmt.Sprintf("process %s of worker %s", filepath.Base(filepath.Dir(file)), id))
			}
		}
	}
	for pid := range r.pids {
		if err := unix.Kill(pid, 0); err == nil && !isZombie(pid) {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
	}
	return left, nil
}

// isZombie reports whether a process has ended and only waits for its parent, which on some machines' containers
// nobody is.
func isZombie(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(status), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// socketsLeft lists bound sockets of the private supervisor's folder.
func (r *run) socketsLeft() ([]string, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	var left []string
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, r.instance.folder) {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left, nil
}

// memoryFilesLeft lists memory files that this process has open; those of others went with them.
func memoryFilesLeft() ([]string, error) {
	const folder = "/proc/self/fd"
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(folder, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the descriptor by which the folder was read
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(target, "/memfd:") {
			left = append(left, target)
		}
	}
	return left, nil
}
