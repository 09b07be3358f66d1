package envbuild

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// merged is a manifest with the [target.*] tables of one platform folded in.
type merged struct {
	requirements []manifest.Requirement
	options      manifest.PyPIOptions
	Activation   manifest.Activation
	excludeNewer string
	python       string   // version that [dependencies] gives python, "" for none
	conda        []string // what has to come from conda, each "name (table)"
}

// installerTools are conda packages that mean nothing to an environment of uv's: it has an interpreter, and
// the others are ordinary Python packages.
var installerTools = []string{"pip", "setuptools", "wheel"}

// platformSelectors lists the [target] names that hold for a platform, the most general first: what a more
// specific table says about a package replaces the rest.
func platformSelectors(platform PlatformFacts) []string {
	var family, name string
	switch platform.OS {
	case "linux":
		family, name = "linux", map[string]string{"amd64": "linux-64", "arm64": "linux-aarch64"}[platform.Arch]
	case "darwin":
		family, name = "osx", map[string]string{"amd64": "osx-64", "arm64": "osx-arm64"}[platform.Arch]
	case "windows":
		return []string{"win", map[string]string{"amd64": "win-64", "arm64": "win-arm64"}[platform.Arch]}
	default:
		return []string{"unix"}
	}
	return []string{"unix", family, name}
}

// mergeTargets folds the tables of this platform into the general ones, as pixi does.
func mergeTargets(parsed *manifest.Manifest, platform PlatformFacts) merged {
	result := merged{
		options:      parsed.PyPIOptions,
		Activation:   parsed.Activation,
		excludeNewer: parsed.PyPIExcludeNewer,
	}
	if result.excludeNewer == "" {
		result.excludeNewer = parsed.ExcludeNewer
	}
	result.Activation.Env = maps.Clone(parsed.Activation.Env)
	byName := map[string]manifest.Requirement{}
	add := func(requirements []manifest.Requirement) {
		for _, requirement := range requirements {
			byName[normalizeName(requirement.Name)] = requirement
		}
	}
	add(parsed.PyPIDependencies)
	result.addConda("dependencies", parsed.Dependencies, byName)
	result.addConda("host-dependencies", parsed.HostDependencies, nil)
	result.addConda("build-dependencies", parsed.BuildDependencies, nil)
	for _, selector := range platformSelectors(platform) {
		for _, target := range parsed.Targets {
			if target.Selector != selector || selector == "" {
				continue
			}
			table := "target." + selector + "."
			add(target.PyPIDependencies)
			result.addConda(table+"dependencies", target.Dependencies, byName)
			result.addConda(table+"host-dependencies", target.HostDependencies, nil)
			result.addConda(table+"build-dependencies", target.BuildDependencies, nil)
			result.Activation.Scripts = append(slices.Clone(result.Activation.Scripts), target.Activation.Scripts...)
			if len(target.Activation.Env) > 0 && result.Activation.Env == nil {
				result.Activation.Env = map[string]string{}
			}
			maps.Copy(result.Activation.Env, target.Activation.Env)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		result.requirements = append(result.requirements, byName[name])
	}
	return result
}

// addConda sorts the entries of a conda table into what uv can serve and what it can not.
func (m *merged) addConda(table string, dependencies []manifest.CondaDependency, requirements map[string]manifest.Requirement) {
	for _, dependency := range dependencies {
		name := normalizeName(dependency.Name)
		plain := dependency.Build == "" && dependency.Channel == "" && len(dependency.Other) == 0
		version, convertible := condaToPEP440(dependency.Version)
		switch {
		case name == "python" && plain && dependency.Version == "*":
		case name == "python" && plain && exactMinor(dependency.Version) != "":
			m.python = exactMinor(dependency.Version)
		case slices.Contains(installerTools, name) && plain && convertible && requirements != nil:
			if _, asked := requirements[name]; !asked {
				requirements[name] = manifest.Requirement{Name: name, Version: version, At: dependency.At}
			}
		default:
			m.conda = append(m.conda, fmt.Sprintf("%s [%s]", dependency.Name, table))
		}
	}
}

// exactMinor reads a conda version that picks one Python: "3.11", "==3.11", "3.11.*", "=3.11.4".
func exactMinor(version string) string {
	text := strings.TrimSuffix(strings.TrimLeft(strings.TrimSpace(version), "= "), ".*")
	if isPythonVersion(text) {
		return text
	}
	return ""
}

// condaToPEP440 turns a conda version specification into one that Python's tools read, where it can.
func condaToPEP440(version string) (string, bool) {
	version = strings.TrimSpace(version)
	if version == "" || version == "*" {
		return "", true
	}
	if strings.ContainsAny(version, "|()^$ ") {
		return "", false
	}
	parts := strings.Split(version, ",")
	for i, part := range parts {
		switch {
		case strings.HasPrefix(part, "=="), strings.HasPrefix(part, "!="), strings.HasPrefix(part, "~="),
			strings.HasPrefix(part, "<"), strings.HasPrefix(part, ">"):
		case strings.HasPrefix(part, "="): // fuzzy: =1.2 is 1.2.*
			parts[i] = "==" + strings.TrimSuffix(strings.TrimPrefix(part, "="), ".*") + ".*"
		case numericPrefix.MatchString(part):
			parts[i] = "==" + part
		default:
			return "", false
		}
	}
	return strings.Join(parts, ","), true
}
