package hostadapter

import (
	"embed"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
)

//go:embed comfy_supervisor/*.py comfyui_adapter/*.py comfy_env/*.py comfy_env/isolation/*.py comfy_env/isolation/workers/*.py
var embedded embed.FS

// Layout writes the host's Python into the cache directory, once per content, and returns the folder that makes
// comfy_supervisor importable. Several processes may call it at once; a cache that already holds it is only read.
func Layout(cache string) (pythonPath string, err error) {
	sources := pyworker.Sources{}
	for _, folder := range []string{
		"comfy_supervisor", "comfyui_adapter", "comfy_env", "comfy_env/isolation", "comfy_env/isolation/workers",
	} {
		if err := sources.Add(embedded, folder, folder); err != nil {
			return "", err
		}
	}
	program, err := pyworker.Identity()
	if err != nil {
		return "", err
	}
	sources["comfyui_adapter/program.txt"] = []byte(program) // scans of packs are kept for this program
	if err := pyworker.AddWire(sources, "comfy_supervisor/wire"); err != nil {
		return "", err
	}
	if err := pyworker.AddMemory(sources, "comfyui_adapter"); err != nil {
		return "", err
	}
	return sources.Layout(cache, "host")
}
