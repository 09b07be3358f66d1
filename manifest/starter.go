package manifest

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed starter.toml
var starter []byte

//go:embed starter-root.toml
var starterRoot []byte

// StarterFor is a commented manifest to begin with: of an environment, or of a pack's root. It is valid as it
// stands, and so is what becomes of it when lines are no longer comments.
func StarterFor(root bool) []byte {
	if root {
		return starterRoot
	}
	return starter
}

// WriteStarter writes a starter manifest where it will be found: the root file into the pack's folder, the other
// one into its nodes folder or into folder itself when manifests are looked for there. It returns the file's path.
// What is there already stays.
func WriteStarter(folder string, root bool) (string, error) {
	file, err := starterPlace(folder, root)
	if err != nil {
		return "", err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("writing %s: it is there already; check it, or remove it first", file)
	}
	if err != nil {
		return "", fmt.Errorf("writing a starter manifest: %w", err)
	}
	_, err = out.Write(StarterFor(root))
	if err := errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(file))
	}
	return file, nil
}

// starterPlace finds the file that a folder means.
func starterPlace(folder string, root bool) (string, error) {
	if !isDirectory(folder) {
		return "", fmt.Errorf("writing a starter manifest: %s is no folder; name a pack or one of its nodes folders", folder)
	}
	full := absolute(folder)
	inNodes := filepath.Base(full) == "nodes" || filepath.Base(filepath.Dir(full)) == "nodes"
	switch {
	case root && inNodes:
		return "", fmt.Errorf("writing %s: %s is a nodes folder; name the pack's own folder", RootFile, folder)
	case root:
		return filepath.Join(folder, RootFile), nil
	case inNodes:
		return filepath.Join(folder, EnvironmentFile), nil
	case isDirectory(filepath.Join(folder, "nodes")):
		return filepath.Join(folder, "nodes", EnvironmentFile), nil
	}
	return "", fmt.Errorf("writing %s: %s has no nodes folder, and manifests are looked for nowhere else; move the pack's node modules into %s",
		EnvironmentFile, folder, filepath.Join(folder, "nodes"))
}
