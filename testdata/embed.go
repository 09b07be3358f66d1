// Package testdata carries the files that the demonstration and the tests work on, so that both run from anywhere: a
// miniature ComfyUI tree, node packs and recorded host facts. Nothing is ever written or run in place: Copy gives a
// folder of one's own.
package testdata

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed all:comfyui all:packs/demo hostfacts
var files embed.FS

// Folders and files of this package, as Copy and Read take them.
const (
	ComfyUI   = "comfyui"
	DemoPack  = "packs/demo"
	HostFacts = "hostfacts/comfyui-0.30-without-torch.json"
)

// Read returns the content of one file.
func Read(name string) ([]byte, error) {
	content, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the test data %s: %w", name, err)
	}
	return content, nil
}

// Copy writes a folder's files below a directory, which may exist but must not hold any of them.
func Copy(folder, directory string) error {
	err := fs.WalkDir(files, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "__pycache__" {
			return fs.SkipDir // of somebody who ran the files in place before this program was built
		}
		target := filepath.Join(directory, filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := files.ReadFile(path.Clean(name))
		if err != nil {
			return err
		}
		return create(target, content)
	})
	if err != nil {
		return fmt.Errorf("copying the test data %s to %s: %w", folder, directory, err)
	}
	return nil
}

func create(file string, content []byte) error {
	written, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = written.Write(content)
	return errors.Join(err, written.Close())
}
