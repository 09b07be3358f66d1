package envbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pixiLockName is pixi's lock file.
const pixiLockName = "pixi.lock"

// pixiBackend builds with `pixi lock`, `pixi install --frozen` and `pixi shell-hook --json`, one workspace for each
// revision. It is written to pixi's documented command line and published schema, and tested with a program that
// takes its place; pixi itself has not been run with it.
type pixiBackend struct {
	environ []string
	guard   []string
	indexes *indexes
	find    func(ctx context.Context, say func(format string, arguments ...any)) (tool, error)
}

// lockName is the name of the plan's lock file in a revision.
func (p *Plan) lockName() string {
	if p.Recipe.Backend == BackendPixi {
		return pixiLockName
	}
	return lockName
}

func (b *pixiBackend) build(ctx context.Context, job *job) (received, error) {
	tool, err := b.find(ctx, job.line)
	if err != nil {
		return received{}, err
	}
	job.Prefix = pixiPrefix(job.Revision)
	result := received{Installer: fmt.Sprintf("pixi %s (%s)", tool.Version, tool.Source)}
	run := pixiRun{backend: b, tool: tool,
		uvRun: uvRun{backend: &uvBackend{indexes: b.indexes}, job: job}}
	if job.Lock != "" {
		locked := job.LockReceived
		locked.Installer = result.Installer
		locked.activate(activated{})
		err := run.installLocked(ctx, &locked)
		var failure *BuildError
		if job.Frozen || !errors.As(err, &failure) {
			return locked, err
		}
		job.line("what was locked before can not be installed any more, resolving again: %s", failure.Reason)
		job.Preferences = job.Lock
		if err := os.RemoveAll(filepath.Join(job.Revision, ".pixi")); err != nil {
			return result, fmt.Errorf("clearing %s: %w", job.Revision, err)
		}
	}
	if err := run.resolve(ctx, &result); err != nil {
		return result, err
	}
	return result, run.install(ctx, &result)
}

// pixiRun is the work of pixi for one job. The embedded run answers what is the same for both backends: which wheels
// and which index.
type pixiRun struct {
	uvRun
	backend *pixiBackend
	tool    tool
}

// write renders the workspace file.
func (r *pixiRun) write(recipe Recipe, index string) error {
	content, err := renderPixi(r.job.Plan.Name, recipe, index, operatorIndexes(r.backend.environ))
	if err != nil {
		return err
	}
	// The operator's index may hold a password.
	if err := os.WriteFile(filepath.Join(r.job.Revision, pixiProjectName), content, 0o600); err != nil {
		return fmt.Errorf("writing the workspace file: %w", err)
	}
	return nil
}

// operatorIndexes are the Python indexes of uv's and pip's settings, the default one first, "" for none; pixi reads
// neither's settings.
func operatorIndexes(environ []string) []string {
	list := []string{environValue(environ, "UV_DEFAULT_INDEX")}
	for _, name := range []string{"UV_INDEX", "UV_EXTRA_INDEX_URL"} {
		for _, index := range strings.Fields(environValue(environ, name)) {
			if named, url, found := strings.Cut(index, "="); found && !strings.ContainsAny(named, ":/") {
				index = url
			}
			list = append(list, index)
		}
	}
	return list
}

// resolve decides what the plan leaves to channels and indexes and writes the lock file.
func (r *pixiRun) resolve(ctx context.Context, result *received) error {
	job := r.job
	recipe, wheels, err := r.askIndexes(ctx, job.Plan.Recipe, result)
	if err != nil {
		return err
	}
	defer func() { result.Exact = slices.Concat(recipe.Family, recipe.Pins) }()
	lock := filepath.Join(job.Revision, pixiLockName)
	// pixi keeps the versions of the lock file it finds, but for those that it is told to update.
	if job.Preferences != "" && !slices.Contains(job.Upgrade, "*") {
		if err := copyFile(job.Preferences, lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("taking over the versions of the revision before: %w", err)
		}
	}
	job.step("resolving %d conda and %d Python requirements", len(recipe.Conda.Dependencies),
		len(recipe.Family)+len(recipe.Pins)+len(recipe.Requirements))
	for {
		if err := r.write(recipe, result.Index); err != nil {
			return err
		}
		arguments := []string{"lock"}
		if names := lockedNames(lock, job.Upgrade); len(names) > 0 { // pixi refuses a name that it does not know
			arguments = append([]string{"update", "--no-install"}, names...)
		}
		_, err := r.pixi(ctx, "the resolution", arguments...)
		if err == nil && sameFile(lock, job.Kept) {
			return errSameVersions
		}
		if err == nil {
			return checkPixiHashes(lock, wheels)
		}
		pin := r.pinRefused(err, recipe.Pins)
		if pin == "" {
			return err
		}
		job.line("%s left out: it has no wheel for this platform", pin)
		result.Left = append(result.Left, pin)
		recipe.Pins = slices.DeleteFunc(slices.Clone(recipe.Pins), func(other string) bool { return other == pin })
	}
}

// pinRefused recognises the refusal of a pin, which pixi passes on from uv's resolver inside a drawing.
func (r *pixiRun) pinRefused(err error, pins []string) string {
	bare := uvRun{lines: []string{strings.Map(dropDrawing, r.output())}}
	return bare.pinWithoutWheel(err, pins)
}

// installLocked installs what an earlier build resolved.
func (r *pixiRun) installLocked(ctx context.Context, result *received) error {
	recipe := r.job.Plan.Recipe
	if len(result.Left) > 0 {
		recipe.Pins = slices.DeleteFunc(slices.Clone(recipe.Pins), func(pin string) bool { return slices.Contains(result.Left, pin) })
	}
	if err := r.write(recipe, result.Index); err != nil {
		return err
	}
	if err := copyFile(r.job.Lock, filepath.Join(r.job.Revision, pixiLockName)); err != nil {
		return fmt.Errorf("taking over the lock file: %w", err)
	}
	return r.install(ctx, result)
}

// install makes the prefix from the lock file, checks it and records what activating it sets.
func (r *pixiRun) install(ctx context.Context, result *received) error {
	job := r.job
	job.step("installing %s", countLocked(filepath.Join(job.Revision, pixiLockName)))
	if _, err := r.pixi(ctx, "the installation", "install", "--frozen"); err != nil {
		return err
	}
	version, err := condaPythonVersion(job.Prefix)
	if err != nil {
		return err
	}
	if !versionMatches(version, job.Plan.Recipe.Python) {
		return fmt.Errorf("%s must have Python %s and got %s", job.Plan.Name, job.Plan.Recipe.Python, version)
	}
	job.Interpreter = chosenPython{interpreter{Executable: condaPython(job.Prefix), Version: version}, "conda"}
	if err := r.verify(result); err != nil {
		return err
	}
	job.step("recording what activation sets")
	output, err := r.pixi(ctx, "the activation", "shell-hook", "--json", "--frozen")
	if err != nil {
		return err
	}
	done, err := r.activation(output)
	if err != nil {
		return err
	}
	done.tell(job.line)
	result.activate(done)
	return nil
}

// activation reads what `pixi shell-hook --json` sets.
func (r *pixiRun) activation(lines []string) (activated, error) {
	for _, line := range lines {
		var hook struct {
			Variables map[string]string `json:"environment_variables"`
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "{") || json.Unmarshal([]byte(line), &hook) != nil || hook.Variables == nil {
			continue
		}
		return changedBy(hook.Variables, r.backend.environ, r.job.Prefix), nil
	}
	return activated{}, fmt.Errorf("activating %s: pixi shell-hook --json printed no variables", r.job.Plan.Name)
}

// activationNoise are variables of a shell or of pixi's own that mean nothing to a worker, or that its plan sets.
func activationNoise(name string) bool {
	upper := strings.ToUpper(name)
	return strings.HasPrefix(upper, "PIXI_") || strings.HasPrefix(upper, "CONDA_") ||
		slices.Contains([]string{"PATH", "PS1", "PROMPT", "PWD", "OLDPWD", "SHLVL", "_", "INIT_CWD"}, upper)
}

// pixi runs one command of pixi under a guard, logs its output and returns its lines.
func (r *pixiRun) pixi(ctx context.Context, doing string, arguments ...string) ([]string, error) {
	r.mutex.Lock()
	r.lines = nil
	r.mutex.Unlock()
	manifest := filepath.Join(r.job.Revision, pixiProjectName)
	arguments = slices.Insert(arguments, 1, "--manifest-path", manifest)
	fmt.Fprintf(r.job.Log, "$ pixi %s\n", strings.Join(arguments, " "))
	order := guardOrder{Arguments: append([]string{r.tool.Path}, arguments...), Environ: r.backend.environ,
		Directory: r.job.Revision, Lock: r.job.Busy}
	err := guarded(ctx, r.backend.guard, order, func(line string) {
		r.mutex.Lock()
		r.lines = append(r.lines, line)
		r.mutex.Unlock()
		fmt.Fprintln(r.job.Log, line)
		if text := pixiProgress(line); text != "" {
			r.job.Report(Event{Time: now(), Kind: EventStep, Environment: r.job.Plan.Name, Text: text})
		}
	})
	if err == nil {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		return slices.Clone(r.lines), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("building %s: cancelled: %w", r.job.Plan.Name, ctx.Err())
	}
	return nil, &BuildError{Environment: r.job.Plan.Name, Doing: doing, Reason: uvReason(r.output(), err), Cause: err}
}

// pixiProgress is what a line of pixi's output says is being done, "" for warnings, errors and data.
func pixiProgress(line string) string {
	text := strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "✔✓ "))
	lower := strings.ToLower(text)
	if text == "" || strings.HasPrefix(text, "{") || strings.HasPrefix(lower, "error") || strings.HasPrefix(lower, "warn") ||
		strings.ContainsAny(text, "×│╰├") {
		return ""
	}
	return shorten(text, 120)
}

var (
	lockedPackage = regexp.MustCompile(`(?m)^- (?:conda|pypi): `)
	lockedSize    = regexp.MustCompile(`(?m)^  size: ([0-9]+)\s*$`)
)

// countLocked says how many packages a lock file of pixi holds, and their download size where it knows.
func countLocked(lock string) string {
	content, err := os.ReadFile(lock)
	if err != nil {
		return "packages"
	}
	var bytes float64
	for _, match := range lockedSize.FindAllStringSubmatch(string(content), -1) {
		if size, err := strconv.ParseFloat(match[1], 64); err == nil {
			bytes += size
		}
	}
	text := fmt.Sprintf("%d packages", len(lockedPackage.FindAllString(string(content), -1)))
	if bytes > 0 {
		text += ", " + bytesText(bytes) + " from conda"
	}
	return text
}

// checkPixiHashes holds the hashes that pixi wrote down for direct references against those that their index told.
func checkPixiHashes(lock string, wheels []cudaWheel) error {
	if !slices.ContainsFunc(wheels, func(wheel cudaWheel) bool { return wheel.Hash != "" }) {
		return nil
	}
	content, err := os.ReadFile(lock)
	if err != nil {
		return fmt.Errorf("reading the lock file: %w", err)
	}
	hashes, current := map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		if url, found := strings.CutPrefix(line, "- pypi: "); found {
			current, _, _ = strings.Cut(strings.Trim(url, `"' `), "#")
		} else if strings.HasPrefix(line, "- ") {
			current = ""
		} else if hash, found := strings.CutPrefix(line, "  sha256: "); found && current != "" {
			hashes[current] = strings.Trim(hash, `"' `)
		}
	}
	for _, wheel := range wheels {
		if wheel.Hash != "" && hashes[wheel.URL] != wheel.Hash {
			return fmt.Errorf("%s does not have the hash that its index tells (sha256 %s); it is not installed", wheel.URL, wheel.Hash)
		}
	}
	return nil
}

// lockedNames are those of the packages named that a lock file of pixi holds.
func lockedNames(lock string, names []string) []string {
	content, err := os.ReadFile(lock)
	if err != nil {
		return nil
	}
	var locked []string
	for _, name := range names {
		name = normalizeName(name)
		quoted := regexp.QuoteMeta(name)
		if regexp.MustCompile(`(?m)^  name: ` + quoted + `\s*$|^- conda: \S*/` + quoted + `-[^-/]+-[^-/]+$`).Match(content) {
			locked = append(locked, name)
		}
	}
	return locked
}
