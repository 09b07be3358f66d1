//go:build !linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// openFile is a file in the private folder that takes the place of memory files. It is kept by its name.
type openFile struct{ path string }

func (f openFile) isOpen() bool { return f.path != "" }
func (f openFile) close()       {}

// remove deletes the file of an owner that can not do it itself any more.
func (f openFile) remove() {
	if f.path != "" {
		_ = os.Remove(f.path) // a file that is still mapped somewhere goes with the folder
	}
}

func (f openFile) offer(file wire.File) wire.File {
	file.PID, file.FD = 0, -1
	return file
}

// openOffered checks that a party's file lies in the private folder and is as large as the message says.
func openOffered(_ Party, offered *wire.File, folder string) (openFile, error) {
	path := filepath.Clean(offered.Path)
	if folder == "" || filepath.Dir(path) != filepath.Clean(folder) {
		return openFile{}, fmt.Errorf("%s does not lie in the folder of memory files, %s", offered.Path, folder)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return openFile{}, fmt.Errorf("%s is not there: its process has removed it: %w", path, err)
	case err != nil:
		return openFile{}, err
	case !info.Mode().IsRegular():
		return openFile{}, fmt.Errorf("%s is not a file", path)
	case info.Size() < offered.Size || offered.Size < 0:
		return openFile{}, fmt.Errorf("%s has %d bytes, the message says %d", path, info.Size(), offered.Size)
	}
	return openFile{path}, nil
}
