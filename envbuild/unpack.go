package envbuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Unpack makes a packed environment the one of the manifest among work that has its name. Nothing is downloaded or
// installed. sum is the SHA-256 that the file must have, "" for any.
func (b *Builder) Unpack(ctx context.Context, work []Work, file, sum string) Result {
	begin := time.Now()
	result := Result{Manifest: file}
	outcome, err := b.unpack(ctx, work, file, sum, &result)
	result.Outcome, result.Seconds = outcome, time.Since(begin).Seconds()
	if err = b.store.explain(err); err != nil {
		result.Outcome = OutcomeFailed
		if ctx.Err() != nil {
			result.Outcome, err = OutcomeCancelled, fmt.Errorf("cancelled: %w", ctx.Err())
		}
		result.Err = fmt.Errorf("unpacking %s: %w", file, err)
		result.Error = result.Err.Error()
		b.report(EventFailed, result.Environment, result.Error)
		return result
	}
	b.report(EventBuilt, result.Environment, outcome+" in "+time.Since(begin).Round(10*time.Millisecond).String())
	return result
}

func (b *Builder) unpack(ctx context.Context, work []Work, file, sum string, result *Result) (string, error) {
	archive, err := openPacked(file)
	if err != nil {
		return "", err
	}
	defer archive.close()
	header := archive.header
	result.Environment, result.Stack = header.Name, header.Stack
	plan, err := b.packedPlan(work, header)
	if err != nil {
		return "", err
	}
	result.Manifest, result.Lines, result.Plan = plan.Manifest, plan.Lines, plan
	directory := b.store.directory(plan)
	hold, err := b.lock(ctx, plan, directory)
	if err != nil {
		return "", err
	}
	defer hold.release()
	if revision, mark, why := b.check(plan); len(why) == 0 {
		return OutcomeUnchanged, b.register(plan, revision, mark, result)
	}
	if err := removeIncomplete(directory); err != nil {
		return "", err
	}
	if whole, mark := wholeRevision(directory, plan.Hash); whole != "" {
		return OutcomeReused, b.adopt(plan, whole, mark, result)
	}
	revision, mark, err := b.place(ctx, plan, directory, archive, sum)
	if err != nil {
		return "", err
	}
	return OutcomeUnpacked, b.adopt(plan, revision, mark, result)
}

// packedPlan is the plan of the manifest that a packed environment is of, if it is the one that was packed.
func (b *Builder) packedPlan(work []Work, header packedHeader) (*Plan, error) {
	if reason := samePlatform(header.Platform); reason != "" {
		return nil, errors.New(reason)
	}
	var names []string
	at := -1
	for i, one := range work {
		names = append(names, one.Found.Name)
		if one.Found.Name == header.Name {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("it is of the environment %s, and the packs named have %s; name its pack", header.Name, cmpNone(strings.Join(names, ", ")))
	}
	plan, err := b.Plan(work[at])
	if err != nil {
		return nil, err
	}
	if plan.Stack != header.Stack {
		return nil, fmt.Errorf("it is for the stack %s, and this host needs %s; pack one that was built for this host's facts", header.Stack, plan.Stack)
	}
	recipe, err := packMoves(header, plan, "").recipe(header.Stamp.Recipe)
	if err != nil {
		return nil, fmt.Errorf("reading its plan: %w", err)
	}
	packed := Plan{Name: header.Name, Recipe: recipe}
	if err := packed.seal(); err != nil {
		return nil, err
	}
	if packed.Hash == plan.Hash {
		return plan, nil
	}
	inputs := map[string]string{}
	moved := packMoves(header, plan, "")
	for name, value := range header.Stamp.Inputs {
		inputs[moved.path(name)] = value
	}
	changes := changedInputs(inputs, plan.Inputs)
	if len(changes) == 0 {
		changes = []string{"its plan differs"}
	}
	return nil, fmt.Errorf("it does not fit: since it was packed, %s", strings.Join(changes, "; "))
}

// packMoves are the folders that have other places here. revision is "" as long as it has none.
func packMoves(header packedHeader, plan *Plan, revision string) moves {
	list := moves{{header.PackDirectory, plan.PackDirectory}}
	if revision != "" {
		list = append(list, move{header.Revision, revision})
	}
	return list.needed()
}

// place unpacks an environment into a new revision and completes it with its stamp.
func (b *Builder) place(ctx context.Context, plan *Plan, directory string, archive *packedArchive, sum string) (made string, mark *stamp, err error) {
	header := archive.header
	_, next, err := revisions(directory, plan.Hash)
	if err != nil {
		return "", nil, err
	}
	revision := filepath.Join(directory, fmt.Sprintf("%s-%d", plan.Hash, next))
	conda := header.Backend == BackendPixi
	if conda {
		if filepath.Clean(header.Revision) != filepath.Join(directory, filepath.Base(header.Revision)) || exists(header.Revision) {
			return "", nil, fmt.Errorf("conda writes the place of an environment into its files: it can only be unpacked as %s; "+
				"set COMFY_ENV_ROOT to %s", header.Revision, filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(header.Revision)))))
		}
		revision = filepath.Clean(header.Revision)
	}
	base := interpreter{Executable: condaPython(pixiPrefix(revision)), Version: header.Stamp.Python}
	if !conda {
		chosen, err := findPython(ctx, plan.Recipe.Python, b.facts.Python, b.configuration.Environ, b.prober)
		if err != nil {
			return "", nil, err
		}
		base = chosen.interpreter
	}
	if err := os.Mkdir(revision, 0o755); err != nil {
		return "", nil, fmt.Errorf("making a revision of %s: %w", plan.Name, err)
	}
	defer func() {
		if err != nil {
			if removal := removeRevision(revision); removal != nil {
				err = errors.Join(err, removal)
			}
		}
	}()
	prefix := filepath.Join(revision, packedPrefix)
	if conda {
		prefix = pixiPrefix(revision)
	}
	b.report(EventStep, plan.Name, "unpacking")
	if err := archive.extract(ctx, prefix, filepath.Join(revision, plan.lockName())); err != nil {
		return "", nil, err
	}
	if got := archive.sum(); sum != "" && (got == "" || !strings.EqualFold(got, sum)) {
		return "", nil, fmt.Errorf("the file has sha256 %s and not %s; it is not used", got, sum)
	}
	moved := packMoves(header, plan, revision)
	if !conda {
		if err := rebase(prefix, base, header.Interpreters); err != nil {
			return "", nil, err
		}
		if err := relocate(prefix, base.Version, moved); err != nil {
			return "", nil, err
		}
	}
	probed, err := runProbe(ctx, prefixPython(prefix))
	if err != nil {
		return "", nil, fmt.Errorf("the environment does not start: %w", err)
	}
	if !versionMatches(probed.Version, plan.Recipe.Python) {
		return "", nil, fmt.Errorf("the environment has Python %s, and %s is needed", probed.Version, plan.Recipe.Python)
	}
	mark = &stamp{Format: storeFormat, PlanHash: plan.Hash, Recipe: plan.Recipe, Inputs: plan.Inputs, Interpreter: base.Executable,
		Python: base.Version, Received: moved.received(header.Stamp.Received), Entries: header.Stamp.Entries, BuiltAt: header.Stamp.BuiltAt,
		Seconds: header.Stamp.Seconds, Lines: append(slices.Clone(header.Stamp.Lines), "unpacked from "+archive.name)}
	if damage := mark.damage(revision); damage != "" {
		return "", nil, fmt.Errorf("the environment is not whole: %s", damage)
	}
	if err := mark.write(revision); err != nil {
		return "", nil, err
	}
	return revision, mark, b.store.saveLock(plan, revision, mark.Received)
}

// received moves the paths in what activation scripts had set.
func (m moves) received(got received) received {
	got.Activation = maps.Clone(got.Activation)
	for name, value := range got.Activation {
		got.Activation[name] = string(m.text([]byte(value)))
	}
	for _, list := range []*[]string{&got.PathFirst, &got.PathLast} {
		*list = slices.Clone(*list)
		for i, folder := range *list {
			(*list)[i] = m.path(folder)
		}
	}
	return got
}
