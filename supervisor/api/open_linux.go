package api

import (
	"bytes"
	"fmt"
	"os"
	"syscall"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// openMemoryFile opens a memory file that another process holds, and checks that it is the one that was meant: the
// descriptor may have been used again meanwhile.
func openMemoryFile(reference wire.File) (*os.File, error) {
	path := reference.Path
	if path == "" {
		path = fmt.Sprintf("/proc/%d/fd/%d", reference.PID, reference.FD)
	}
	file, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || (reference.Inode != 0 && stat.Ino != reference.Inode) || info.Size() != reference.Size {
			err = fmt.Errorf("%s is not the file that was sent (size %d, expected %d)", path, info.Size(), reference.Size)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// ownStartTime returns field 22 of /proc/self/stat: clock ticks from boot until this process started.
func ownStartTime() (string, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "", fmt.Errorf("reading when this process started: %w", err)
	}
	// The second field is the program's name in parentheses and may hold anything; 20 fields follow it up to the 22nd.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("reading when this process started: /proc/self/stat has %d fields after the name", len(fields))
	}
	return string(fields[19]), nil
}
