package envbuild

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// NewPlan decides how one manifest becomes an environment for a host. Its only effect is reading the local
// files that the manifest's requirements name.
func NewPlan(found manifest.Found, parsed *manifest.Manifest, facts Facts, endpoints Endpoints) (*Plan, error) {
	plan := &Plan{
		Name:           found.Name,
		PackDirectory:  found.PackDirectory,
		NodesDirectory: found.NodesDirectory,
		Manifest:       found.File,
		Variables:      map[string]string{},
		Options:        parsed.Options,
		facts:          facts,
	}
	merged := mergeTargets(parsed, facts.Platform)
	recipe := &plan.Recipe
	recipe.Format = planFormat
	recipe.Platform = facts.Platform.OS + "/" + facts.Platform.Arch
	if err := plan.choosePython(parsed, merged); err != nil {
		return nil, err
	}
	if err := plan.chooseBackend(merged, endpoints.Backend); err != nil {
		return nil, err
	}
	plan.pin(parsed.Stripped)
	plan.chooseTorch(parsed.Stripped, endpoints.TorchIndex)
	plan.chooseCUDA(parsed, endpoints.CUDAWheels)
	if err := plan.require(merged); err != nil {
		return nil, err
	}
	plan.installer(merged)
	if recipe.Backend == BackendPixi { // activation is recorded once it is built
		if err := plan.takeConda(parsed, merged); err != nil {
			return nil, err
		}
	} else {
		plan.Activation = merged.Activation.Env
	}
	if err := plan.takeScripts(merged, parsed.Activation.ScriptsAt); err != nil {
		return nil, err
	}
	maps.Copy(plan.Variables, parsed.EnvVars)

	build, _ := facts.BuildKind()
	plan.HostStack = facts.Stack()
	plan.Stack = stackTag(recipe.Python, facts.Torch.Version, build)
	if err := plan.seal(); err != nil {
		return nil, err
	}
	plan.Inputs = inputsOf(parsed, facts, endpoints, recipe)
	return plan, nil
}

// inputsOf names what a plan was derived from, in the words in which a change of it is reported.
func inputsOf(parsed *manifest.Manifest, facts Facts, endpoints Endpoints, recipe *Recipe) map[string]string {
	gpu := "none"
	if facts.GPU.Present {
		gpu = facts.GPU.Kind
	}
	inputs := map[string]string{
		"the manifest":               parsed.Digest,
		"the host's Python":          minorVersion(facts.Python.Version),
		"the host's torch":           facts.Torch.Version,
		"the host's torch build":     facts.Torch.Build,
		"the GPU":                    gpu,
		"the platform":               recipe.Platform,
		"the torch index (setting)":  endpoints.TorchIndex,
		"the CUDA wheels (setting)":  endpoints.CUDAWheels,
		"the backend (setting)":      endpoints.Backend,
		"the format of environments": fmt.Sprint(recipe.Format),
	}
	for _, name := range slices.Concat(HostPins, TorchFamily[1:]) {
		inputs["the host's "+name] = facts.Packages[name]
	}
	for path, hash := range recipe.Local {
		inputs[path] = hash
	}
	return inputs
}

// changedInputs says in which inputs two plans differ, in a stable order. Hashes are not printed.
func changedInputs(before, after map[string]string) []string {
	var changes []string
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		old, now := before[name], after[name]
		if old == now {
			continue
		}
		if len(old) == 64 || len(now) == 64 {
			changes = append(changes, name+" changed")
			continue
		}
		changes = append(changes, fmt.Sprintf("%s changed from %s to %s", name, cmpNone(old), cmpNone(now)))
	}
	return changes
}

func cmpNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// oldestPython is what ComfyUI itself needs.
const oldestPython = "3.10"

// choosePython decides which version the environment's interpreter must have.
func (p *Plan) choosePython(parsed *manifest.Manifest, merged merged) error {
	host := p.facts.Python.Version
	switch {
	case parsed.Python != "":
		p.Recipe.Python = parsed.Python
		if !versionMatches(host, parsed.Python) {
			p.say("Python %s, as the manifest says (the host has %s)", parsed.Python, host)
		}
	case merged.python != "":
		p.Recipe.Python = merged.python
		if !versionMatches(host, merged.python) {
			p.say("Python %s, as [dependencies] says (the host has %s)", merged.python, host)
		}
	default:
		p.Recipe.Python = minorVersion(host)
	}
	if !isPythonVersion(p.Recipe.Python) {
		return fmt.Errorf("%s: python = %q is no version; write one such as \"3.12\"", p.Manifest, p.Recipe.Python)
	}
	if p.Recipe.Python == minorVersion(host) && compareVersions(host, oldestPython) < 0 {
		return fmt.Errorf("the host's Python %s is too old, ComfyUI's own modules need %s or later; name the interpreter that runs ComfyUI with --python",
			host, oldestPython)
	}
	if compareVersions(p.Recipe.Python, oldestPython) < 0 {
		return fmt.Errorf("%s: Python %s is too old, ComfyUI's own modules need %s or later; write python = %q or leave the line out",
			p.Manifest, p.Recipe.Python, oldestPython, oldestPython)
	}
	return nil
}

// chooseBackend picks uv unless something has to come from conda.
func (p *Plan) chooseBackend(merged merged, wanted string) error {
	needs := merged.conda
	switch {
	case wanted == BackendUV && len(needs) > 0:
		return fmt.Errorf("%s: the backend is set to uv, which can not install %s; leave the choice to the manifest, or take them from [pypi-dependencies]",
			p.Manifest, strings.Join(needs, ", "))
	case len(needs) > 0:
		p.Recipe.Backend = BackendPixi
		p.say("backend pixi: conda provides %s", strings.Join(needs, ", "))
		return nil
	case wanted == BackendPixi:
		p.Recipe.Backend = BackendPixi
		p.say("backend pixi: the settings say so")
		return nil
	}
	p.Recipe.Backend = BackendUV
	p.say("backend uv: nothing in the manifest comes from conda")
	return nil
}

// pin adds the pager's packages at the host's versions, in place of what the pack asked.
func (p *Plan) pin(stripped []manifest.Stripped) {
	for _, name := range HostPins {
		asked := ""
		if entry := strippedEntry(stripped, name); entry != nil {
			asked = fmt.Sprintf(", in place of what line %d of the manifest asks", entry.At.Line)
		}
		version := publicVersion(p.facts.Packages[name])
		if version == "" {
			if asked != "" {
				asked = fmt.Sprintf(", though line %d of the manifest asks for it", strippedEntry(stripped, name).At.Line)
			}
			p.say("%s left out: the host does not have it%s", name, asked)
			continue
		}
		p.Recipe.Pins = append(p.Recipe.Pins, name+"=="+version)
		p.say("%s==%s: the host's version%s", name, version, asked)
	}
}

// chooseTorch adds exactly the torch family that the host has, at public versions, and picks its index.
func (p *Plan) chooseTorch(stripped []manifest.Stripped, index string) {
	build, reason := p.facts.BuildKind()
	for _, name := range TorchFamily {
		entry := strippedEntry(stripped, name)
		version := publicVersion(p.facts.Packages[name])
		if version == "" {
			if entry != nil {
				p.say("%s left out: the host does not have it, though line %d of the manifest asks for it", name, entry.At.Line)
			}
			continue
		}
		p.Recipe.Family = append(p.Recipe.Family, name+"=="+version)
		if entry != nil {
			p.say("%s==%s: the host's version, in place of what line %d of the manifest asks", name, version, entry.At.Line)
		}
	}
	p.Recipe.Torch = build
	if build == "" {
		if len(p.Recipe.Family) == 0 {
			p.say("no torch: the host has none")
		}
		return
	}
	p.Recipe.Index = torchIndex(index, build, p.facts.Platform.OS)
	p.say("%s, build %s: %s", strings.Join(p.Recipe.Family, " "), build, reason)
	if line := driverTooOld(p.facts.GPU, build); line != "" {
		p.say("%s", line)
	}
}

// torchIndex is the simple index of one build kind, "" for the default index.
func torchIndex(setting, build, system string) string {
	switch {
	case setting == "default":
		return ""
	case strings.Contains(setting, "{build}"):
		return strings.ReplaceAll(setting, "{build}", build)
	case setting != "":
		return strings.TrimSuffix(setting, "/") + "/" + build
	case system == "darwin": // one build for every Mac, and it is the one on the default index
		return ""
	}
	return DefaultTorchIndex + "/" + build
}

// chooseCUDA takes up [cuda] packages where there is a card for them.
func (p *Plan) chooseCUDA(parsed *manifest.Manifest, index string) {
	if len(parsed.CUDAPackages) == 0 {
		return
	}
	var names []string
	for _, wanted := range parsed.CUDAPackages {
		names = append(names, wanted.Name)
	}
	listed := strings.Join(names, ", ")
	if build := p.Recipe.Torch; !strings.HasPrefix(build, "cu") {
		reason := "this machine has no GPU"
		switch {
		case p.facts.Torch.Version == "":
			reason = "the host has no torch"
		case p.facts.GPU.Present:
			reason = fmt.Sprintf("the torch build is %s, not CUDA", build)
		}
		p.say("[cuda] packages skipped (%s): %s", listed, reason)
		return
	}
	if index == "" {
		index = DefaultCUDAWheelsIndex
	}
	p.Recipe.CUDAIndex = index
	for _, wanted := range parsed.CUDAPackages {
		p.Recipe.CUDA = append(p.Recipe.CUDA, normalizeName(wanted.Name)+wanted.Version)
	}
}

// strippedEntry finds what a manifest had written for a package that the host dictates.
func strippedEntry(stripped []manifest.Stripped, name string) *manifest.Stripped {
	for i := range stripped {
		if normalizeName(stripped[i].Name) == name {
			return &stripped[i]
		}
	}
	return nil
}
