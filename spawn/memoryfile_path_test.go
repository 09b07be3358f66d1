//go:build !linux

package spawn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// failer is what testing.TB and rapid's T share.
type failer interface {
	Helper()
	Fatal(...any)
}

// testFiles makes files in a private folder.
type testFiles struct{ place string }

func newTestFiles(t failer) testFiles {
	t.Helper()
	place, err := os.MkdirTemp("", "memory-files")
	if err != nil {
		t.Fatal(err)
	}
	if cleaner, ok := t.(interface{ Cleanup(func()) }); ok {
		cleaner.Cleanup(func() { _ = removeFolder(place) })
	}
	return testFiles{place}
}

func (f testFiles) folder() string { return f.place }

func (f testFiles) party(id string) Party { return Party{ID: id, PID: os.Getpid()} }

func (f testFiles) make(t failer, id, content string) wire.File {
	t.Helper()
	path := filepath.Join(f.place, id)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return wire.File{ID: id, FD: -1, Path: path, Size: int64(len(content))}
}

// close does nothing: what others hold stays where it is.
func (f testFiles) close(failer, wire.File) {}

func (f testFiles) read(t failer, file wire.File) string {
	t.Helper()
	content, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// wrong are files that are not what a message says.
func (f testFiles) wrong(t *testing.T, good wire.File) map[string]wire.File {
	t.Helper()
	change := func(change func(*wire.File)) wire.File {
		file := good
		file.ID = "host-2"
		change(&file)
		return file
	}
	outside := filepath.Join(temporaryFolder(t), "outside")
	if err := os.WriteFile(outside, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]wire.File{
		"a file outside the folder": change(func(f *wire.File) { f.Path = outside }),
		"the folder itself":         change(func(file *wire.File) { file.Path = f.place }),
		"a file that is not there":  change(func(file *wire.File) { file.Path = filepath.Join(f.place, "none") }),
		"a larger size":             change(func(f *wire.File) { f.Size++ }),
		"a negative size":           change(func(f *wire.File) { f.Size = -1 }),
		"an ID without a number":    change(func(f *wire.File) { f.ID = "host" }),
		"an ID without an owner":    change(func(f *wire.File) { f.ID = "-1" }),
	}
}
