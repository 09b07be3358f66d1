package main

import (
	"context"
	"os"
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
	command.Flags().StringVar(&f.facts, "host-facts", "", "JSON `file` with the host's facts, as facts --json writes it; for machines without the host")
}

// read collects the host's facts.
func (f *hostFlags) read(ctx context.Context, app *application, loaded *settings.Settings) (envbuild.Facts, error) {
	if f.facts != "" && f.python != "" {
		return envbuild.Facts{}, usageErrorf("--host-facts and --python both say what the host is; give one of them")
	}
	source := envbuild.FactsSource{File: f.facts, Python: f.python, ComfyUI: f.comfyui, Environ: app.environ, Cache: loaded.CacheDirectory.Value}
	if recorded := loaded.HostFacts.Value; recorded != "" && f.facts == "" && f.python == "" {
		source.File = recorded
		// What `env` recorded names the host; where it is on this machine, it is looked at as it is now.
		if facts, err := envbuild.LoadFacts(recorded); err == nil && facts.Python.Executable != "" {
			if _, err := os.Stat(facts.Python.Executable); err == nil {
				source.File, source.Python = "", facts.Python.Executable
				if source.ComfyUI == "" {
					source.ComfyUI = facts.ComfyUI.Directory
				}
			}
		}
	}
	return envbuild.ReadFacts(ctx, source)
}

// packFolders are the pack folders of a command line, wherever it was typed. All must be there.
func packFolders(paths []string) ([]string, error) {
	absolute := make([]string, len(paths))
	for i, path := range paths {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, usageErrorf("resolving %s: %w", path, err)
		}
		if info, err := os.Stat(full); err != nil || !info.IsDir() {
			return nil, usageErrorf("the pack %s: there is no such folder", path)
		}
		absolute[i] = full
	}
	return absolute, nil
}
