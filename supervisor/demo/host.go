package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/testdata"
)

// environmentName is what the demonstration pack's manifest is called.
const environmentName = "demo-nodes"

// Pack is a pack of testdata that the pretended ComfyUI has.
type Pack struct {
	Folder string // in testdata
	Name   string // of its folder in custom_nodes, and of the pretended ComfyUI's in the cache
}

// Environment is the name of the environment that its manifest describes.
func (p Pack) Environment() string { return p.Name + "-nodes" }

// oldestPython is the minor version of Python 3 that ComfyUI needs.
const oldestPython = 10

// host is the ComfyUI that the demonstration pretends to be.
type host struct {
	python  envbuild.PythonFacts
	comfyui string // its folder
	facts   envbuild.Facts
	report  json.RawMessage // the facts as the supervisor hears them, with the host's state
}

// findPython finds an interpreter that is new enough and makes the host of it.
func (r *run) findPython(ctx context.Context, step *Step) error {
	candidates := []string{r.options.Python}
	if r.options.Python == "" {
		candidates = []string{"python3", "python"}
		for minor := oldestPython; minor <= 14; minor++ {
			candidates = append(candidates, fmt.Sprintf("python3.%d", minor))
		}
	}
	var refused []error
	for _, candidate := range candidates {
		facts, err := envbuild.ReadFacts(ctx, envbuild.FactsSource{
			Python: candidate, Environ: r.options.Environ, Cache: r.options.Build.Cache,
		})
		if err == nil {
			err = usablePython(facts.Python.Version)
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", candidate, err))
			continue
		}
		r.host.python = facts.Python
		step.Seen["version"], step.Seen["executable"] = facts.Python.Version, facts.Python.Executable
		r.say(step, "Python %s, %s", facts.Python.Version, facts.Python.Executable)
		return r.makeHost()
	}
	return fmt.Errorf("no Python 3.%d or newer was found; install one or name it with --python:\n%w",
		oldestPython, errors.Join(refused...))
}

// usablePython refuses versions that ComfyUI does not run on.
func usablePython(version string) error {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return fmt.Errorf("its version is %q", version)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil || parts[0] != "3" || minor < oldestPython {
		return fmt.Errorf("it is Python %s, older than 3.%d", version, oldestPython)
	}
	return nil
}

// pythonLine is the line of the pack's manifest that names its Python.
var pythonLine = regexp.MustCompile(`(?m)^python = ".*"$`)

// makeHost lays out the miniature ComfyUI with the pack, whose manifest asks for the Python that was found, and
// completes the recorded facts by where and on what it is.
func (r *run) makeHost() error {
	files := make(pyworker.Sources)
	for folder, below := range map[string]string{testdata.ComfyUI: "", r.pack.Folder: "custom_nodes/" + r.pack.Name + "/"} {
		content, err := testdata.Files(folder)
		if err != nil {
			return err
		}
		for name, content := range content {
			files[below+name] = content
		}
	}
	manifest := "custom_nodes/" + r.pack.Name + "/nodes/comfy-env.toml"
	version := strings.Join(strings.SplitN(r.host.python.Version, ".", 3)[:2], ".")
	files[manifest] = pythonLine.ReplaceAll(files[manifest], []byte(fmt.Sprintf(`python = "%s"`, version)))
	// A copy that stays, as caches do: the next run finds the environment's record by its place.
	var err error
	if r.host.comfyui, err = files.Layout(r.options.Build.Cache, r.pack.Name); err != nil {
		return err
	}

	recorded, err := testdata.Read(testdata.HostFacts)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(recorded, &r.host.facts); err != nil {
		return fmt.Errorf("decoding the recorded host facts: %w", err)
	}
	var report map[string]any
	if err := json.Unmarshal(recorded, &report); err != nil {
		return fmt.Errorf("decoding the recorded host facts: %w", err)
	}
	r.host.facts.Python = r.host.python
	r.host.facts.ComfyUI.Directory = r.host.comfyui
	r.host.facts.Platform = envbuild.PlatformFacts{OS: runtime.GOOS, Arch: runtime.GOARCH}
	report["python"], report["comfyui"], report["platform"] = r.host.facts.Python, r.host.facts.ComfyUI, r.host.facts.Platform
	report["comfyui_directory"] = r.host.comfyui
	report["user_directory"] = filepath.Join(r.host.comfyui, "user")
	if r.host.report, err = json.Marshal(report); err != nil {
		return fmt.Errorf("encoding the host facts: %w", err)
	}
	return nil
}

// build brings the pack's environment up to date.
func (r *run) build(ctx context.Context, step *Step) (err error) {
	// Installers leave lock files in the folder for temporary files; this one goes when they are done.
	scratch, err := os.MkdirTemp("", "comfy-supervisor-demo-build-")
	if err != nil {
		return fmt.Errorf("making a folder for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	work, problems := envbuild.Discover([]string{r.host.comfyui}, r.host.facts.Platform)
	for _, problem := range problems {
		r.say(step, "%s: %s", problem.File, problem.Message)
	}
	if len(work) != 1 || work[0].Found.Name != r.pack.Environment() {
		return fmt.Errorf("%d manifests in %s, want the one of %s", len(work), r.host.comfyui, r.pack.Environment())
	}
	configuration := r.options.Build
	configuration.Environ = slices.Clone(configuration.Environ)
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		configuration.Environ = append(configuration.Environ, name+"="+scratch)
	}
	configuration.Report = func(event envbuild.Event) {
		r.options.Report(Event{Kind: StepBuild, Step: step.Name, Text: event.Text, Build: &event})
	}
	builder, err := envbuild.NewBuilder(configuration, r.host.facts)
	if err != nil {
		return err
	}
	defer builder.Close()
	r.environment = builder.Build(ctx, work)[0]
	if r.environment.Err != nil {
		return r.environment.Err
	}
	step.Lines = append(step.Lines, r.environment.Lines...)
	step.Seen["environment"], step.Seen["stack"] = r.environment.Environment, r.environment.Stack
	step.Seen["outcome"], step.Seen["prefix"] = r.environment.Outcome, r.environment.Prefix
	for _, name := range envbuild.HostPins {
		if !mentions(r.environment.Lines, name) {
			return fmt.Errorf("the plan says nothing of the pin %s", name)
		}
	}
	return nil
}

func mentions(lines []string, text string) bool {
	for _, line := range lines {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}
