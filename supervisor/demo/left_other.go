//go:build !linux

package demo

import (
	"errors"
	"io/fs"
	"os"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

// processesLeft lists launchers and Pythons of ours that still run.
func (r *run) processesLeft() ([]string, error) {
	var left []string
	for pid := range r.pids {
		if process, err := spawn.Identify(pid); err == nil && process.Alive() {
			left = append(left, process.String())
		}
	}
	return left, nil
}

// socketsLeft lists the private supervisor's socket if it still is a file.
func (r *run) socketsLeft() ([]string, error) {
	if _, err := os.Lstat(r.instance.socket); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []string{r.instance.socket}, nil
}

// memoryFilesLeft has nothing to look for: memory files are files of the private supervisor's folder here.
func memoryFilesLeft() ([]string, error) { return nil, nil }
