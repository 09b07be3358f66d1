package main

import (
	"fmt"

	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
)

// loadSettings gathers the settings for a command: the flags that every command has, those of its own that are
// settings (by flag name), the environment and the settings file.
func (app *application) loadSettings(flags map[string]string) (*settings.Settings, error) {
	given := map[string]string{}
	for name, value := range flags {
		if value != "" {
			given[name] = value
		}
	}
	if app.flags.runtimeDirectory != "" {
		given["runtime-dir"] = app.flags.runtimeDirectory
	}
	loaded, err := settings.Load(settings.Sources{Flags: given, Environ: app.environ, File: app.flags.settingsFile})
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	if !app.warned {
		app.warned = true
		for _, warning := range loaded.Warnings {
			fmt.Fprintf(app.stderr, "comfy-supervisor: warning: %s\n", warning)
		}
	}
	return loaded, nil
}
