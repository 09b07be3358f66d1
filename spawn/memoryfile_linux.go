package spawn

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// openFile is a memory file that this process keeps open.
type openFile struct{ file *os.File }

func (f openFile) isOpen() bool { return f.file != nil }

func (f openFile) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read from, by others
	}
}

// remove does nothing: a memory file is gone with its last descriptor and mapping.
func (f openFile) remove() {}

// offer is the file as others can open it here.
func (f openFile) offer(file wire.File) wire.File {
	file.PID = os.Getpid()
	file.FD = int(f.file.Fd())
	return file
}

// openOffered opens the file behind a party's descriptor. The PID in the message is not used: the connection knows it
// better.
func openOffered(from Party, offered *wire.File, _ string) (openFile, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", from.PID, offered.FD)
	// O_PATH first: a descriptor may be a device or a FIFO, whose opening blocks or has effects.
	place, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return openFile{}, openingFailed(from, path, err)
	}
	defer unix.Close(place)
	var stat unix.Stat_t
	if err := unix.Fstat(place, &stat); err != nil {
		return openFile{}, openingFailed(from, path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return openFile{}, fmt.Errorf("%s is not a file", path)
	case stat.Ino != offered.Inode:
		return openFile{}, fmt.Errorf("%s has inode %d, the message says %d", path, stat.Ino, offered.Inode)
	case stat.Size < offered.Size || offered.Size < 0:
		return openFile{}, fmt.Errorf("%s has %d bytes, the message says %d", path, stat.Size, offered.Size)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", place), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return openFile{}, openingFailed(from, path, err)
	}
	return openFile{os.NewFile(uintptr(fd), offered.ID)}, nil
}

func openingFailed(from Party, path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) && hasNoDescriptors(from.PID):
		return fmt.Errorf("opening %s: %w", path, ErrPartyEnded)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s is not there: the process has closed it: %w", path, err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("opening %s: no descriptor is left; raise the limit of open files (ulimit -n): %w", path, err)
	}
	return fmt.Errorf("opening %s: %w", path, err)
}

// hasNoDescriptors reports whether a process has ended or is about to: one that ends closes all its descriptors some
// time before it is seen to have ended.
func hasNoDescriptors(pid int) bool {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return err != nil && !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || err == nil && len(entries) == 0
}
