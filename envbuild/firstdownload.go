package envbuild

import (
	"context"
	"strings"
	"sync"
	"time"
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

// settled is how long uv may compile without having announced a download until it is taken to download nothing.
const settled = 5 * time.Second

// downloadWatch follows the lines of an installation and calls leave as soon as its downloads are in the cache: what it
// still compiles, for an hour perhaps, nobody has to wait for.
type downloadWatch struct {
	leave   func()
	settled time.Duration

	mutex    sync.Mutex
	progress uvProgress
	timer    *time.Timer
}

// line takes one line, and returns what is being done now, "" for a line that says nothing of it.
func (w *downloadWatch) line(line string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text := w.progress.line(line)
	if w.leave == nil {
		return text
	}
	switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
	case word == "Prepared", word == "Downloaded" && w.progress.downloading() == 0:
		w.leave()
	case word == "Building" && w.timer == nil && len(w.progress.sizes) == 0:
		w.timer = time.AfterFunc(w.settled, func() {
			w.mutex.Lock()
			defer w.mutex.Unlock()
			if w.progress.downloading() == 0 {
				w.leave()
			}
		})
	}
	return text
}

// close ends the watch.
func (w *downloadWatch) close() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}
