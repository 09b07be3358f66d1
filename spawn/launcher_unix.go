//go:build unix

package spawn

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// prepareProcess sets this process up: its group is its own by Launch, and a dead reader of its output must not end it.
func (l *launcher) prepareProcess() error {
	if err := closeInherited(); err != nil {
		return fmt.Errorf("closing inherited descriptors: %w", err)
	}
	// Catching SIGPIPE, in place of ignoring it, leaves Python the default.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM)
	if err := l.adoptOrphans(); err != nil {
		return err
	}
	l.group.Go(func() { l.attendOrphan(terminate) })
	return nil
}

// closeInherited closes what the supervisor's own parents left open without meaning to: somebody may wait for the end
// of a pipe that this process would hold. What Go opened itself is marked close-on-exec.
func closeInherited() error {
	entries, err := os.ReadDir(descriptorFolder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		descriptor, err := strconv.Atoi(entry.Name())
		if err != nil || descriptor <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(descriptor)
		}
	}
	return nil
}

// redirectOutput sends what this process's runtime may still print to the launcher's log. The pipes to the supervisor
// are done with once go-plugin has its handshake line.
func (l *launcher) redirectOutput() error {
	file, err := os.OpenFile(filepath.Join(l.folder, launcherLogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for descriptor := 1; descriptor <= 2; descriptor++ {
		if err := replaceDescriptor(int(file.Fd()), descriptor); err != nil {
			return os.NewSyscallError("dup", err)
		}
	}
	return nil
}

// syncFolder makes a rename in a folder last.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// removeFolder removes a worker's folder with all that is in it.
func removeFolder(folder string) error { return os.RemoveAll(folder) }
