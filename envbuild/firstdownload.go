package envbuild

import (
	"context"
	"strings"
	"sync"
)

// firstDownload keeps environments that are built side by side from downloading the same gigabytes at once: uv's cache
// shares what is in it, and each process fetches what is not in it yet. The first environment with a torch goes ahead,
// and the others install when it has all its packages in the cache.
type firstDownload struct {
	mutex sync.Mutex
	first map[string]chan struct{} // closed when that environment has its packages
}

// enter waits for the first environment with the same packages, unless this is it. leave must be called when this
// environment has its packages, or has failed; calling it again does nothing.
func (f *firstDownload) enter(ctx context.Context, packages []string, waiting func()) (leave func(), err error) {
	if len(packages) == 0 {
		return func() {}, nil
	}
	key := strings.Join(packages, " ")
	f.mutex.Lock()
	there, found := f.first[key]
	if !found {
		there = make(chan struct{})
		if f.first == nil {
			f.first = map[string]chan struct{}{}
		}
		f.first[key] = there
	}
	f.mutex.Unlock()
	if !found {
		return sync.OnceFunc(func() { close(there) }), nil
	}
	select {
	case <-there:
		return func() {}, nil
	default:
	}
	waiting()
	select {
	case <-there:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
