package supervisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// AlreadyRunningError is returned when another supervisor serves the runtime directory.
type AlreadyRunningError struct {
	PID              int // 0 where the system does not let us read it
	RuntimeDirectory string
}

func (e *AlreadyRunningError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("a supervisor is already running for %s: %s; `comfy-supervisor status` shows it, `comfy-supervisor stop` ends it",
		e.RuntimeDirectory, who)
}

// runtimeLock makes this process the only supervisor of a runtime directory. The lock goes with the process, however
// that ends; the file's content, our PID, is for people and for the second one's error.
type runtimeLock struct {
	path string
	lock *flock.Flock
}

// acquireLock takes the lock or says who has it.
func acquireLock(path, runtimeDirectory string) (*runtimeLock, error) {
	for {
		lock := flock.New(path, flock.SetPermissions(0o600))
		locked, err := lock.TryLock()
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !locked {
			return nil, &AlreadyRunningError{PID: readPID(path), RuntimeDirectory: runtimeDirectory}
		}
		// The owner before us removes the file while it still holds the lock, so what we locked may have no name any
		// more; then somebody else can lock the new file beside us.
		current, statErr := os.Stat(path)
		ours, err := lock.Stat()
		if err != nil {
			_ = lock.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if statErr != nil || !os.SameFile(current, ours) {
			_ = lock.Close()
			if statErr != nil && !errors.Is(statErr, os.ErrNotExist) {
				return nil, fmt.Errorf("locking %s: %w", path, statErr)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
			_ = lock.Close()
			return nil, fmt.Errorf("writing our PID to %s: %w", path, err)
		}
		return &runtimeLock{path: path, lock: lock}, nil
	}
}

func readPID(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

// release removes the file and gives the lock back, in this order: who finds the file finds it locked.
func (l *runtimeLock) release() error {
	removeErr := os.Remove(l.path)
	closeErr := l.lock.Close()
	if removeErr != nil && closeErr == nil { // Windows removes no open file
		removeErr = os.Remove(l.path)
	}
	if errors.Is(removeErr, os.ErrNotExist) {
		removeErr = nil
	}
	return errors.Join(removeErr, closeErr)
}
