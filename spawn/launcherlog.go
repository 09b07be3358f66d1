package spawn

import (
	"fmt"
	"os"
	"sync"
)

// Bounds of a launcher's log. A launcher says little; one that is stuck in something must not fill a disk with it.
const (
	launcherLogBytes     = 1 << 20 // beyond this the oldest part goes
	launcherLogKeptBytes = 256 << 10
)

// launcherLog is a log that is cut in place when it grows too long: the launcher's own descriptors 1 and 2, where Go's
// runtime writes, are the same file and stay so.
type launcherLog struct {
	mu   sync.Mutex
	file *os.File
	size int64 // written by us since the file was looked at
}

// openLauncherLog opens a log to append to.
func openLauncherLog(path string) (*launcherLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	return &launcherLog{file: file, size: info.Size()}, nil
}

// Write implements io.Writer. A disk that refuses costs the line.
func (l *launcherLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(line)) > launcherLogBytes {
		l.cut()
	}
	count, err := l.file.Write(line)
	l.size += int64(count)
	return count, err
}

// cut keeps the last part.
func (l *launcherLog) cut() {
	kept := make([]byte, launcherLogKeptBytes)
	if info, err := l.file.Stat(); err == nil {
		count, _ := l.file.ReadAt(kept, max(0, info.Size()-launcherLogKeptBytes)) // what can be read is kept
		kept = kept[:count]
	}
	if err := l.file.Truncate(0); err != nil {
		return
	}
	count, _ := l.file.Write(kept)
	l.size = int64(count)
}
