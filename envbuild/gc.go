package envbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// States of a revision, as Usage reports them.
const (
	StateUsed       = "used"       // a pack that is there is recorded with it
	StateDisabled   = "disabled"   // its pack is switched off and could be switched on again
	StateSuperseded = "superseded" // its pack has a newer one
	StateOrphan     = "orphan"     // its pack, or its whole ComfyUI, is gone
	StatePartial    = "partial"    // a build was interrupted
)

// Usage is one revision on disk and who uses it.
type Usage struct {
	Environment string    `json:"environment"`
	Stack       string    `json:"stack"`
	Revision    string    `json:"revision"` // folder
	State       string    `json:"state"`
	Packs       []string  `json:"packs,omitempty"` // pack folders that it is recorded for
	ComfyUI     []string  `json:"comfyui,omitempty"`
	Bytes       int64     `json:"bytes"`     // on disk, each file counted once
	Exclusive   int64     `json:"exclusive"` // of these, bytes that no other place shares: what deleting it gives back
	LastUse     time.Time `json:"last_use"`
	Processes   []int     `json:"processes,omitempty"` // that run from it
	// Collectable says that gc may delete it; Reason why, or why not.
	Collectable bool   `json:"collectable"`
	Reason      string `json:"reason"`

	directory string   // of the environment
	records   []string // record files
}

// Usages lists all revisions of the store. An orphan is collectable when it was not used for keep.
func (s *Store) Usages(ctx context.Context, keep time.Duration) ([]Usage, error) {
	entries, err := s.load()
	if err != nil {
		return nil, err
	}
	directories, err := os.ReadDir(s.environments())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the environments: %w", err)
	}
	var usages []Usage
	for _, directory := range directories {
		if !directory.IsDir() {
			continue
		}
		folder := filepath.Join(s.environments(), directory.Name())
		paths, _, err := revisions(folder, "")
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			usage := s.usage(folder, path, entries)
			usage.Bytes, usage.Exclusive = DiskUsage(path)
			usages = append(usages, usage)
		}
	}
	prefixes := make([]string, len(usages))
	for i := range usages {
		prefixes[i] = prefixOf(usages[i].Revision)
	}
	running := processesIn(ctx, prefixes)
	for i := range usages {
		usages[i].Processes = running[prefixes[i]]
		usages[i].judge(keep)
	}
	return usages, nil
}

// usage finds out who uses a revision.
func (s *Store) usage(folder, revision string, entries []*record) Usage {
	name, stack, _ := strings.Cut(filepath.Base(folder), "_")
	usage := Usage{Environment: name, Stack: stack, Revision: revision, directory: folder, LastUse: s.lastUse(revision)}
	mark, err := readStamp(revision)
	if err != nil {
		usage.State = StatePartial
		return usage
	}
	if mark.BuiltAt.After(usage.LastUse) {
		usage.LastUse = mark.BuiltAt
	}
	usage.State = StateSuperseded
	for _, entry := range entries {
		if entry.Prefix != prefixOf(revision) {
			continue
		}
		if entry.Superseded {
			usage.records = append(usage.records, filepath.Join(s.records(), entry.file))
			continue
		}
		usage.Packs = append(usage.Packs, entry.PackDirectory)
		if entry.ComfyUI != "" && !slices.Contains(usage.ComfyUI, entry.ComfyUI) {
			usage.ComfyUI = append(usage.ComfyUI, entry.ComfyUI)
		}
		usage.records = append(usage.records, filepath.Join(s.records(), entry.file))
		state := StateOrphan
		switch {
		case exists(entry.Manifest):
			state = StateUsed
		case exists(entry.PackDirectory) || exists(entry.PackDirectory+".disabled") || exists(disabledPack(entry.PackDirectory)):
			state = StateDisabled
		}
		// Of several packs the one that needs it most decides.
		if order := []string{StateUsed, StateDisabled, StateOrphan, StateSuperseded}; slices.Index(order, state) < slices.Index(order, usage.State) {
			usage.State = state
		}
	}
	return usage
}

// disabledPack is where the Manager keeps a pack that was switched off.
func disabledPack(pack string) string {
	return filepath.Join(filepath.Dir(pack), ".disabled", filepath.Base(pack))
}

// judge decides whether a revision may be deleted.
func (u *Usage) judge(keep time.Duration) {
	unused := time.Since(u.LastUse)
	switch {
	case len(u.Processes) > 0:
		u.Reason = fmt.Sprintf("processes run from it (%s)", strings.Trim(fmt.Sprint(u.Processes), "[]"))
	case u.State == StateUsed:
		u.Reason = "used by " + strings.Join(u.Packs, ", ")
	case u.State == StateDisabled:
		u.Reason = "its pack can be switched on again"
	case u.State == StateOrphan && unused < keep:
		u.Reason = fmt.Sprintf("its pack is gone, and it was used within the last %s", days(keep))
	case u.State == StateOrphan:
		u.Collectable, u.Reason = true, "its pack is gone: "+strings.Join(u.Packs, ", ")
	case u.State == StateSuperseded:
		u.Collectable, u.Reason = true, "a newer one took its place"
	case u.State == StatePartial:
		u.Collectable, u.Reason = true, "an interrupted build left it"
	}
}

func days(duration time.Duration) string {
	if count := int(duration.Hours() / 24); count != 1 {
		return fmt.Sprintf("%d days", count)
	}
	return "day"
}

// Collect deletes a revision that Usages found collectable, unless something has changed since: it is judged again
// under the environment's lock. It reports whether the revision was deleted, and if not, why.
func (s *Store) Collect(ctx context.Context, usage Usage, keep time.Duration) (deleted bool, reason string, err error) {
	lock := flock.New(filepath.Join(usage.directory, lockFileName), flock.SetPermissions(lockMode))
	got, err := lock.TryLock()
	if err != nil {
		return false, "", fmt.Errorf("locking %s: %w", usage.directory, err)
	}
	if !got {
		return false, "it is being built", nil
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	busy := flock.New(filepath.Join(usage.directory, busyName), flock.SetPermissions(lockMode))
	got, err = busy.TryLock()
	if err = errors.Join(err, busy.Close()); err != nil {
		return false, "", fmt.Errorf("locking %s: %w", usage.directory, err)
	}
	if !got {
		return false, "processes of a build still write into it", nil
	}
	entries, err := s.load()
	if err != nil {
		return false, "", err
	}
	now := s.usage(usage.directory, usage.Revision, entries)
	now.Processes = processesIn(ctx, []string{prefixOf(usage.Revision)})[prefixOf(usage.Revision)]
	now.judge(keep)
	if !now.Collectable {
		return false, now.Reason, nil
	}
	for _, file := range now.records {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, "", fmt.Errorf("removing the record of %s: %w", usage.Environment, err)
		}
	}
	if err := removeRevision(usage.Revision); err != nil {
		return false, "", err
	}
	_ = os.Remove(s.useFile(usage.Revision)) // a time stamp without its revision means nothing
	return true, now.Reason, nil
}

// MarkUsed notes that an environment is used now. Callers do so when they start a process in it.
func (s *Store) MarkUsed(environment Environment) error {
	file := s.useFile(s.revisionOf(environment))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("noting the use of %s: %w", environment.Name, err)
	}
	content, err := json.Marshal(time.Now().UTC())
	if err != nil {
		return fmt.Errorf("noting the use of %s: %w", environment.Name, err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("noting the use of %s: %w", environment.Name, err)
	}
	return nil
}

// useFile holds the time of a revision's last use; the revision itself never changes.
func (s *Store) useFile(revision string) string {
	return filepath.Join(s.root, "uses", filepath.Base(filepath.Dir(revision)), filepath.Base(revision))
}

// lastUse is when a revision was last used, the zero time when nobody said.
func (s *Store) lastUse(revision string) time.Time {
	var used time.Time
	content, err := os.ReadFile(s.useFile(revision))
	if err != nil || json.Unmarshal(content, &used) != nil {
		return time.Time{}
	}
	return used
}
