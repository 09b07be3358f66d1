package hostadapter

import (
	"embed"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
)

//go:embed comfy_supervisor/*.py
var embedded embed.FS

// Layout writes the host's Python into the cache directory, once per content, and returns the folder that makes
// comfy_supervisor importable. Several processes may call it at once; a cache that already holds it is only read.
func Layout(cache string) (pythonPath string, err error) {
	sources := pyworker.Sources{}
	if err := sources.Add(embedded, "comfy_supervisor", "comfy_supervisor"); err != nil {
		return "", err
	}
	if err := pyworker.AddWire(sources, "comfy_supervisor/wire"); err != nil {
		return "", err
	}
	return sources.Layout(cache, "host")
}
