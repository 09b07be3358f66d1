package envbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/atomicwriter"
	"github.com/pelletier/go-toml/v2"
)

// An environment that comfy-env has built for this stack is used where it stands, never written to, until the
// manifest changes: a revision of ours then holds nothing but its path and a stamp.

// comfyEnvStamp is what is read of comfy-env's env.stamp.json. Older environments have none.
type comfyEnvStamp struct {
	Version    string `json:"comfy_env_version"`
	Stack      string `json:"abi_tag"`
	Source     string `json:"source"` // "<pack folder>/<manifest path>"
	LockSHA256 string `json:"pixi_lock_sha256"`
}

// comfyEnvFolders are the folders in which comfy-env may have built a plan's environment, the present spelling first.
func (b *Builder) comfyEnvFolders(plan *Plan) []string {
	tag := comfyEnvTag(plan)
	root := filepath.Join(filepath.Dir(b.store.root), "envs")
	return []string{
		filepath.Join(root, plan.Name+"_"+tag),
		filepath.Join(root, plan.Name+"-"+tag),
		filepath.Join(root, plan.Name+"-"+strings.ReplaceAll(tag, ".", "-")),
	}
}

// comfyEnvTag is the host's stack as comfy-env writes it.
func comfyEnvTag(plan *Plan) string {
	if bare, none := strings.CutSuffix(plan.HostStack, "-none"); none {
		return bare + "-notorch"
	}
	return plan.HostStack
}

// comfyEnvCandidate is an environment of comfy-env's for a plan.
type comfyEnvCandidate struct {
	folder string
	python string // its version
	reason string // why it does not serve, "" where it does
}

func (c comfyEnvCandidate) refusal() string {
	return fmt.Sprintf("comfy-env's environment %s is not used: %s", c.folder, c.reason)
}

type comfyEnvCandidates []comfyEnvCandidate

// comfyEnvCandidates are the environments that comfy-env has built for a plan.
func (b *Builder) comfyEnvCandidates(plan *Plan) comfyEnvCandidates {
	var found comfyEnvCandidates
	for _, folder := range b.comfyEnvFolders(plan) {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			candidate := comfyEnvCandidate{folder: folder}
			candidate.reason, candidate.python = comfyEnvFits(plan, folder)
			found = append(found, candidate)
		}
	}
	return found
}

// first is the first that serves, with a line for each before it that does not.
func (c comfyEnvCandidates) first() (folder string, lines []string) {
	for _, candidate := range c {
		if candidate.reason == "" {
			return candidate.folder, lines
		}
		lines = append(lines, candidate.refusal())
	}
	return "", lines
}

// takeOver makes a revision that stands for an environment of comfy-env's. It returns no stamp where there is none
// that serves, with a line for each that does not.
func (b *Builder) takeOver(ctx context.Context, plan *Plan, directory string, result *Result) (revision string, mark *stamp, err error) {
	say := func(format string, arguments ...any) string {
		line := fmt.Sprintf(format, arguments...)
		result.Lines = append(result.Lines, line)
		b.report(EventLine, plan.Name, line)
		return line
	}
	for _, candidate := range b.comfyEnvCandidates(plan) {
		folder, version, prefix := candidate.folder, candidate.python, pixiPrefix(candidate.folder)
		if candidate.reason != "" {
			say("%s", candidate.refusal())
			continue
		}
		_, next, err := revisions(directory, plan.Hash)
		if err != nil {
			return "", nil, err
		}
		revision = filepath.Join(directory, fmt.Sprintf("%s-%d", plan.Hash, next))
		if err := os.Mkdir(revision, 0o755); err != nil {
			return "", nil, fmt.Errorf("making a revision of %s: %w", plan.Name, err)
		}
		guard, err := b.guard()
		if err != nil {
			return "", nil, errors.Join(err, removeRevision(revision))
		}
		done, err := activation{plan: plan, prefix: prefix, folder: revision, environ: b.configuration.Environ, guard: guard,
			busy: filepath.Join(directory, busyName)}.activate(ctx)
		if err != nil {
			if removal := removeRevision(revision); removal != nil || ctx.Err() != nil {
				return "", nil, errors.Join(ctx.Err(), removal)
			}
			say("comfy-env's environment %s is not used: %v", folder, err)
			continue
		}
		done.tell(func(format string, arguments ...any) { say(format, arguments...) })
		line := say("used where comfy-env built it, until the manifest changes: %s", folder)
		mark, err := stampTakenOver(plan, revision, prefix, version, done, line)
		if err != nil {
			return "", nil, errors.Join(err, removeRevision(revision))
		}
		return revision, mark, nil
	}
	return "", nil, nil
}

// stampTakenOver completes such a revision.
func stampTakenOver(plan *Plan, revision, prefix, version string, done activated, line string) (*stamp, error) {
	entries, err := siteEntries(prefix, version)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", prefix, err)
	}
	got := received{Installer: "comfy-env", Backend: BackendPixi}
	got.activate(done)
	mark := &stamp{Format: storeFormat, PlanHash: plan.Hash, Recipe: plan.Recipe, Inputs: plan.Inputs, Interpreter: condaPython(prefix),
		Python: version, Received: got,
		Lines: append(slices.Clone(plan.Lines), line), Entries: entries, BuiltAt: time.Now().UTC()}
	if err := atomicwriter.WriteFile(filepath.Join(revision, elsewhereName), []byte(prefix+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("completing %s: %w", plan.Name, err)
	}
	if err := mark.write(revision); err != nil {
		return nil, err
	}
	return mark, nil
}

// comfyEnvFits says why an environment of comfy-env's can not serve a plan, "" where it can, and its Python.
func comfyEnvFits(plan *Plan, folder string) (reason, python string) {
	prefix := pixiPrefix(folder)
	if reason := comfyEnvStampFits(plan, folder); reason != "" {
		return reason, ""
	}
	version, err := condaPythonVersion(prefix)
	if err != nil {
		return err.Error(), ""
	}
	if !exists(condaPython(prefix)) {
		return "its interpreter is gone", ""
	}
	if !versionMatches(version, plan.Recipe.Python) {
		return fmt.Sprintf("it has Python %s, and %s is needed", version, plan.Recipe.Python), ""
	}
	site := []string{sitePackages(prefix, version)}
	found, err := installedVersions(site, slices.Concat(HostPins, TorchFamily))
	if err != nil {
		return err.Error(), ""
	}
	for _, requirement := range plan.Recipe.Family {
		name, wanted, _ := strings.Cut(requirement, "==")
		if got := publicVersion(found[name]); got != wanted {
			return fmt.Sprintf("it has %s %s, and the host %s", name, cmpNone(got), wanted), ""
		}
	}
	if plan.Recipe.Torch != "" {
		torch, err := readTorch(site, found["torch"])
		if err != nil {
			return err.Error(), ""
		}
		if torch.Build != plan.Recipe.Torch {
			return fmt.Sprintf("its torch is built for %s, and %s is needed", torch.Build, plan.Recipe.Torch), ""
		}
	}
	for _, requirement := range plan.Recipe.Pins { // another version is reported when a worker starts, and serves
		if name, _, _ := strings.Cut(requirement, "=="); found[name] == "" {
			return fmt.Sprintf("it lacks %s, without which ComfyUI's modules can not be imported", name), ""
		}
	}
	return comfyEnvAsks(plan, folder), version
}

// comfyEnvStampFits asks the stamp which stack and manifest an environment is of, and whether its lock is still the
// one that it was installed from.
func comfyEnvStampFits(plan *Plan, folder string) string {
	content, err := os.ReadFile(filepath.Join(folder, "env.stamp.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "" // older than stamps; the folder's name tells the stack
	}
	var mark comfyEnvStamp
	if err == nil {
		err = json.Unmarshal(content, &mark)
	}
	if err != nil {
		return fmt.Sprintf("its stamp can not be read: %v", err)
	}
	if mark.Stack != "" && mark.Stack != comfyEnvTag(plan) {
		return fmt.Sprintf("it is built for %s", mark.Stack)
	}
	if relative, err := filepath.Rel(plan.PackDirectory, plan.Manifest); err == nil && mark.Source != "" {
		if source := filepath.Base(plan.PackDirectory) + "/" + filepath.ToSlash(relative); mark.Source != source {
			return fmt.Sprintf("it is built from %s", mark.Source)
		}
	}
	if mark.LockSHA256 == "" {
		return ""
	}
	lock, err := os.ReadFile(filepath.Join(folder, pixiLockName))
	if err != nil {
		return fmt.Sprintf("its lock file can not be read: %v", err)
	}
	if sum := sha256.Sum256(lock); hex.EncodeToString(sum[:]) != mark.LockSHA256 {
		return "its lock file has changed since it was installed"
	}
	return ""
}

// comfyEnvAsks holds the workspace file that comfy-env made against the plan: comfy-env does not record which
// manifest it read, so what the plan asks for must be in there.
func comfyEnvAsks(plan *Plan, folder string) string {
	content, err := os.ReadFile(filepath.Join(folder, pixiProjectName))
	if err != nil {
		return fmt.Sprintf("its workspace file can not be read: %v", err)
	}
	var file map[string]any
	if err := toml.Unmarshal(content, &file); err != nil {
		return fmt.Sprintf("its workspace file can not be read: %v", err)
	}
	packages := map[string]any{}
	collectPackages(file, packages)
	want := func(name string, spec any) string {
		present, found := packages[normalizeName(name)]
		if !found {
			return fmt.Sprintf("the manifest asks for %s, which it was not built with", name)
		}
		left, isText := spec.(string)
		right, alsoText := present.(string)
		if isText && alsoText && strings.ReplaceAll(left, " ", "") != strings.ReplaceAll(right, " ", "") {
			return fmt.Sprintf("the manifest asks for %s %s, and it was built with %s", name, left, right)
		}
		return ""
	}
	for _, requirement := range plan.Recipe.Requirements {
		name, spec := pixiRequirement(requirement, plan.Recipe.Sources[RequirementName(requirement)])
		if reason := want(name, spec); reason != "" {
			return reason
		}
	}
	if plan.Recipe.Conda != nil {
		for name, spec := range plan.Recipe.Conda.Dependencies {
			if name == "python" {
				continue // seen above
			}
			if reason := want(name, spec); reason != "" {
				return reason
			}
		}
	}
	for _, requirement := range plan.Recipe.CUDA {
		if reason := want(RequirementName(requirement), nil); reason != "" {
			return reason
		}
	}
	return ""
}

// collectPackages gathers the packages of every dependency table, of targets and features too.
func collectPackages(table, packages map[string]any) {
	for name, value := range table {
		inner, ok := value.(map[string]any)
		if !ok {
			continue
		}
		switch name {
		case "dependencies", "pypi-dependencies":
			for one, spec := range inner {
				packages[normalizeName(one)] = spec
			}
		case "target", "feature":
			for _, each := range inner {
				if deeper, ok := each.(map[string]any); ok {
					collectPackages(deeper, packages)
				}
			}
		}
	}
}
