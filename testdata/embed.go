// Package testdata carries the files that the demonstration and the tests work on, so that both run from anywhere: a
// miniature ComfyUI tree, node packs and recorded host facts. They are embedded, and nothing is ever written or run
// in place.
package testdata

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed all:comfyui all:packs/bench all:packs/demo hostfacts
var files embed.FS

// Folders and files of this package, as Files and Read take them.
const (
	ComfyUI   = "comfyui"
	BenchPack = "packs/bench"
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

// Files returns the content of every file of a folder by its slash-separated path below it.
func Files(folder string) (map[string][]byte, error) {
	found := make(map[string][]byte)
	err := fs.WalkDir(files, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "__pycache__" {
				return fs.SkipDir // of somebody who ran the files in place before this program was built
			}
			return nil
		}
		found[strings.TrimPrefix(name, folder+"/")], err = files.ReadFile(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the test data %s: %w", folder, err)
	}
	return found, nil
}
