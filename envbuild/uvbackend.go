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
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// lockName is the file with the exact result of a resolution: versions, places and hashes.
const lockName = "uv.lock"

// projectName is the file that says what was resolved.
const projectName = "pyproject.toml"

// uvBackend builds with `uv venv`, `uv lock` and `uv sync`: of uv's ways to install, the one that takes single
// packages from single indexes, writes hashes down and shares its cache of wheels. (`uv pip compile` to a
// pylock.toml does the first two; installing from it then downloads every wheel again, seen with 0.13.9.)
type uvBackend struct {
	environ []string // of uv, but for what differs between environments
	guard   []string
	indexes *indexes
	first   *firstDownload
	// find returns the uv to use; it is looked for when the first environment needs it, once per build.
	find func(ctx context.Context, say func(format string, arguments ...any)) (tool, error)
}

// droppedVariables would change what is installed or where behind the plan's back.
var droppedVariables = []string{
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE",
	"UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_WORKING_DIR",
	"UV_WORKING_DIRECTORY", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT", "UV_TORCH_BACKEND",
	"UV_RESOLUTION", "UV_FORK_STRATEGY", "UV_NO_SOURCES", "UV_REQUIRE_HASHES", "UV_NO_VERIFY_HASHES", "UV_VENV_SEED",
	"UV_VENV_CLEAR", "UV_VENV_RELOCATABLE", "UV_FROZEN", "UV_LOCKED", "UV_NO_SYNC", "UV_NO_DEV", "UV_DEV", "UV_NO_EDITABLE", "UV_NO_GROUP", "UV_UPGRADE", "UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON", "UV_CUSTOM_COMPILE_COMMAND", "UV_PIP_ALLOW_EMPTY_REQUIREMENTS",
	"UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_NO_BUILD", "UV_NO_BINARY", "UV_NO_DEPS", "UV_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE",
}

// uvEnviron is the environment of uv: the caller's, without what would bend the plan, with pip's settings.
// pip is the prefix of the Python whose pip's settings count; they may have a file there.
func uvEnviron(environ []string, pip string) []string {
	kept := make([]string, 0, len(environ)+8)
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains(droppedVariables, strings.ToUpper(name)) {
			kept = append(kept, line)
		}
	}
	working, err := os.Getwd()
	if err != nil {
		working = string(filepath.Separator)
	}
	kept = append(kept, readPip(environ, pip).variablesForUV(environ, working)...)
	return append(kept, "UV_PYTHON_DOWNLOADS=never", "UV_NO_PROGRESS=1", "NO_COLOR=1")
}

// pipPrefix is the prefix of the host's interpreter, whose pip is the one that the operator has set up.
func pipPrefix(facts Facts) string {
	if facts.Python.Executable == "" {
		return ""
	}
	return filepath.Dir(filepath.Dir(facts.Python.Executable))
}

func (b *uvBackend) build(ctx context.Context, job *job) (received, error) {
	var result received
	tool, err := b.find(ctx, job.line)
	if err != nil {
		return result, err
	}
	result.Installer = fmt.Sprintf("uv %s (%s)", tool.Version, tool.Source)
	recipe := job.Plan.Recipe
	run := uvRun{backend: b, job: job, tool: tool,
		environ: append(slices.Clone(b.environ), "UV_PROJECT_ENVIRONMENT="+job.Prefix)}

	job.step("making the environment with Python %s (%s)", job.Interpreter.Version, job.Interpreter.Source)
	if err := run.uv(ctx, "uv venv", "venv", "--no-project", "--relocatable", "--prompt", job.Plan.Name,
		"--python", job.Interpreter.Executable, job.Prefix); err != nil {
		return result, err
	}
	if recipe.empty() {
		return result, run.activate(ctx, &result)
	}
	if job.Lock == "" {
		if err := run.resolve(ctx, recipe, &result); err != nil {
			return result, err
		}
		return result, run.install(ctx, &result)
	}
	result = job.LockReceived
	result.activate(activated{})
	result.Installer = fmt.Sprintf("uv %s (%s)", tool.Version, tool.Source)
	err = run.installLocked(ctx, recipe, &result)
	var failure *BuildError
	if job.Frozen || !errors.As(err, &failure) {
		return result, err
	}
	// An index that has moved, or lost a file, is no reason to have no environment.
	job.line("what was locked before can not be installed any more, resolving again: %s", failure.Reason)
	job.Preferences = job.Lock
	result = received{Installer: result.Installer}
	if err := run.resolve(ctx, recipe, &result); err != nil {
		return result, err
	}
	return result, run.install(ctx, &result)
}

// installLocked installs what an earlier build resolved.
func (r *uvRun) installLocked(ctx context.Context, recipe Recipe, result *received) error {
	// The project file only has to be there: --frozen takes everything from the lock.
	content, err := renderProject(r.job.Plan.Name, recipe, result.Index)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.job.Revision, projectName), content, 0o644); err != nil {
		return fmt.Errorf("writing the project file: %w", err)
	}
	if err := copyFile(r.job.Lock, filepath.Join(r.job.Revision, lockName)); err != nil {
		return fmt.Errorf("taking over the lock file: %w", err)
	}
	return r.install(ctx, result)
}

// install brings the prefix to what the lock file says.
func (r *uvRun) install(ctx context.Context, result *received) error {
	family := r.job.Plan.Recipe.Family
	leave, err := r.backend.first.enter(ctx, family, func() {
		r.job.step("waiting for %s, which another environment downloads", strings.Join(family, " "))
	})
	if err != nil {
		return fmt.Errorf("building %s: cancelled: %w", r.job.Plan.Name, err)
	}
	defer leave()
	r.downloaded = leave
	r.job.step("installing %s", countPackages(filepath.Join(r.job.Revision, lockName)))
	if err := r.uv(ctx, "the installation", "sync", "--frozen", "--no-install-project", "--no-default-groups",
		"--python", r.job.Interpreter.Executable); err != nil {
		return err
	}
	if err := r.verify(result); err != nil {
		return err
	}
	return r.activate(ctx, result)
}

// activate runs the manifest's activation scripts once and records what they set; [activation.env] is left to the
// start of a worker.
func (r *uvRun) activate(ctx context.Context, result *received) error {
	job := r.job
	if len(job.Plan.scripts()) == 0 {
		return nil
	}
	job.step("recording what activation sets")
	done, err := activation{plan: job.Plan, prefix: job.Prefix, folder: job.Revision, environ: r.environ, guard: r.backend.guard, busy: job.Busy,
		log: func(line string) { fmt.Fprintln(job.Log, line) }}.activate(ctx)
	if err != nil {
		return fmt.Errorf("building %s: %w", job.Plan.Name, err)
	}
	done.tell(job.line)
	result.activate(done)
	return nil
}

// resolve decides what the plan leaves to the indexes and writes the lock file.
func (r *uvRun) resolve(ctx context.Context, recipe Recipe, result *received) error {
	lock := filepath.Join(r.job.Revision, lockName)
	recipe, wheels, err := r.askIndexes(ctx, recipe, result)
	if err != nil {
		return err
	}
	defer func() { result.Exact = slices.Concat(recipe.Family, recipe.Pins) }()
	if r.job.Preferences != "" {
		if err := copyFile(r.job.Preferences, lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("taking over the versions of the revision before: %w", err)
		}
	}
	r.job.step("resolving %d requirements", len(recipe.Family)+len(recipe.Pins)+len(recipe.Requirements))
	for {
		content, err := renderProject(r.job.Plan.Name, recipe, result.Index)
		if err != nil {
			return err
		}
		project := filepath.Join(r.job.Revision, projectName)
		if err := os.WriteFile(project, content, 0o644); err != nil {
			return fmt.Errorf("writing the project file: %w", err)
		}
		arguments := []string{"lock", "--python", prefixPython(r.job.Prefix)}
		for _, name := range r.job.Upgrade {
			if name == "*" {
				arguments = append(arguments, "--upgrade")
				break
			}
			arguments = append(arguments, "--upgrade-package", normalizeName(name))
		}
		err = r.uv(ctx, "the resolution", arguments...)
		if err == nil && sameFile(lock, r.job.Kept) {
			return errSameVersions
		}
		if err == nil {
			return checkHashes(lock, wheels)
		}
		pin := r.pinWithoutWheel(err, recipe.Pins)
		if pin == "" {
			return err
		}
		r.job.line("%s left out: it has no wheel for this platform", pin)
		result.Left = append(result.Left, pin)
		recipe.Pins = slices.DeleteFunc(slices.Clone(recipe.Pins), func(other string) bool { return other == pin })
		os.Remove(lock)
	}
}

// askIndexes settles what the indexes of CUDA wheels and of the torch family decide.
func (r *uvRun) askIndexes(ctx context.Context, recipe Recipe, result *received) (Recipe, []cudaWheel, error) {
	recipe, wheels, err := r.resolveCUDA(ctx, recipe)
	if err != nil {
		return recipe, nil, err
	}
	if result.Index, err = r.chooseIndex(ctx, recipe); err != nil {
		return recipe, nil, err
	}
	recipe, err = r.addCompanions(ctx, recipe, result.Index)
	return recipe, wheels, err
}

// pinWithoutWheel recognises the refusal of a pin that has no wheel for this platform or interpreter.
func (r *uvRun) pinWithoutWheel(err error, pins []string) string {
	var failure *BuildError
	if !errors.As(err, &failure) {
		return ""
	}
	text := strings.Join(strings.Fields(r.output()), " ")
	for _, pin := range pins {
		_, after, found := strings.Cut(text, "Because "+pin+" has no ")
		if sentence, _, _ := strings.Cut(after, "wheels"); found && !strings.Contains(sentence, ". ") && !strings.Contains(sentence, "version") {
			return pin
		}
	}
	return ""
}

// chooseIndex decides where the torch family comes from: the plan's index where it can be spoken to, else the
// default one. What an index answers is never papered over.
func (r *uvRun) chooseIndex(ctx context.Context, recipe Recipe) (string, error) {
	if recipe.Index == "" || len(recipe.Family) == 0 {
		return "", nil
	}
	r.job.step("asking %s for %s", recipe.Index, strings.Join(recipe.Family, " "))
	err := r.backend.indexes.lacks(ctx, recipe.Index, recipe.Family)
	var unreachable *unreachableError
	switch {
	case err == nil:
		return recipe.Index, nil
	case errors.As(err, &unreachable):
		r.job.line("torch family from the default index, of the build kind that it has: %v", err)
		return "", nil
	}
	return "", fmt.Errorf("the torch family of %s: %w", r.job.Plan.Name, err)
}

// addCompanions names what torch requires and only its own index has, so that uv takes it from there: ROCm's and
// Intel's triton. CUDA's is on the default index like the rest of what torch requires.
func (r *uvRun) addCompanions(ctx context.Context, recipe Recipe, index string) (Recipe, error) {
	if index == "" || recipe.Torch == "cpu" || strings.HasPrefix(recipe.Torch, "cu") {
		return recipe, nil
	}
	sources := maps.Clone(recipe.Sources)
	for _, requirement := range recipe.Family {
		name, version, _ := strings.Cut(requirement, "==")
		if name != "torch" {
			continue
		}
		names, err := r.backend.indexes.companions(ctx, index, name, version, recipe.Python, recipe.Platform)
		if err != nil {
			return recipe, fmt.Errorf("asking what torch %s requires: %w", version, err)
		}
		for _, companion := range names {
			if sources == nil {
				sources = map[string]Source{}
			}
			recipe.Requirements = append(slices.Clone(recipe.Requirements), companion)
			sources[companion] = Source{Index: index}
			r.job.line("%s from %s: torch requires it", companion, index)
		}
	}
	recipe.Sources = sources
	return recipe, nil
}

// verify checks that the packages that must not differ from the host's do not, and reads which build of torch came.
func (r *uvRun) verify(result *received) error {
	site := []string{sitePackages(r.job.Prefix, r.job.Interpreter.Version)}
	installed, err := installedVersions(site, slices.Concat(HostPins, TorchFamily))
	if err != nil {
		return fmt.Errorf("reading what was installed: %w", err)
	}
	for _, requirement := range result.Exact {
		name, version, _ := strings.Cut(requirement, "==")
		if got := publicVersion(installed[name]); !isExactly(got, version) {
			return fmt.Errorf("%s must have %s and got %s; a requirement of the pack or an override replaced it", r.job.Plan.Name, requirement, cmpNone(got))
		}
	}
	asked := r.job.Plan.Recipe.Torch
	if version, found := installed["torch"]; found && asked != "" {
		torch, err := readTorch(site, version)
		if err != nil {
			return err
		}
		result.Build = torch.Build
		if torch.Build != asked {
			r.job.line("torch's build is %s, where %s was asked for", torch.Build, asked)
		}
	}
	return nil
}

// checkHashes holds the hashes that uv wrote down for direct references against those that their index told.
func checkHashes(lock string, wheels []cudaWheel) error {
	if len(wheels) == 0 {
		return nil
	}
	content, err := os.ReadFile(lock)
	if err != nil {
		return fmt.Errorf("reading the lock file: %w", err)
	}
	var locked struct {
		Package []struct {
			Name   string
			Source struct{ URL string }
			Wheels []struct{ Hash string }
		}
	}
	if err := toml.Unmarshal(content, &locked); err != nil {
		return fmt.Errorf("reading the lock file %s: %w", lock, err)
	}
	for _, wheel := range wheels {
		if wheel.Hash == "" {
			continue
		}
		for _, one := range locked.Package {
			if one.Source.URL != wheel.URL {
				continue
			}
			if len(one.Wheels) != 1 || one.Wheels[0].Hash != "sha256:"+wheel.Hash {
				return fmt.Errorf("%s does not have the hash that its index tells (sha256 %s); it is not installed", wheel.URL, wheel.Hash)
			}
		}
	}
	return nil
}

// uvRun is the work of uv for one job.
type uvRun struct {
	backend *uvBackend
	job     *job
	tool    tool
	environ []string
	// downloaded is called when the packages to install are in uv's cache; nil for nobody to tell.
	downloaded func()

	mutex sync.Mutex
	lines []string // of the command that runs or ran last
}

// uv runs one command of uv under a guard, logs its output and reports its progress.
func (r *uvRun) uv(ctx context.Context, doing string, arguments ...string) error {
	r.mutex.Lock()
	r.lines = nil
	r.mutex.Unlock()
	fmt.Fprintf(r.job.Log, "$ uv %s\n", strings.Join(arguments, " "))
	order := guardOrder{Arguments: append([]string{r.tool.Path}, arguments...), Environ: r.environ, Directory: r.job.Revision, Lock: r.job.Busy}
	watch := downloadWatch{leave: r.downloaded, settled: settled}
	defer watch.close()
	err := guarded(ctx, r.backend.guard, order, func(line string) {
		r.mutex.Lock()
		r.lines = append(r.lines, line)
		r.mutex.Unlock()
		fmt.Fprintln(r.job.Log, line)
		if text := watch.line(line); text != "" {
			r.job.Report(Event{Time: now(), Kind: EventStep, Environment: r.job.Plan.Name, Text: text})
		}
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: cancelled: %w", r.job.Plan.Name, ctx.Err())
	}
	return &BuildError{Environment: r.job.Plan.Name, Doing: doing, Reason: uvReason(r.output(), err), Cause: err}
}

// output is all that the last command printed.
func (r *uvRun) output() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return strings.Join(r.lines, "\n")
}
