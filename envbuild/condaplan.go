package envbuild

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// CondaPlan is the part of a recipe that comes from conda channels, with the [target] tables of the platform folded
// in. Package maps are in pixi's terms: a version, or a table of match specification keys.
type CondaPlan struct {
	Platform     string          `json:"platform"` // conda's name of it, linux-64
	Channels     []CondaChannel  `json:"channels"` // the first is preferred unless a priority says otherwise
	Dependencies map[string]any  `json:"dependencies,omitempty"`
	Host         map[string]any  `json:"host_dependencies,omitempty"`
	Build        map[string]any  `json:"build_dependencies,omitempty"`
	Constraints  map[string]any  `json:"constraints,omitempty"`
	System       map[string]any  `json:"system_requirements,omitempty"`
	Workspace    map[string]any  `json:"workspace,omitempty"` // keys of [workspace] that bear on what is installed
	Newer        map[string]any  `json:"exclude_newer,omitempty"`
	PyPINewer    map[string]any  `json:"pypi_exclude_newer,omitempty"`
	Activation   CondaActivation `json:"activation"`
}

// CondaChannel is one channel. Higher priorities are preferred.
type CondaChannel struct {
	Name     string `json:"name"`
	Priority int64  `json:"priority,omitempty"`
}

// CondaActivation is [activation]: scripts by absolute path, and variables.
type CondaActivation struct {
	Scripts []string          `json:"scripts,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// defaultChannel is always among the channels: the interpreter comes from it.
const defaultChannel = "conda-forge"

// workspaceKeysKept are the keys of [workspace] that decide what is installed; the others describe a project.
var workspaceKeysKept = []string{"channel-priority", "conda-pypi-map", "exclude-newer", "preview", "requires-pixi", "s3-options", "solve-strategy", "build-variants"}

// condaPlatform is conda's name of a platform, "" for one it does not have.
func condaPlatform(platform PlatformFacts) string {
	selectors := platformSelectors(platform)
	if name := selectors[len(selectors)-1]; strings.Contains(name, "-") {
		return name
	}
	return ""
}

// takeConda fills the recipe's conda part in, and takes what conda provides out of the Python requirements.
func (p *Plan) takeConda(parsed *manifest.Manifest, merged merged) error {
	platform := condaPlatform(p.facts.Platform)
	if platform == "" {
		return fmt.Errorf("%s needs conda packages, and there are none for %s/%s", p.Manifest, p.facts.Platform.OS, p.facts.Platform.Arch)
	}
	plan := &CondaPlan{Platform: platform, System: maps.Clone(parsed.SystemRequirements),
		Dependencies: map[string]any{}, Host: map[string]any{}, Build: map[string]any{}, Constraints: map[string]any{}}
	p.Recipe.Conda = plan
	for _, channel := range parsed.Channels {
		plan.Channels = append(plan.Channels, CondaChannel{channel.Name, channel.Priority})
	}
	if !slices.ContainsFunc(plan.Channels, func(c CondaChannel) bool {
		return strings.TrimSuffix(c.Name, "/") == defaultChannel || strings.HasSuffix(strings.TrimSuffix(c.Name, "/"), "/"+defaultChannel)
	}) {
		plan.Channels = append(plan.Channels, CondaChannel{Name: defaultChannel})
	}
	p.addCondaTables(plan, parsed.Dependencies, parsed.HostDependencies, parsed.BuildDependencies, parsed.Constraints)
	asked := map[string]bool{}
	for _, requirement := range parsed.PyPIDependencies {
		asked[normalizeName(requirement.Name)] = true
	}
	for _, selector := range platformSelectors(p.facts.Platform) {
		for _, target := range parsed.Targets {
			if target.Selector != selector {
				continue
			}
			p.addCondaTables(plan, target.Dependencies, target.HostDependencies, target.BuildDependencies, target.Constraints)
			for _, requirement := range target.PyPIDependencies {
				asked[normalizeName(requirement.Name)] = true
			}
			for key, value := range target.SystemRequirements {
				if plan.System == nil {
					plan.System = map[string]any{}
				}
				plan.System[key] = value
			}
		}
	}
	if err := p.condaPython(plan, parsed); err != nil {
		return err
	}
	// uv's plan turns pip and the like into Python packages; here they come from where the manifest wants them.
	p.Recipe.Requirements = slices.DeleteFunc(p.Recipe.Requirements, func(requirement string) bool {
		name := RequirementName(requirement)
		return slices.Contains(installerTools, name) && !asked[name]
	})
	if cuda, found := strings.CutPrefix(p.Recipe.Torch, "cu"); found && len(cuda) > 2 && plan.System["cuda"] == nil {
		// The major version: drivers serve every minor one of it.
		if plan.System == nil {
			plan.System = map[string]any{}
		}
		plan.System["cuda"] = cuda[:len(cuda)-1]
		p.say("system requirement cuda = %q: what the host's torch build needs of the driver", cuda[:len(cuda)-1])
	}
	plan.Activation.Env = merged.Activation.Env
	workspace, _ := parsed.PassThrough["workspace"].(map[string]any)
	for key, value := range workspace {
		if slices.Contains(workspaceKeysKept, key) {
			if plan.Workspace == nil {
				plan.Workspace = map[string]any{}
			}
			plan.Workspace[key] = value
		}
	}
	plan.Newer, _ = parsed.PassThrough["exclude-newer"].(map[string]any)
	plan.PyPINewer, _ = parsed.PassThrough["pypi-exclude-newer"].(map[string]any)
	for _, table := range []string{"package", "dev"} {
		if _, found := parsed.PassThrough[table]; found {
			p.say("[%s] left out: the environment is for the pack's nodes, which are not built as a package", table)
		}
	}
	return nil
}

// addCondaTables adds the packages of one set of tables; what a later set says about a package replaces the rest.
func (p *Plan) addCondaTables(plan *CondaPlan, dependencies, host, build, constraints []manifest.CondaDependency) {
	for _, table := range []struct {
		into map[string]any
		list []manifest.CondaDependency
	}{{plan.Dependencies, dependencies}, {plan.Host, host}, {plan.Build, build}, {plan.Constraints, constraints}} {
		for _, dependency := range table.list {
			table.into[strings.ToLower(dependency.Name)] = p.condaSpec(dependency)
		}
	}
}

// condaSpec is one package in pixi's form.
func (p *Plan) condaSpec(dependency manifest.CondaDependency) any {
	if dependency.Build == "" && dependency.Channel == "" && len(dependency.Other) == 0 {
		return dependency.Version
	}
	spec := maps.Clone(dependency.Other)
	if spec == nil {
		spec = map[string]any{}
	}
	if path, ok := spec["path"].(string); ok {
		spec["path"] = p.absolute(path)
	}
	_, hasURL := spec["url"]
	_, hasGit := spec["git"]
	_, hasPath := spec["path"]
	if !(hasURL || hasGit || hasPath) || dependency.Version != "*" {
		spec["version"] = dependency.Version
	}
	if dependency.Build != "" {
		spec["build"] = dependency.Build
	}
	if dependency.Channel != "" {
		spec["channel"] = dependency.Channel
	}
	return spec
}

// pythonsOffered are the versions that are tried, in this order, where the manifest gives a range without the host's.
var pythonsOffered = []string{"3.12", "3.13", "3.11", "3.14", "3.10"}

// condaPython makes the interpreter a package like the others: exactly the version that was chosen, or where
// [dependencies] gives a range, the host's if it is in there.
func (p *Plan) condaPython(plan *CondaPlan, parsed *manifest.Manifest) error {
	asked := plan.Dependencies["python"]
	text, isText := asked.(string)
	table, isTable := asked.(map[string]any)
	if isTable {
		text, _ = table["version"].(string)
	}
	if text != "" && text != "*" && parsed.Python == "" && exactMinor(text) == "" {
		specifiers, convertible := condaToPEP440(text)
		if !convertible {
			return fmt.Errorf("%s: the range %q of python in [dependencies] does not say which Python the environment has; write python = %q at the top of the file",
				p.Manifest, text, p.Recipe.Python)
		}
		if !satisfies(p.Recipe.Python, specifiers) {
			chosen := slices.IndexFunc(pythonsOffered, func(version string) bool { return satisfies(version, specifiers) })
			if chosen < 0 {
				return fmt.Errorf("%s: no Python that ComfyUI runs on is in %q; write python = %q at the top of the file", p.Manifest, text, p.Recipe.Python)
			}
			p.Recipe.Python = pythonsOffered[chosen]
			p.say("Python %s: the manifest asks for %s (the host has %s)", p.Recipe.Python, text, p.facts.Python.Version)
		}
	}
	version := p.Recipe.Python + ".*"
	if strings.Count(p.Recipe.Python, ".") == 2 {
		version = "==" + p.Recipe.Python
	}
	if isText || !isTable {
		plan.Dependencies["python"] = version
		return nil
	}
	table["version"] = version
	return nil
}
