package envbuild

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
)

// uvMinimum is the oldest uv that knows all that the backend uses: pylock.toml, tool.uv.sources, explicit indexes.
const uvMinimum = "0.8.0"

// toolSearch is what finding uv depends on.
type toolSearch struct {
	setting string // path from the settings
	environ []string
	host    PythonFacts
	cache   string // cache folder, where a fetched one is kept
	prober  prober
	say     func(format string, arguments ...any)
}

// uv is the installer of that name as this search looks for it.
func (s toolSearch) uv() installer {
	uv := installer{name: "uv", minimum: uvMinimum, setting: s.setting, environ: s.environ, fetched: fetchedUV(s.cache), say: s.say}
	if s.host.Executable != "" {
		uv.places = []toolPlace{{besideInterpreter(s.host.Executable, "uv"), "the host's environment"}}
	}
	uv.fetch = func(ctx context.Context) (string, error) {
		if err := fetchUV(ctx, s, uv.fetched); err != nil {
			return "", fmt.Errorf("no uv in the settings, on PATH or in the host's environment, and fetching uv %s failed: %w; "+
				"install uv, or name one with the uv setting", uvVersion, err)
		}
		return "the package index", nil
	}
	return uv
}

// findUV returns the uv of the settings, of PATH, of the host's environment, or one fetched before or now.
func findUV(ctx context.Context, search toolSearch) (tool, error) { return search.uv().find(ctx) }

// besideInterpreter is a tool that lies in the same folder as an interpreter.
func besideInterpreter(python, tool string) string {
	if runtime.GOOS == "windows" {
		if scripts := filepath.Join(filepath.Dir(python), "Scripts"); filepath.Base(filepath.Dir(python)) != "Scripts" {
			return filepath.Join(scripts, program(tool))
		}
	}
	return filepath.Join(filepath.Dir(python), program(tool))
}

// fetchedUV is where a fetched uv is kept.
func fetchedUV(cache string) string { return fetchedTool(cache, "uv", uvVersion) }

// errNoPip is returned where no interpreter with pip is found.
var errNoPip = errors.New("no Python with pip was found (the host's, its base, PATH)")
