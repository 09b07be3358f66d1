package envbuild

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// pixiMinimum is the oldest pixi that knows all that the backend uses: `pixi lock`, `shell-hook --json --frozen`.
const pixiMinimum = "0.50.0"

// findPixi looks for pixi once per builder: the one of the settings, of PATH, of pixi's own installer, or one
// fetched before or now.
func (b *Builder) findPixi(ctx context.Context, say func(format string, arguments ...any)) (tool, error) {
	environ := uvEnviron(b.configuration.Environ, pipPrefix(b.facts))
	indexes, err := b.packageIndexes(environ)
	if err != nil {
		return tool{}, err
	}
	b.toolLock.Lock()
	defer b.toolLock.Unlock()
	if b.pixi != nil {
		return *b.pixi, nil
	}
	found, err := b.searchPixi(ctx, indexes, say)
	if err != nil {
		return tool{}, err
	}
	b.pixi = &found
	return found, nil
}

func (b *Builder) searchPixi(ctx context.Context, indexes *indexes, say func(format string, arguments ...any)) (tool, error) {
	environ := b.configuration.Environ
	home := environValue(environ, "PIXI_HOME")
	if home == "" {
		user := environValue(environ, "HOME")
		if runtime.GOOS == "windows" {
			user = environValue(environ, "USERPROFILE")
		}
		home = filepath.Join(user, ".pixi")
	}
	pixi := installer{name: "pixi", minimum: pixiMinimum, setting: b.configuration.Pixi, environ: environ, probe: environ,
		fetched: fetchedPixi(b.configuration.Cache), say: say}
	if filepath.IsAbs(home) {
		pixi.places = []toolPlace{{filepath.Join(home, "bin", program("pixi")), "its own installer's folder"}}
	}
	pixi.fetch = func(ctx context.Context) (string, error) {
		releases := b.configuration.PixiReleases
		if releases == "" {
			releases = DefaultPixiReleases
		}
		if err := fetchPixi(ctx, indexes, releases, pixi.fetched, say); err != nil {
			return "", fmt.Errorf("no pixi in the settings or on PATH, and fetching pixi %s failed: %w; install pixi, or name one with the pixi setting",
				pixiVersion, err)
		}
		return releases, nil
	}
	return pixi.find(ctx)
}

// fetchedPixi is where a fetched pixi is kept.
func fetchedPixi(cache string) string { return fetchedTool(cache, "pixi", pixiVersion) }

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
