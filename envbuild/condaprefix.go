package envbuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// condaMetadata is the folder in a conda prefix that has one file for each package.
const condaMetadata = "conda-meta"

// condaPythonFile matches the metadata of the interpreter: python-3.12.7-h2628c8c_0_cpython.json.
var condaPythonFile = regexp.MustCompile(`^python-([0-9]+\.[0-9]+\.[0-9]+[^-]*)-[^-]+\.json$`)

// condaPythonVersion reads a conda prefix's Python from its metadata, without starting it.
func condaPythonVersion(prefix string) (string, error) {
	folder := filepath.Join(prefix, condaMetadata)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", fmt.Errorf("reading the packages of %s: %w", prefix, err)
	}
	for _, entry := range entries {
		if match := condaPythonFile.FindStringSubmatch(entry.Name()); match != nil {
			return numericVersion(match[1]), nil
		}
	}
	return "", fmt.Errorf("the environment %s has no Python: %s names none", prefix, folder)
}

// condaPython is the interpreter of a conda prefix.
func condaPython(prefix string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(prefix, "python.exe")
	}
	return filepath.Join(prefix, "bin", "python")
}

// elsewhereName is a file in a revision that holds the path of its prefix, where that lies outside of it.
const elsewhereName = "elsewhere"

// pixiPrefix is where pixi makes the one environment of a workspace.
func pixiPrefix(revision string) string { return filepath.Join(revision, ".pixi", "envs", "default") }

// prefixOf is the interpreter's prefix in a revision, wherever its backend puts it.
func prefixOf(revision string) string {
	own := filepath.Join(revision, "prefix")
	if exists(own) {
		return own
	}
	if prefix := pixiPrefix(revision); exists(prefix) {
		return prefix
	}
	content, err := os.ReadFile(filepath.Join(revision, elsewhereName))
	if errors.Is(err, fs.ErrNotExist) {
		return own
	}
	if path := strings.TrimSuffix(string(content), "\n"); err == nil && filepath.IsAbs(path) {
		return path
	}
	return own
}

// revisionOf is the folder of an environment's revision: two levels below the store's folder of environments,
// unless its prefix lies outside of it.
func (s *Store) revisionOf(environment Environment) string {
	below, err := filepath.Rel(s.environments(), environment.Prefix)
	if parts := strings.Split(below, string(filepath.Separator)); err == nil && len(parts) > 2 && parts[0] != ".." {
		return filepath.Join(s.environments(), parts[0], parts[1])
	}
	return filepath.Join(s.environments(), environment.Name+"_"+environment.Stack, environment.Revision)
}
