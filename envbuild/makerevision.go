package envbuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/moby/sys/atomicwriter"
)

// lockPoll is how often a lock that another build holds is tried again: the kernel's own wait for a file lock
// can not be cancelled.
const lockPoll = 50 * time.Millisecond

// make builds a new revision of a plan and completes it with its stamp. kept is a revision of the same plan that is
// whole and stays when an upgrade finds nothing newer; make then returns errSameVersions.
func (b *Builder) make(ctx context.Context, plan *Plan, directory, kept string, result *Result) (made string, mark *stamp, err error) {
	begin := time.Now()
	_, next, err := revisions(directory, plan.Hash)
	if err != nil {
		return "", nil, err
	}
	lock, lockReceived, preferences := b.store.locksFor(directory, plan)
	upgrade := b.configuration.Upgrade
	switch {
	case len(upgrade) > 0 && lock != "":
		lock, preferences = "", lock
	case b.configuration.Frozen && lock == "" && !plan.Recipe.empty():
		return "", nil, fmt.Errorf("%s has no lock file for this plan, and --frozen builds from lock files alone; build once without it, and keep %s",
			plan.Name, b.store.locks())
	}
	revision := filepath.Join(directory, fmt.Sprintf("%s-%d", plan.Hash, next))
	if err := os.Mkdir(revision, 0o755); err != nil {
		return "", nil, fmt.Errorf("making a revision of %s: %w", plan.Name, err)
	}
	logPath := filepath.Join(directory, "build.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("opening the build log: %w", err), os.Remove(revision))
	}
	defer func() {
		if closing := log.Close(); closing != nil && err == nil {
			err = fmt.Errorf("writing the build log: %w", closing)
		}
		if err != nil {
			if removal := removeRevision(revision); removal != nil {
				err = errors.Join(err, removal)
			}
		}
	}()
	fmt.Fprintf(log, "# %s %s, revision %s, %s\n", plan.Name, plan.Stack, filepath.Base(revision), begin.Format(time.RFC3339))
	for _, line := range slices.Concat(result.Why, plan.Lines) {
		fmt.Fprintf(log, "# %s\n", line)
	}
	var interpreter chosenPython // conda brings its own
	if plan.Recipe.Backend != BackendPixi {
		if interpreter, err = findPython(ctx, plan.Recipe.Python, b.facts.Python, b.configuration.Environ, b.prober); err != nil {
			return "", nil, fmt.Errorf("building %s: %w", plan.Name, err)
		}
	}
	var said []string
	report := func(event Event) {
		if event.Kind == EventLine {
			said = append(said, event.Text)
		}
		b.configuration.Report(event)
	}
	work := &job{Plan: plan, Revision: revision, Prefix: prefixOf(revision), Interpreter: interpreter, Lock: lock,
		LockReceived: lockReceived, Preferences: preferences, Busy: filepath.Join(directory, busyName), Log: log, Report: report, Upgrade: upgrade,
		Frozen: b.configuration.Frozen}
	if kept != "" {
		work.Kept = filepath.Join(kept, plan.lockName())
	}
	builder, err := b.backend(plan.Recipe.Backend)
	if err != nil {
		return "", nil, err
	}
	got, err := builder.build(ctx, work)
	if err != nil {
		var failure *BuildError
		if errors.As(err, &failure) {
			failure.Log = logPath
		}
		return "", nil, err
	}
	interpreter = work.Interpreter
	entries, err := siteEntries(prefixOf(revision), interpreter.Version)
	if err != nil {
		return "", nil, fmt.Errorf("reading what was built: %w", err)
	}
	mark = &stamp{Format: storeFormat, PlanHash: plan.Hash, Recipe: plan.Recipe, Inputs: plan.Inputs,
		Interpreter: interpreter.Executable, Python: interpreter.Version, Received: got, Lines: slices.Concat(plan.Lines, said),
		Entries: entries, BuiltAt: time.Now().UTC(), Seconds: time.Since(begin).Seconds()}
	if err := mark.write(revision); err != nil {
		return "", nil, err
	}
	if err := b.store.saveLock(plan, revision, got); err != nil {
		return "", nil, err
	}
	return revision, mark, nil
}

// guard is the command line that starts a guard.
func (b *Builder) guard() ([]string, error) {
	if b.configuration.Guard != nil {
		return b.configuration.Guard, nil
	}
	return guardProgram()
}

// backend returns what carries plans of that kind out.
func (b *Builder) backend(name string) (backend, error) {
	guard, err := b.guard()
	if err != nil {
		return nil, err
	}
	environ := uvEnviron(b.configuration.Environ, pipPrefix(b.facts))
	indexes, err := b.packageIndexes(environ)
	if err != nil {
		return nil, err
	}
	if name == BackendPixi {
		return &pixiBackend{environ: pixiEnviron(environ), guard: guard, indexes: indexes, find: b.findPixi}, nil
	}
	return &uvBackend{environ: environ, guard: guard, indexes: indexes, first: &b.first, find: b.findUV}, nil
}

// packageIndexes are the indexes as one builder sees them: what one environment was told holds for the others.
func (b *Builder) packageIndexes(environ []string) (*indexes, error) {
	b.toolLock.Lock()
	defer b.toolLock.Unlock()
	if b.indexes == nil {
		made, err := newIndexes(environ)
		if err != nil {
			return nil, err
		}
		b.indexes = made
	}
	return b.indexes, nil
}

// findUV looks for uv once per builder.
func (b *Builder) findUV(ctx context.Context, say func(format string, arguments ...any)) (tool, error) {
	b.toolLock.Lock()
	defer b.toolLock.Unlock()
	if b.tool != nil {
		return *b.tool, nil
	}
	found, err := findUV(ctx, toolSearch{setting: b.configuration.UV, environ: b.configuration.Environ, host: b.facts.Python,
		cache: b.configuration.Cache, say: say})
	if err != nil {
		return tool{}, err
	}
	b.tool = &found
	return found, nil
}

const (
	lockFileName = "lock"
	busyName     = "busy"
)

// hold is a held lock of an environment's folder.
type hold struct {
	lock   *flock.Flock
	waited bool
}

func (h *hold) release() { _ = h.lock.Close() } // the lock ends with the descriptor, whatever close says

// lock makes this build the only one of an environment, whose folder it makes, and waits until nothing of an earlier one
// lives.
func (b *Builder) lock(ctx context.Context, plan *Plan, directory string) (*hold, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("making the environment's folder: %w", err)
	}
	held := &hold{lock: flock.New(filepath.Join(directory, lockFileName), flock.SetPermissions(lockMode))}
	got, err := held.lock.TryLock()
	if err == nil && !got {
		held.waited = true
		b.report(EventWaiting, plan.Name, "another build of this environment runs; waiting for it")
		_, err = held.lock.TryLockContext(ctx, lockPoll)
	}
	if err != nil {
		_ = held.lock.Close()
		return nil, fmt.Errorf("locking %s: %w", directory, err)
	}
	busy := flock.New(filepath.Join(directory, busyName), flock.SetPermissions(lockMode))
	_, err = busy.TryLockContext(ctx, lockPoll)
	if err = errors.Join(err, busy.Close()); err != nil {
		held.release()
		return nil, fmt.Errorf("waiting for the processes of an earlier build of %s to end: %w", plan.Name, err)
	}
	return held, nil
}

// removeIncomplete removes what interrupted builds left. The caller holds the environment's lock.
func removeIncomplete(directory string) error {
	all, _, err := revisions(directory, "")
	if err != nil {
		return err
	}
	for _, revision := range all {
		if _, err := os.Stat(filepath.Join(revision, stampName)); errors.Is(err, fs.ErrNotExist) {
			if err := removeRevision(revision); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("reading %s: %w", directory, err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() && strings.HasPrefix(entry.Name(), ".") { // of a write that was cut short
			_ = os.Remove(filepath.Join(directory, entry.Name()))
		}
	}
	return nil
}

// removeRevision deletes a revision that is not in use, its stamp first: half deleted, it is not complete.
func removeRevision(revision string) error {
	if err := os.Remove(filepath.Join(revision, stampName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the revision %s: %w", revision, err)
	}
	if err := os.RemoveAll(revision); err != nil {
		return fmt.Errorf("removing the revision %s: %w", revision, err)
	}
	return nil
}

// setCurrent names a revision as the one built last.
func setCurrent(directory, revision string) error {
	path := filepath.Join(directory, currentName)
	if err := atomicwriter.WriteFile(path, []byte(filepath.Base(revision)+"\n"), 0o644); err != nil {
		return fmt.Errorf("switching to %s: %w", revision, err)
	}
	return nil
}

// revision is the folder of a revision by its name.
func (s *Store) revision(plan *Plan, name string) string {
	return filepath.Join(s.directory(plan), name)
}

// saveHost keeps host facts for those who look environments up.
func (s *Store) saveHost(facts Facts) (string, error) {
	path, err := SaveFacts(s.hosts(), facts)
	return filepath.Base(path), err
}

// copyFile copies a small file.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
