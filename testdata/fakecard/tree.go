package fakecard

import (
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/comfy-supervisor/comfy-supervisor/testdata"
)

//go:embed comfy_aimdo/*.py
var pager embed.FS

// host starts a ComfyUI of that tree in a process of its own.
//
//go:embed fakehost.py
var host []byte

// Lay builds the library, makes a card of 24 GiB of which the driver keeps 454 MiB, and writes the miniature tree, all below
// a folder; it returns the tree and the variables that processes need. Another card of 24 GiB, process-local, is in the file
// that FAKECARD_LOCAL_FILE names.
func Lay(folder string) (tree string, environ []string, err error) {
	library, err := Build(filepath.Join(folder, "library"))
	if err != nil {
		return "", nil, err
	}
	card, err := library.Create(filepath.Join(folder, "cards"), Spec{Name: "Fake", Total: 24 << 30, Driver: 454 << 20})
	if err != nil {
		return "", nil, err
	}
	local, err := library.Create(filepath.Join(folder, "local"), Spec{Name: "Fake", Total: 24 << 30, ProcessLocal: true})
	if err != nil {
		return "", nil, err
	}
	tree = filepath.Join(folder, "ComfyUI")
	environ = []string{card.Variable(), "FAKECARD_LIBRARY=" + library.Path, "FAKECARD_LOCAL_FILE=" + local.File}
	return tree, environ, LayTree(tree)
}

// LayTree writes the miniature ComfyUI tree into a folder, with what lets its models lie on a fake card: this package's
// Python modules, and a comfy_aimdo where workers find the modules of ComfyUI. Processes need FAKECARD_LIBRARY and
// FAKECARD_FILE in their environment; FAKECARD_CONTEXT is what a context takes in each (bytes), FAKECARD_LOCAL=1 goes with
// a process-local card, and COMFY_ENV_WORKER_AIMDO=1 turns the pager on in workers.
func LayTree(folder string) error {
	files, err := testdata.Files(testdata.ComfyUI)
	if err != nil {
		return err
	}
	files = maps.Clone(files)
	files["fakecard.py"] = Python
	files["fakehost.py"] = host
	files["comfy/fakecard.py"] = Python // the pager starts before the tree itself is on a worker's path
	modules, err := pager.ReadDir("comfy_aimdo")
	if err != nil {
		return fmt.Errorf("reading the fake card's pager: %w", err)
	}
	for _, module := range modules {
		name := "comfy_aimdo/" + module.Name()
		if files["comfy/"+name], err = pager.ReadFile(name); err != nil {
			return fmt.Errorf("reading the fake card's pager: %w", err)
		}
	}
	for name, content := range files {
		target := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("laying out a miniature ComfyUI in %s: %w", folder, err)
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			return fmt.Errorf("laying out a miniature ComfyUI in %s: %w", folder, err)
		}
	}
	return nil
}
