//go:build !linux

package api

import (
	"fmt"
	"os"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// openMemoryFile opens a memory file, which is a file in a private folder here.
func openMemoryFile(reference wire.File) (*os.File, error) {
	file, err := os.OpenFile(reference.Path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() != reference.Size {
		err = fmt.Errorf("%s has %d bytes, expected %d", reference.Path, info.Size(), reference.Size)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// ownStartTime returns nothing: the supervisor asks the system itself.
func ownStartTime() (string, error) { return "", nil }
