package envbuild

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/atomicwriter"
)

// Lock files are kept apart from the revisions that were built from them: they outlive their revisions, and the
// folder is what a CI job keeps between runs, or carries to a machine that builds with --frozen.

// lockFiles are a plan's lock file and what it brought about.
func (s *Store) lockFiles(plan *Plan) (lock, about string) {
	base := filepath.Join(s.locks(), plan.DirectoryName(), plan.Hash)
	return base + ".lock", base + ".json"
}

// saveLock keeps the lock file of a revision that is complete.
func (s *Store) saveLock(plan *Plan, revision string, got received) error {
	content, err := os.ReadFile(filepath.Join(revision, plan.lockName()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was to be installed
	}
	if err != nil {
		return fmt.Errorf("keeping the lock file of %s: %w", plan.Name, err)
	}
	about, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the lock file of %s: %w", plan.Name, err)
	}
	lock, aboutFile := s.lockFiles(plan)
	if err := os.MkdirAll(filepath.Dir(lock), 0o755); err != nil {
		return fmt.Errorf("keeping the lock file of %s: %w", plan.Name, err)
	}
	if err := atomicwriter.WriteFile(aboutFile, append(about, '\n'), 0o644); err != nil {
		return fmt.Errorf("keeping the lock file of %s: %w", plan.Name, err)
	}
	if err := atomicwriter.WriteFile(lock, content, 0o644); err != nil {
		return fmt.Errorf("keeping the lock file of %s: %w", plan.Name, err)
	}
	return nil
}

// locksFor finds what an earlier build resolved: the lock file of the very same plan, which holds exactly what has
// to be installed again, with what it brought about; or else that of the revision built last, whose versions are
// kept where the plan allows.
func (s *Store) locksFor(directory string, plan *Plan) (exact string, got received, preferences string) {
	lock, about := s.lockFiles(plan)
	if content, err := os.ReadFile(about); err == nil && exists(lock) && json.Unmarshal(content, &got) == nil {
		return lock, got, ""
	}
	content, err := os.ReadFile(filepath.Join(directory, currentName))
	if err != nil {
		return "", received{}, ""
	}
	name := strings.TrimSpace(string(content))
	if _, _, ok := revisionNumber(name); !ok {
		return "", received{}, ""
	}
	if file := filepath.Join(directory, name, plan.lockName()); exists(file) {
		return "", received{}, file
	}
	return "", received{}, ""
}

// sameFile compares the bytes of two files; one that can not be read is never the same.
func sameFile(a, b string) bool {
	left, err := os.ReadFile(a)
	if err != nil {
		return false
	}
	right, err := os.ReadFile(b)
	return err == nil && string(left) == string(right)
}
