package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/windows"
)

// reaper has nothing to do: there are no zombies here.
type reaper struct{}

// prepareProcess puts this process into a Job Object that ends with it, before anything is started.
func (l *launcher) prepareProcess() error {
	if _, err := launcherJob(); err != nil {
		return fmt.Errorf("making the launcher's Job Object: %w", err)
	}
	l.streams = [2]*os.File{os.Stdout, os.Stderr} // go-plugin puts its own in their place
	l.group.Go(func() { l.attendOrphan(nil) })
	return nil
}

func (l *launcher) reapAdopted()  {}
func (l *launcher) leaveProcess() {}

// redirectOutput sends what this process's runtime may still print to the launcher's log. The pipes to the supervisor
// are done with once go-plugin has its handshake line.
func (l *launcher) redirectOutput() error {
	file, err := os.OpenFile(filepath.Join(l.folder, launcherLogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for index, standard := range []uint32{windows.STD_OUTPUT_HANDLE, windows.STD_ERROR_HANDLE} {
		if err := windows.SetStdHandle(standard, windows.Handle(file.Fd())); err != nil {
			return os.NewSyscallError("SetStdHandle", err)
		}
		_ = l.streams[index].Close()
	}
	l.streams[0] = file // keeps it open
	return nil
}

// syncFolder does nothing: a rename is written through here.
func syncFolder(string) error { return nil }

// removeFolder removes a worker's folder file by file: os.RemoveAll needs a way of deleting that older systems and wine
// do not have.
func removeFolder(folder string) error {
	var paths []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	for _, path := range slices.Backward(paths) { // a folder after what is in it
		err = errors.Join(err, removeIfThere(path))
	}
	return err
}

// outOfMemoryKills is not known here.
func outOfMemoryKills() int64 { return 0 }
