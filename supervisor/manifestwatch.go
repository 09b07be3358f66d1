package supervisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// mostWatchedFolders bounds what is watched: the kernel has few watches per user. What is not watched is reset by hand.
const mostWatchedFolders = 256

// fileStamp tells whether a file was written since.
type fileStamp struct {
	modified time.Time
	size     int64
	mode     fs.FileMode
}

// stampOf returns a file's stamp; that of a file which is not there is zero.
func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if path == "" || err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size(), info.Mode()}
}

// manifestWatch looks for edits of the manifests of environments that wait after crashes, or are quarantined: an edit
// is a try to repair them, so they may start again at once. Folders are watched while there is such an environment, and
// no longer; a folder, because editors put a new file into the old one's place.
type manifestWatch struct {
	daemon  *Daemon
	changed chan struct{} // has a token when other environments may have to be watched
}

func newManifestWatch(d *Daemon) *manifestWatch {
	return &manifestWatch{daemon: d, changed: make(chan struct{}, 1)}
}

// kick says that a worker began or ceased to wait. It never waits.
func (m *manifestWatch) kick() {
	select {
	case m.changed <- struct{}{}:
	default: // said already
	}
}

// run watches until the daemon ends.
func (m *manifestWatch) run() {
	d := m.daemon
	for {
		select {
		case <-m.changed:
			if len(d.waiting()) > 0 {
				m.watch()
			}
		case <-d.ctx.Done():
			return
		}
	}
}

// watch watches as long as anything waits.
func (m *manifestWatch) watch() {
	d := m.daemon
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn().Err(err).Msg("edits of manifests are not noticed: quarantined environments have to be reset by hand")
		return
	}
	defer watcher.Close()
	watched := make(map[string]bool)
	for {
		waiting := d.waiting()
		if len(waiting) == 0 {
			return
		}
		m.follow(watcher, watched, waiting)
		m.look(waiting) // after the watches are set: an edit before is seen now, one after is an event
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			d.log.Warn().Err(err).Msg("watching manifests")
		case <-m.changed:
		case <-d.ctx.Done():
			return
		}
	}
}

// follow watches the folders of what waits, and those alone.
func (m *manifestWatch) follow(watcher *fsnotify.Watcher, watched map[string]bool, waiting map[*worker]string) {
	wanted := make(map[string]bool)
	for _, manifest := range waiting {
		if len(wanted) < mostWatchedFolders {
			wanted[filepath.Dir(manifest)] = true
		}
	}
	for folder := range watched {
		if !wanted[folder] {
			_ = watcher.Remove(folder) // it may have been removed itself, and its watch with it
			delete(watched, folder)
		}
	}
	for folder := range wanted {
		if watched[folder] {
			continue
		}
		if err := watcher.Add(folder); err != nil {
			m.daemon.log.Warn().Err(err).Str("folder", folder).Msg("edits of a manifest are not noticed: reset its environment by hand")
			continue
		}
		watched[folder] = true
	}
}

// look resets what waits and whose manifest is another than at its last start.
func (m *manifestWatch) look(waiting map[*worker]string) {
	d := m.daemon
	for w, manifest := range waiting {
		now := stampOf(manifest)
		d.mu.Lock()
		var e effects
		if now != w.manifest && now != (fileStamp{}) { // a file that is gone will be back
			w.manifest = now
			e = d.step(w, Message{Kind: ResetAsked, Cause: "its manifest was edited: " + manifest}, nil)
		}
		d.mu.Unlock()
		d.perform(e)
	}
}

// waiting returns the workers that may not start for now, with their manifests.
func (d *Daemon) waiting() map[*worker]string {
	found := make(map[*worker]string)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		for _, p := range s.places {
			w := p.current
			if (w.record.State == Quarantined || w.record.State == Backoff) && w.environment.Manifest != "" {
				found[w] = w.environment.Manifest
			}
		}
	}
	return found
}
