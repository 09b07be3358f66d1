package envbuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// explain adds to an error of the file system what to do about it: whose the environments are, where the store can not
// be written, and what makes room.
func (s *Store) explain(err error) error {
	var installer *BuildError
	if errors.Is(err, syscall.ENOSPC) || errors.As(err, &installer) && strings.Contains(installer.Reason, "No space left on device") {
		return fmt.Errorf("%w\n  `comfy-supervisor gc` lists what can go, and COMFY_ENV_ROOT names another place", err)
	}
	var failure *fs.PathError
	if !errors.As(err, &failure) || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	root := filepath.Dir(s.root)
	if !within(root, failure.Path) && !within(failure.Path, root) {
		return err
	}
	place := failure.Path
	for !exists(place) && place != filepath.Dir(place) {
		place = filepath.Dir(place)
	}
	if owner := otherOwner(place); owner != "" {
		return fmt.Errorf("%w; %s belongs to %s: set COMFY_ENV_ROOT to a folder of your own, or build as that user", err, place, owner)
	}
	return fmt.Errorf("%w; set COMFY_ENV_ROOT to a folder that can be written", err)
}

// lockMode lets other users of a root see that an environment is being built.
const lockMode os.FileMode = 0o644
