package envbuild

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// chosenPython is the interpreter that an environment is made from.
type chosenPython struct {
	interpreter
	Source string // where it was found
}

// findPython looks for an interpreter of the wanted version: the host's own base interpreter, PATH, pyenv's,
// the py launcher's, uv's.
func findPython(ctx context.Context, wanted string, host PythonFacts, environ []string, probe prober) (chosenPython, error) {
	search := pythonSearch{wanted: wanted, probe: probe, seen: map[string]bool{}}
	if host.BaseExecutable != "" {
		if found, ok := search.try(ctx, host.BaseExecutable, "the host's"); ok {
			return found, nil
		}
	}
	places := []struct {
		name string
		list func() []string
	}{
		{"PATH", func() []string { return pythonsOnPath(wanted, environ) }},
		{"pyenv", func() []string { return pythonsOfPyenv(wanted, environ) }},
		{"the py launcher", func() []string { return pythonsOfLauncher(ctx, wanted, environ) }},
		{"uv", func() []string { return pythonsOfUV(wanted, environ) }},
	}
	for _, place := range places {
		if place.name == "the py launcher" && runtime.GOOS != "windows" {
			continue
		}
		for _, path := range place.list() {
			if found, ok := search.try(ctx, path, place.name); ok {
				return found, nil
			}
			if ctx.Err() != nil {
				return chosenPython{}, ctx.Err()
			}
		}
	}
	return chosenPython{}, &NoPythonError{Version: wanted, Host: host.BaseExecutable, Tried: search.tried}
}

// NoPythonError says that no interpreter of a version was found.
type NoPythonError struct {
	Version string
	Host    string   // the host's own base interpreter, which is another version
	Tried   []string // what was looked at, each with what was found there
}

func (e *NoPythonError) Error() string {
	places := "the host's base interpreter, PATH, pyenv, uv's own interpreters"
	if runtime.GOOS == "windows" {
		places = "the host's base interpreter, PATH, pyenv, the py launcher, uv's own interpreters"
	}
	text := fmt.Sprintf("no Python %s on this machine (looked at %s)", e.Version, places)
	if len(e.Tried) > 0 {
		text += ": " + strings.Join(e.Tried, "; ")
	}
	return text + fmt.Sprintf("; install it, for example with `uv python install %s`, or change the manifest's python", e.Version)
}

type pythonSearch struct {
	wanted string
	probe  prober
	seen   map[string]bool
	tried  []string
}

// try asks one candidate, and notes why it does not do.
func (s *pythonSearch) try(ctx context.Context, path, source string) (chosenPython, bool) {
	if s.seen[path] {
		return chosenPython{}, false
	}
	s.seen[path] = true
	if _, err := os.Stat(path); err != nil {
		s.tried = append(s.tried, fmt.Sprintf("%s is gone", path))
		return chosenPython{}, false
	}
	found, err := s.probe.interpreter(ctx, path)
	switch {
	case err != nil:
		s.tried = append(s.tried, err.Error())
	case !versionMatches(found.Version, s.wanted):
		s.tried = append(s.tried, fmt.Sprintf("%s is %s", path, found.Version))
	case found.Implementation != "cpython":
		s.tried = append(s.tried, fmt.Sprintf("%s is %s, not CPython", path, found.Implementation))
	default:
		// A virtual environment on PATH leads to the interpreter that it was made from: the environment's life
		// must not hang on it.
		if found.BaseExecutable != "" && found.BaseExecutable != found.Executable {
			if base, err := s.probe.interpreter(ctx, found.BaseExecutable); err == nil && versionMatches(base.Version, s.wanted) {
				base.Executable = found.BaseExecutable
				return chosenPython{base, source}, true
			}
		}
		return chosenPython{found, source}, true
	}
	return chosenPython{}, false
}

// pythonsOnPath lists python3.12, python3 and python of every folder of PATH.
func pythonsOnPath(wanted string, environ []string) []string {
	var paths []string
	for _, name := range []string{"python" + minorVersion(wanted), "python3", "python"} {
		paths = append(paths, pathCandidates(name, environ)...)
	}
	return paths
}

// pythonsOfPyenv lists the matching versions of pyenv, the newest first.
func pythonsOfPyenv(wanted string, environ []string) []string {
	roots := []string{environValue(environ, "PYENV_ROOT")}
	if runtime.GOOS == "windows" {
		roots = append(roots, environValue(environ, "PYENV"), filepath.Join(environValue(environ, "USERPROFILE"), ".pyenv", "pyenv-win"))
	} else {
		roots = append(roots, filepath.Join(environValue(environ, "HOME"), ".pyenv"))
	}
	var paths []string
	for _, root := range roots {
		if !filepath.IsAbs(root) {
			continue
		}
		for _, version := range matchingFolders(filepath.Join(root, "versions"), wanted, func(name string) string { return name }) {
			if runtime.GOOS == "windows" {
				paths = append(paths, filepath.Join(version, "python.exe"))
			} else {
				paths = append(paths, filepath.Join(version, "bin", "python"))
			}
		}
	}
	return paths
}

// pythonsOfUV lists the interpreters that uv manages, the newest first.
func pythonsOfUV(wanted string, environ []string) []string {
	var root string
	switch home := environValue(environ, "HOME"); {
	case environValue(environ, "UV_PYTHON_INSTALL_DIR") != "":
		root = environValue(environ, "UV_PYTHON_INSTALL_DIR")
	case runtime.GOOS == "windows":
		root = filepath.Join(environValue(environ, "APPDATA"), "uv", "data", "python")
	case environValue(environ, "XDG_DATA_HOME") != "":
		root = filepath.Join(environValue(environ, "XDG_DATA_HOME"), "uv", "python")
	default:
		root = filepath.Join(home, ".local", "share", "uv", "python")
	}
	if !filepath.IsAbs(root) {
		return nil
	}
	version := func(folder string) string { // cpython-3.12.7-linux-x86_64-gnu
		rest, found := strings.CutPrefix(folder, "cpython-")
		if !found {
			return ""
		}
		number, tail, _ := strings.Cut(rest, "-")
		if !strings.Contains(tail, runtime.GOOS) && !(runtime.GOOS == "darwin" && strings.Contains(tail, "macos")) {
			return ""
		}
		return number
	}
	var paths []string
	for _, folder := range matchingFolders(root, wanted, version) {
		if runtime.GOOS == "windows" {
			paths = append(paths, filepath.Join(folder, "python.exe"))
		} else {
			paths = append(paths, filepath.Join(folder, "bin", "python3"))
		}
	}
	return paths
}

// pythonsOfLauncher asks Windows' py launcher, which knows every registered installation.
func pythonsOfLauncher(ctx context.Context, wanted string, environ []string) []string {
	launcher, err := resolveExecutable("py", environ)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, launcher, "-0p")
	command.WaitDelay = time.Second
	output, err := command.Output()
	if err != nil {
		return nil
	}
	var paths []string
	for line := range bytes.Lines(output) { // " -V:3.12 *        C:\...\python.exe"
		text := strings.TrimSpace(string(line))
		tag, rest, found := strings.Cut(text, " ")
		tag = strings.TrimPrefix(strings.TrimPrefix(tag, "-V:"), "-")
		if !found || !versionMatches(wanted, minorVersion(numericVersion(tag))) {
			continue
		}
		paths = append(paths, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), "*")))
	}
	return paths
}

// matchingFolders lists the folders in root whose version matches, the newest first.
func matchingFolders(root, wanted string, version func(name string) string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if found := version(entry.Name()); found != "" && numericVersion(found) == found && versionMatches(found, wanted) {
			names = append(names, entry.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(compareVersions(version(b), version(a)), cmp.Compare(a, b))
	})
	for i := range names {
		names[i] = filepath.Join(root, names[i])
	}
	return names
}
