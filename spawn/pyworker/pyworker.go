package pyworker

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
)

//go:embed program/*.py worker/*.py wire/*.py comfyui/*.py
var embedded embed.FS

// Layout writes the worker's program into the cache directory, once per content, and returns the folder to give to the
// interpreter. Several processes may call it at once; a cache that already holds the program is only read.
func Layout(cache string) (program string, err error) {
	sources, err := programSources()
	if err != nil {
		return "", err
	}
	return sources.Layout(cache, "worker")
}

// Identity names the content of the worker's program: what a worker said of a pack holds for this program only.
func Identity() (string, error) {
	sources, err := programSources()
	if err != nil {
		return "", err
	}
	return sources.hash(), nil
}

func programSources() (Sources, error) {
	sources := Sources{}
	for folder, below := range map[string]string{
		"program": "",
		"worker":  "comfy_supervisor_worker",
		"wire":    "comfy_supervisor_worker/wire",
		"comfyui": "comfy_supervisor_worker/comfyui",
	} {
		if err := sources.Add(embedded, folder, below); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// AddWire adds the modules that both sides share, as the package at a path such as comfy_supervisor/wire.
func AddWire(sources Sources, below string) error { return sources.Add(embedded, "wire", below) }

// AddMemory adds the modules with which both sides count and cap memory, to the package at a path.
func AddMemory(sources Sources, below string) error {
	for _, name := range []string{"census.py", "headroom.py", "ladder.py", "loans.py", "memoryloans.py", "pins.py"} {
		content, err := embedded.ReadFile("comfyui/" + name)
		if err != nil {
			return fmt.Errorf("reading the embedded Python: %w", err)
		}
		sources[path.Join(below, name)] = content
	}
	return nil
}

// Add adds the Python files of one folder of a file system, not those of folders in it, below a path.
func (s Sources) Add(files fs.FS, folder, below string) error {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return fmt.Errorf("reading the embedded Python in %s: %w", folder, err)
	}
	for _, entry := range entries {
		if entry.IsDir() || path.Ext(entry.Name()) != ".py" {
			continue
		}
		content, err := fs.ReadFile(files, path.Join(folder, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading the embedded Python in %s: %w", folder, err)
		}
		s[path.Join(below, entry.Name())] = content
	}
	return nil
}
