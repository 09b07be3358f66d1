package api

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// receivedFiles are the memory files that results of this client refer to. Each is open from the moment its message
// arrives until nothing refers to it; then the supervisor is told how many deliveries that settles.
type receivedFiles struct {
	release func([]FileCount)

	mu     sync.Mutex
	byID   map[string]*receivedFile
	closed bool
}

type receivedFile struct {
	id         string
	size       int64
	file       *os.File
	err        error // why it could not be opened; told when it is read
	deliveries int
	users      int
}

// heldFiles are the files of one message; release may be called once.
type heldFiles struct {
	files   []*receivedFile
	release func()
}

func newReceivedFiles() *receivedFiles {
	return &receivedFiles{byID: make(map[string]*receivedFile)}
}

// receive opens the files of a message that has just arrived.
func (r *receivedFiles) receive(files []wire.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, file := range files {
		known := r.byID[file.ID]
		if known == nil {
			known = &receivedFile{id: file.ID, size: file.Size}
			known.file, known.err = openMemoryFile(file)
			r.byID[file.ID] = known
		}
		known.deliveries++
		known.users++
	}
}

// take returns the files of a message that receive has seen.
func (r *receivedFiles) take(files []wire.File) heldFiles {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := heldFiles{files: make([]*receivedFile, len(files))}
	for i, file := range files {
		held.files[i] = r.byID[file.ID]
	}
	held.release = func() { r.drop(held.files) }
	return held
}

func (r *receivedFiles) drop(files []*receivedFile) {
	var settled []FileCount
	r.mu.Lock()
	for _, file := range files {
		file.users--
		if file.users > 0 {
			continue
		}
		settled = append(settled, FileCount{ID: file.id, Count: file.deliveries})
		delete(r.byID, file.id)
		file.close()
	}
	closed := r.closed
	r.mu.Unlock()
	if len(settled) > 0 && !closed {
		r.release(settled)
	}
}

// holds lists what is referred to, for an inventory.
func (r *receivedFiles) holds() []FileCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make([]FileCount, 0, len(r.byID))
	for _, file := range r.byID {
		held = append(held, FileCount{ID: file.id, Count: file.deliveries})
	}
	return held
}

// closeAll closes what is still open when the connection has ended.
func (r *receivedFiles) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, file := range r.byID {
		file.close()
	}
}

func (f *receivedFile) close() {
	if f.file != nil {
		_ = f.file.Close() // read only: nothing can be lost
		f.file = nil
		f.err = errors.New("the result has been closed")
	}
}

// read returns length bytes from offset.
func (f *receivedFile) read(offset, length int64) ([]byte, error) {
	if f.err != nil {
		return nil, fmt.Errorf("memory file %s: %w", f.id, f.err)
	}
	if offset < 0 || length < 0 || length > f.size || offset > f.size-length {
		return nil, fmt.Errorf("memory file %s has %d bytes, not %d from %d", f.id, f.size, length, offset)
	}
	content := make([]byte, length)
	if _, err := f.file.ReadAt(content, offset); err != nil {
		return nil, fmt.Errorf("memory file %s: %w", f.id, err)
	}
	return content, nil
}
