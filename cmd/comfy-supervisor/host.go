package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
)

// hostFlags name the host that environments are for.
type hostFlags struct {
	comfyui string
	python  string
	facts   string
}

func (f *hostFlags) register(command *cobra.Command) {
	command.Flags().StringVar(&f.comfyui, "comfyui", "", "ComfyUI's folder, the one that holds main.py")
	command.Flags().StringVar(&f.python, "python", "", "the interpreter that runs ComfyUI (default: ComfyUI's own, else PATH's)")
	command.Flags().StringVar(&f.facts, "host-facts", "", "JSON file with the host's facts, as `facts --json` writes it; for machines without the host")
}

// read collects the host's facts.
func (f *hostFlags) read(ctx context.Context, app *application, loaded *settings.Settings) (envbuild.Facts, error) {
	file := f.facts
	if file == "" && f.python == "" {
		file = loaded.HostFacts.Value
	}
	if file != "" && f.python != "" {
		return envbuild.Facts{}, usageErrorf("--host-facts and --python both say what the host is; give one of them")
	}
	return envbuild.ReadFacts(ctx, envbuild.FactsSource{File: file, Python: f.python, ComfyUI: f.comfyui, Environ: app.environ,
		Cache: loaded.CacheDirectory.Value})
}

// absolutePaths makes paths of the command line independent of where it was typed.
func absolutePaths(paths []string) ([]string, error) {
	absolute := make([]string, len(paths))
	for i, path := range paths {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, usageErrorf("resolving %s: %w", path, err)
		}
		absolute[i] = full
	}
	return absolute, nil
}
