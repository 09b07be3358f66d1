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
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/moby/sys/atomicwriter"
)

// tool is an installer that can be run.
type tool struct {
	Path    string
	Version string
	Source  string // where it was found
}

// toolPlace is where an installer may lie.
type toolPlace struct{ path, source string }

// installer is uv or pixi, and where to look for it.
type installer struct {
	name    string
	minimum string // the oldest version that does
	setting string // path from the settings
	environ []string
	probe   []string    // environment to ask for the version with; nil is this process's
	places  []toolPlace // after PATH
	fetched string      // where a fetched one is kept
	fetch   func(ctx context.Context) (source string, err error)
	say     func(format string, arguments ...any)
}

// find returns the one of the settings, else the first that works on PATH and in the other places, else one fetched
// before or now.
func (i installer) find(ctx context.Context) (tool, error) {
	if i.setting != "" {
		path, err := resolveExecutable(i.setting, i.environ)
		if err != nil {
			return tool{}, fmt.Errorf("the %s of the settings: %w", i.name, err)
		}
		version, err := i.version(ctx, path)
		if err != nil {
			return tool{}, fmt.Errorf("the %s of the settings: %w", i.name, err)
		}
		return tool{path, version, "the settings"}, nil
	}
	var places []toolPlace
	for _, path := range pathCandidates(i.name, i.environ) {
		places = append(places, toolPlace{path, "PATH"})
	}
	places = append(places, i.places...)
	places = append(places, toolPlace{i.fetched, "the cache"})
	for _, place := range places {
		if !exists(place.path) {
			continue
		}
		version, err := i.version(ctx, place.path)
		if err != nil {
			if ctx.Err() != nil {
				return tool{}, ctx.Err()
			}
			i.say("%s of %s passed over: %v", i.name, place.source, err)
			continue
		}
		return tool{place.path, version, place.source}, nil
	}
	source, err := i.fetch(ctx)
	if err != nil {
		return tool{}, err
	}
	version, err := i.version(ctx, i.fetched)
	if err != nil {
		return tool{}, fmt.Errorf("the %s that was fetched: %w", i.name, err)
	}
	return tool{i.fetched, version, source}, nil
}

// version runs `<name> --version`. What is no such tool, or too old, is an error.
func (i installer) version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, path, "--version")
	command.Env = i.probe
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, shorten(lastLine(stderr.String()), 200))
	}
	fields := strings.Fields(stdout.String())
	if len(fields) < 2 || fields[0] != i.name {
		return "", fmt.Errorf("%s is no %s: it printed %q", path, i.name, shorten(stdout.String(), 80))
	}
	if compareVersions(fields[1], i.minimum) < 0 {
		return "", fmt.Errorf("%s is %s %s; %s or later is needed", path, i.name, fields[1], i.minimum)
	}
	return fields[1], nil
}

// program is the file name of a program on this platform.
func program(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// fetchedTool is where a fetched installer is kept.
func fetchedTool(cache, name, version string) string {
	return filepath.Join(cache, "tools", name+"-"+version, program(name))
}

// fetchOnce has a program fetched to target, unless it is there; of several processes one does it.
func fetchOnce(ctx context.Context, target string, fetch func() error) (err error) {
	folder := filepath.Dir(target)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(folder, ".lock"), flock.SetPermissions(lockMode))
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return fmt.Errorf("waiting for another fetch: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if exists(target) {
		return nil // another process fetched it in the meantime
	}
	return fetch()
}

// putProgram puts a program in place.
func putProgram(target string, binary []byte) error {
	// A process that this one forks while the file is open for writing would hold it so until it executes something
	// else, and the binary could not be started before ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return atomicwriter.WriteFile(target, binary, 0o755)
}
