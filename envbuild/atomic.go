package envbuild

import (
	"fmt"
	"os"
	"path/filepath"
)

// writeAtomically replaces a file: readers see the old content or the new, never a part, and after a crash too.
func writeAtomically(path string, content []byte, mode os.FileMode) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	if _, err = file.Write(content); err != nil {
		return fmt.Errorf("writing %s: %w", file.Name(), err)
	}
	if err = file.Chmod(mode); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", file.Name(), err)
	}
	if err = file.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", file.Name(), err)
	}
	return os.Rename(file.Name(), path)
}
