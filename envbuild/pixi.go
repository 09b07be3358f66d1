package envbuild

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// pixiMinimum is the oldest pixi that knows all that the backend uses: `pixi lock`, `shell-hook --json --frozen`.
const pixiMinimum = "0.50.0"

// pixiTool is a pixi that can be run.
type pixiTool struct {
	Path    string
	Version string
	Source  string // where it was found
}

// findPixi looks for pixi once per builder: the one of the settings, of PATH, of pixi's own installer, or one
// fetched before or now.
func (b *Builder) findPixi(ctx context.Context, say func(format string, arguments ...any)) (pixiTool, error) {
	environ := uvEnviron(b.configuration.Environ, pipPrefix(b.facts))
	indexes, err := b.packageIndexes(environ)
	if err != nil {
		return pixiTool{}, err
	}
	b.toolLock.Lock()
	defer b.toolLock.Unlock()
	if b.pixi != nil {
		return *b.pixi, nil
	}
	found, err := b.searchPixi(ctx, indexes, say)
	if err != nil {
		return pixiTool{}, err
	}
	b.pixi = &found
	return found, nil
}

func (b *Builder) searchPixi(ctx context.Context, indexes *indexes, say func(format string, arguments ...any)) (pixiTool, error) {
	environ := b.configuration.Environ
	if b.configuration.Pixi != "" {
		path, err := resolveExecutable(b.configuration.Pixi, environ)
		if err != nil {
			return pixiTool{}, fmt.Errorf("the pixi of the settings: %w", err)
		}
		version, err := pixiVersionOf(ctx, path, environ)
		if err != nil {
			return pixiTool{}, fmt.Errorf("the pixi of the settings: %w", err)
		}
		return pixiTool{path, version, "the settings"}, nil
	}
	type place struct{ path, source string }
	var places []place
	for _, path := range pathCandidates("pixi", environ) {
		places = append(places, place{path, "PATH"})
	}
	home := environValue(environ, "PIXI_HOME")
	if home == "" {
		user := environValue(environ, "HOME")
		if runtime.GOOS == "windows" {
			user = environValue(environ, "USERPROFILE")
		}
		home = filepath.Join(user, ".pixi")
	}
	if filepath.IsAbs(home) {
		places = append(places, place{filepath.Join(home, "bin", pixiBinary()), "its own installer's folder"})
	}
	fetched := fetchedPixi(b.configuration.Cache)
	places = append(places, place{fetched, "the cache"})
	for _, candidate := range places {
		if !exists(candidate.path) {
			continue
		}
		version, err := pixiVersionOf(ctx, candidate.path, environ)
		if err != nil {
			if ctx.Err() != nil {
				return pixiTool{}, ctx.Err()
			}
			say("pixi of %s passed over: %v", candidate.source, err)
			continue
		}
		return pixiTool{candidate.path, version, candidate.source}, nil
	}
	releases := b.configuration.PixiReleases
	if releases == "" {
		releases = DefaultPixiReleases
	}
	if err := fetchPixi(ctx, indexes, releases, fetched, say); err != nil {
		return pixiTool{}, fmt.Errorf("no pixi in the settings or on PATH, and fetching pixi %s failed: %w; install pixi, or name one with the pixi setting",
			pixiVersion, err)
	}
	version, err := pixiVersionOf(ctx, fetched, environ)
	if err != nil {
		return pixiTool{}, fmt.Errorf("the pixi that was fetched: %w", err)
	}
	return pixiTool{fetched, version, releases}, nil
}

// pixiVersionOf runs `pixi --version`.
func pixiVersionOf(ctx context.Context, path string, environ []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, path, "--version")
	command.Env = environ
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, shorten(lastLine(stderr.String()), 200))
	}
	fields := strings.Fields(stdout.String())
	if len(fields) < 2 || fields[0] != "pixi" {
		return "", fmt.Errorf("%s is no pixi: it printed %q", path, shorten(stdout.String(), 80))
	}
	if compareVersions(fields[1], pixiMinimum) < 0 {
		return "", fmt.Errorf("%s is pixi %s; %s or later is needed", path, fields[1], pixiMinimum)
	}
	return fields[1], nil
}

func pixiBinary() string {
	if runtime.GOOS == "windows" {
		return "pixi.exe"
	}
	return "pixi"
}

// fetchedPixi is where a fetched pixi is kept.
func fetchedPixi(cache string) string {
	return filepath.Join(cache, "tools", "pixi-"+pixiVersion, pixiBinary())
}

// pixiDropped would make pixi believe that it runs inside another workspace, or bend what it builds.
var pixiDropped = []string{"PIXI_", "CONDA_", "MAMBA_"}

// pixiKept are settings of pixi that a person makes for every workspace.
var pixiKept = []string{"PIXI_HOME", "PIXI_CACHE_DIR", "PIXI_TLS_ROOT_CERTS", "PIXI_AUTH_FILE", "PIXI_CONFIG_FILE", "CONDA_OVERRIDE_CUDA", "CONDA_OVERRIDE_GLIBC"}

// pixiEnviron is the environment of pixi, from uv's: no other workspace's variables; proxies and SSL_CERT_FILE,
// which pixi reads itself, stay.
func pixiEnviron(environ []string) []string {
	var kept []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		name = strings.ToUpper(name)
		drop := false
		for _, prefix := range pixiDropped {
			drop = drop || strings.HasPrefix(name, prefix)
		}
		for _, wanted := range pixiKept {
			drop = drop && name != wanted
		}
		if !drop {
			kept = append(kept, line)
		}
	}
	return append(kept, "PIXI_NO_PROGRESS=true", "PIXI_COLOR=never")
}
