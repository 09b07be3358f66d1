package envbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// uvMinimum is the oldest uv that knows all that the backend uses: pylock.toml, tool.uv.sources, explicit indexes.
const uvMinimum = "0.8.0"

// uvTool is a uv that can be run.
type uvTool struct {
	Path    string
	Version string
	Source  string // where it was found
}

// toolSearch is what finding uv depends on.
type toolSearch struct {
	setting string // path from the settings
	environ []string
	host    PythonFacts
	cache   string // cache folder, where a fetched one is kept
	prober  prober
	say     func(format string, arguments ...any)
}

// findUV returns the uv of the settings, of PATH, of the host's environment, or one fetched before or now.
func findUV(ctx context.Context, search toolSearch) (uvTool, error) {
	if search.setting != "" {
		path, err := resolveExecutable(search.setting, search.environ)
		if err != nil {
			return uvTool{}, fmt.Errorf("the uv of the settings: %w", err)
		}
		version, err := uvVersionOf(ctx, path)
		if err != nil {
			return uvTool{}, fmt.Errorf("the uv of the settings: %w", err)
		}
		return uvTool{path, version, "the settings"}, nil
	}
	type place struct{ path, source string }
	var places []place
	for _, path := range pathCandidates("uv", search.environ) {
		places = append(places, place{path, "PATH"})
	}
	if search.host.Executable != "" {
		places = append(places, place{besideInterpreter(search.host.Executable, "uv"), "the host's environment"})
	}
	fetched := fetchedUV(search.cache)
	places = append(places, place{fetched, "the cache"})
	for _, candidate := range places {
		if _, err := os.Stat(candidate.path); err != nil {
			continue
		}
		version, err := uvVersionOf(ctx, candidate.path)
		if err != nil {
			if ctx.Err() != nil {
				return uvTool{}, ctx.Err()
			}
			search.say("uv of %s passed over: %v", candidate.source, err)
			continue
		}
		return uvTool{candidate.path, version, candidate.source}, nil
	}
	if err := fetchUV(ctx, search, fetched); err != nil {
		return uvTool{}, fmt.Errorf("no uv in the settings, on PATH or in the host's environment, and fetching uv %s failed: %w; "+
			"install uv, or name one with the uv setting", uvVersion, err)
	}
	version, err := uvVersionOf(ctx, fetched)
	if err != nil {
		return uvTool{}, fmt.Errorf("the uv that was fetched: %w", err)
	}
	return uvTool{fetched, version, "the package index"}, nil
}

// uvVersionOf runs `uv --version`.
func uvVersionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, path, "--version")
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, shorten(lastLine(stderr.String()), 200))
	}
	fields := strings.Fields(stdout.String())
	if len(fields) < 2 || fields[0] != "uv" {
		return "", fmt.Errorf("%s is no uv: it printed %q", path, shorten(stdout.String(), 80))
	}
	if compareVersions(fields[1], uvMinimum) < 0 {
		return "", fmt.Errorf("%s is uv %s; %s or later is needed", path, fields[1], uvMinimum)
	}
	return fields[1], nil
}

// besideInterpreter is a tool that lies in the same folder as an interpreter.
func besideInterpreter(python, tool string) string {
	if runtime.GOOS == "windows" {
		tool += ".exe"
		if scripts := filepath.Join(filepath.Dir(python), "Scripts"); filepath.Base(filepath.Dir(python)) != "Scripts" {
			return filepath.Join(scripts, tool)
		}
	}
	return filepath.Join(filepath.Dir(python), tool)
}

// fetchedUV is where a fetched uv is kept.
func fetchedUV(cache string) string {
	name := "uv"
	if runtime.GOOS == "windows" {
		name = "uv.exe"
	}
	return filepath.Join(cache, "tools", "uv-"+uvVersion, name)
}

// errNoPip is returned where no interpreter with pip is found.
var errNoPip = errors.New("no Python with pip was found (the host's, its base, PATH)")
