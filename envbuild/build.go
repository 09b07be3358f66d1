package envbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// Configuration is what a build needs to know besides the host and the packs.
type Configuration struct {
	Root  string // environment root; ours is <Root>/comfy-supervisor
	Cache string // our cache folder: fetched tools, what interpreters said
	UV    string // path of uv, "" to look for it
	Pixi  string // path of pixi, "" to look for it
	// PixiReleases is the base of pixi's release archives, "" for the project's own.
	PixiReleases string
	Endpoints    Endpoints
	Environ      []string // NAME=value lines, of the command that builds
	Jobs         int      // environments built side by side; 0 means one for each processor, at most four
	// Frozen builds from lock files alone: a plan without one is an error, and no index is asked which versions it has.
	Frozen bool
	// Upgrade names packages that are resolved anew although nothing changed, to the newest versions that the plan
	// allows; "*" means all.
	Upgrade []string
	// Guard is the command line that starts ServeGuard; nil means this program with GuardCommand.
	Guard  []string
	Report Reporter `json:"-"` // nil for none
}

// Outcomes of one environment.
const (
	OutcomeBuilt     = "built"
	OutcomeReused    = "reused" // a complete revision of the same plan was there
	OutcomeUnpacked  = "unpacked"
	OutcomeUnchanged = "unchanged"
	OutcomeFailed    = "failed"
	OutcomeCancelled = "cancelled"
	OutcomeInvalid   = "invalid" // the manifest has errors
)

// Result is what became of one manifest.
type Result struct {
	Environment string                `json:"environment"`
	Manifest    string                `json:"manifest"`
	Outcome     string                `json:"outcome"`
	Stack       string                `json:"stack,omitempty"`
	Prefix      string                `json:"prefix,omitempty"`
	Revision    string                `json:"revision,omitempty"`
	Seconds     float64               `json:"seconds"`
	Lines       []string              `json:"lines,omitempty"`
	Why         []string              `json:"why,omitempty"` // what made the build necessary
	Error       string                `json:"error,omitempty"`
	Diagnostics []manifest.Diagnostic `json:"-"`
	Err         error                 `json:"-"`
	Plan        *Plan                 `json:"plan,omitempty"`
}

// Work is one manifest with what was read of it.
type Work struct {
	Found       manifest.Found
	Parsed      *manifest.Manifest
	Diagnostics []manifest.Diagnostic
}

// Discover finds and parses the manifests of pack folders or of a ComfyUI. The diagnostics are about places;
// those of a file are with its work.
func Discover(folders []string, platform PlatformFacts) ([]Work, []manifest.Diagnostic) {
	found, problems := manifest.DiscoverAll(folders)
	work := make([]Work, len(found))
	for i, one := range found {
		work[i].Found = one
		content, problem := manifest.ReadFile(one.File)
		if problem != nil {
			work[i].Diagnostics = []manifest.Diagnostic{*problem}
			continue
		}
		work[i].Parsed, work[i].Diagnostics = manifest.ParseFor(manifest.Platform(platform.OS, platform.Arch), one.File, content)
	}
	return work, problems
}

// Builder builds environments for one host. Its methods may be called one after another; close it when done.
type Builder struct {
	configuration Configuration
	facts         Facts
	store         *Store
	prober        prober

	hostLock sync.Mutex
	host     string   // file name of the host facts in the store, once saved
	names    []string // files of the store's records, once listed

	toolLock sync.Mutex
	tool     *tool // once found
	pixi     *tool
	indexes  *indexes // once needed
	first    firstDownload
}

// NewBuilder prepares builds for a host.
func NewBuilder(configuration Configuration, facts Facts) (*Builder, error) {
	store, err := OpenStore(configuration.Root)
	if err != nil {
		return nil, err
	}
	if configuration.Report == nil {
		configuration.Report = func(Event) {}
	}
	if configuration.Jobs <= 0 {
		configuration.Jobs = min(runtime.NumCPU(), 4)
	}
	if facts.Platform.OS != runtime.GOOS || facts.Platform.Arch != runtime.GOARCH {
		return nil, fmt.Errorf("the host facts are of %s/%s; environments for it can not be built on %s/%s", facts.Platform.OS,
			facts.Platform.Arch, runtime.GOOS, runtime.GOARCH)
	}
	return &Builder{configuration: configuration, facts: facts, store: store, prober: prober{cache: configuration.Cache}}, nil
}

// Close ends the builder's idle connections.
func (b *Builder) Close() {
	b.toolLock.Lock()
	defer b.toolLock.Unlock()
	if b.indexes != nil {
		b.indexes.close()
	}
}

// Plan decides for one manifest, without building.
func (b *Builder) Plan(work Work) (*Plan, error) {
	if manifest.HasErrors(work.Diagnostics) {
		return nil, fmt.Errorf("%s has errors", work.Found.File)
	}
	return NewPlan(work.Found, work.Parsed, b.facts, b.configuration.Endpoints)
}

// Build brings environments up to date, several side by side, and returns what became of each, in the same order.
// A failure of one does not stop the others.
func (b *Builder) Build(ctx context.Context, work []Work) []Result {
	results := make([]Result, len(work))
	slots := make(chan struct{}, b.configuration.Jobs)
	var group sync.WaitGroup
	for i, one := range work {
		group.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
			}
			results[i] = b.one(ctx, one)
		})
	}
	group.Wait()
	return results
}

// one brings one environment up to date.
func (b *Builder) one(ctx context.Context, work Work) Result {
	begin := time.Now()
	result := Result{Environment: work.Found.Name, Manifest: work.Found.File, Diagnostics: work.Diagnostics}
	finish := func(outcome string, err error) Result {
		result.Outcome, result.Err, result.Seconds = outcome, err, time.Since(begin).Seconds()
		if err != nil {
			result.Error = err.Error()
			b.report(EventFailed, result.Environment, strings.TrimPrefix(result.Error, "building "+result.Environment+": "))
		}
		return result
	}
	if manifest.HasErrors(work.Diagnostics) {
		return finish(OutcomeInvalid, fmt.Errorf("%s has errors; nothing is built from it", work.Found.File))
	}
	plan, err := b.Plan(work)
	if err != nil {
		return finish(OutcomeFailed, err)
	}
	result.Stack, result.Lines, result.Plan = plan.Stack, plan.Lines, plan
	outcome, err := b.update(ctx, plan, &result)
	switch {
	case ctx.Err() != nil && err != nil:
		return finish(OutcomeCancelled, fmt.Errorf("building %s: cancelled: %w", plan.Name, ctx.Err()))
	case err != nil:
		return finish(OutcomeFailed, b.store.explain(err))
	}
	result = finish(outcome, nil)
	if outcome == OutcomeUnchanged {
		b.report(EventUnchanged, plan.Name, "unchanged")
	} else {
		b.report(EventBuilt, plan.Name, outcome+" in "+time.Since(begin).Round(10*time.Millisecond).String())
	}
	return result
}

func (b *Builder) report(kind, environment, text string) {
	b.configuration.Report(Event{Time: now(), Kind: kind, Environment: environment, Text: text})
}

// Forecast is what a build of a plan would do.
type Forecast struct {
	Unchanged bool     `json:"unchanged"`
	Why       []string `json:"why,omitempty"`   // what makes a build necessary
	Reuse     string   `json:"reuse,omitempty"` // folder of what would be used in place of a build, ours or comfy-env's
	Lines     []string `json:"-"`               // about what is there and would not be used
}

// Check says whether a plan's environment is up to date and, if not, what makes a build necessary and what it would
// come to. It reads files only.
func (b *Builder) Check(plan *Plan) Forecast {
	_, _, why := b.check(plan)
	upgrades := b.upgrades()
	forecast := Forecast{Why: append(why, upgrades...)}
	if len(forecast.Why) == 0 {
		forecast.Unchanged = true
		return forecast
	}
	if len(upgrades) > 0 {
		return forecast
	}
	if whole, _ := wholeRevision(b.store.directory(plan), plan.Hash); whole != "" {
		forecast.Reuse = whole
	} else if plan.registered == nil {
		forecast.Reuse, forecast.Lines = b.comfyEnvCandidates(plan).first()
	}
	return forecast
}

// upgrades is the reason that the caller gives for building what has not changed.
func (b *Builder) upgrades() []string {
	switch {
	case len(b.configuration.Upgrade) == 0:
		return nil
	case slices.Contains(b.configuration.Upgrade, "*"):
		return []string{"newer versions are asked for"}
	}
	return []string{"newer versions are asked for of " + strings.Join(b.configuration.Upgrade, ", ")}
}

// check answers the three questions: is there an environment for this manifest and this host's stack, does the
// plan still say what it was built from, and is it whole.
func (b *Builder) check(plan *Plan) (string, *stamp, []string) {
	entry := b.store.readRecord(plan)
	plan.registered = entry
	if entry == nil {
		return "", nil, []string{"nothing is built from this manifest for " + plan.HostStack}
	}
	if entry.PlanHash != plan.Hash || entry.Stack != plan.Stack {
		changes := changedInputs(entry.Inputs, plan.Inputs)
		if len(changes) == 0 {
			changes = []string{"the plan differs from the one that was built"}
		}
		return "", nil, changes
	}
	revision := b.store.revision(plan, entry.Revision)
	mark, err := readStamp(revision)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil, []string{"the environment " + revision + " is gone"}
	case err != nil:
		return "", nil, []string{err.Error()}
	}
	if damage := mark.damage(revision); damage != "" {
		return "", nil, []string{damage}
	}
	return revision, mark, nil
}

// update makes a plan's environment be there.
func (b *Builder) update(ctx context.Context, plan *Plan, result *Result) (string, error) {
	upgrades := b.upgrades()
	revision, mark, why := b.check(plan)
	if len(why) == 0 && len(upgrades) == 0 {
		return OutcomeUnchanged, b.register(plan, revision, mark, result)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	directory := b.store.directory(plan)
	hold, err := b.lock(ctx, plan, directory)
	if err != nil {
		return "", err
	}
	defer hold.release()
	if hold.waited { // the other build may have made just this
		if revision, mark, why = b.check(plan); len(why) == 0 && len(upgrades) == 0 {
			return OutcomeUnchanged, b.register(plan, revision, mark, result)
		}
	}
	why = append(why, upgrades...)
	result.Why = why
	for _, reason := range why {
		b.report(EventWhy, plan.Name, reason)
	}
	for _, line := range plan.Lines {
		b.report(EventLine, plan.Name, line)
	}
	if err := removeIncomplete(directory); err != nil {
		return "", err
	}
	kept, mark := wholeRevision(directory, plan.Hash)
	if kept != "" && len(upgrades) == 0 {
		return OutcomeReused, b.adopt(plan, kept, mark, result)
	}
	if kept == "" && len(upgrades) == 0 && plan.registered == nil {
		taken, mark, err := b.takeOver(ctx, plan, directory, result)
		if err != nil {
			return "", err
		}
		if mark != nil {
			return OutcomeReused, b.adopt(plan, taken, mark, result)
		}
	}
	revision, newer, err := b.make(ctx, plan, directory, kept, result)
	if errors.Is(err, errSameVersions) {
		return OutcomeUnchanged, b.adopt(plan, kept, mark, result)
	}
	mark = newer
	if err != nil {
		return "", err
	}
	return OutcomeBuilt, b.adopt(plan, revision, mark, result)
}

// wholeRevision is an environment's newest revision of a plan that is complete and has lost nothing since, "" for none.
func wholeRevision(directory, hash string) (string, *stamp) {
	candidates, _, err := revisions(directory, hash)
	if err != nil {
		return "", nil // making one says why the folder can not be read
	}
	for _, candidate := range candidates {
		if mark, err := readStamp(candidate); err == nil && mark.damage(candidate) == "" {
			return candidate, mark
		}
	}
	return "", nil
}

// adopt makes a complete revision the one that is used from now on.
func (b *Builder) adopt(plan *Plan, revision string, mark *stamp, result *Result) error {
	if err := setCurrent(b.store.directory(plan), revision); err != nil {
		return err
	}
	return b.register(plan, revision, mark, result)
}

// register writes the record and fills the result in.
func (b *Builder) register(plan *Plan, revision string, mark *stamp, result *Result) error {
	host, err := b.saveHost()
	if err != nil {
		return err
	}
	result.Revision, result.Prefix = revision, prefixOf(revision)
	for _, line := range mark.Lines {
		if !slices.Contains(result.Lines, line) {
			result.Lines = append(result.Lines, line)
		}
	}
	if err := b.store.writeRecord(plan, plan.registered, revision, mark, host); err != nil {
		return err
	}
	names, err := b.recordNames()
	if err != nil {
		return fmt.Errorf("looking for earlier records of %s: %w", plan.Name, err)
	}
	return b.store.supersede(plan, names)
}

// recordNames lists the store's records once per build: what a build adds itself supersedes nothing of its own.
func (b *Builder) recordNames() ([]string, error) {
	b.hostLock.Lock()
	defer b.hostLock.Unlock()
	if b.names == nil {
		names, err := b.store.recordNames()
		if err != nil {
			return nil, err
		}
		b.names = names
	}
	return b.names, nil
}

// saveHost keeps the host's facts beside the records, once per build.
func (b *Builder) saveHost() (string, error) {
	b.hostLock.Lock()
	defer b.hostLock.Unlock()
	if b.host != "" {
		return b.host, nil
	}
	name, err := b.store.saveHost(b.facts)
	if err != nil {
		return "", err
	}
	b.host = name
	return name, nil
}

// now is the time of events.
func now() time.Time { return time.Now() }
