package envbuild

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// The project file that uv resolves. It is the one form of input in which uv lets single packages come from
// single indexes, and it stays in the revision for people to read.
type pyproject struct {
	Project project `toml:"project"`
	Tool    struct {
		UV uvTable `toml:"uv"`
	} `toml:"tool"`
}

type project struct {
	Name           string   `toml:"name"`
	Version        string   `toml:"version"`
	RequiresPython string   `toml:"requires-python"`
	Dependencies   []string `toml:"dependencies,multiline"`
}

type uvTable struct {
	Package                  bool                `toml:"package"`
	Environments             []string            `toml:"environments"`
	RequiredEnvironments     []string            `toml:"required-environments"`
	OverrideDependencies     []string            `toml:"override-dependencies,omitempty,multiline"`
	NoBuild                  bool                `toml:"no-build,omitempty"`
	NoBuildPackage           []string            `toml:"no-build-package,omitempty"`
	NoBinary                 bool                `toml:"no-binary,omitempty"`
	NoBinaryPackage          []string            `toml:"no-binary-package,omitempty"`
	NoBuildIsolation         bool                `toml:"no-build-isolation,omitempty"`
	NoBuildIsolationPackages []string            `toml:"no-build-isolation-package,omitempty"`
	IndexStrategy            string              `toml:"index-strategy,omitempty"`
	Prerelease               string              `toml:"prerelease,omitempty"`
	ExcludeNewer             string              `toml:"exclude-newer,omitempty"`
	FindLinks                []string            `toml:"find-links,omitempty"`
	Sources                  map[string]uvSource `toml:"sources,omitempty"`
	Index                    []uvIndex           `toml:"index,omitempty"`
}

type uvSource struct {
	Index        string `toml:"index,omitempty"`
	URL          string `toml:"url,omitempty"`
	Git          string `toml:"git,omitempty"`
	Branch       string `toml:"branch,omitempty"`
	Tag          string `toml:"tag,omitempty"`
	Rev          string `toml:"rev,omitempty"`
	LFS          bool   `toml:"lfs,omitempty"`
	Path         string `toml:"path,omitempty"`
	Editable     *bool  `toml:"editable,omitempty"`
	Subdirectory string `toml:"subdirectory,omitempty"`
}

type uvIndex struct {
	Name     string `toml:"name"`
	URL      string `toml:"url"`
	Default  bool   `toml:"default,omitempty"`
	Explicit bool   `toml:"explicit,omitempty"`
}

// renderProject writes the project file of a recipe. torchIndex is the index of the torch family, "" for the
// default one.
func renderProject(name string, recipe Recipe, torchIndex string) ([]byte, error) {
	var file pyproject
	file.Project = project{
		Name:           "pack-" + name,
		Version:        "0",
		RequiresPython: "==" + minorVersion(recipe.Python) + ".*",
		Dependencies:   slices.Concat(recipe.Family, recipe.Pins, recipe.Requirements),
	}
	installer := recipe.Installer
	table := &file.Tool.UV
	table.Environments = []string{environmentMarker(recipe.Platform)}
	table.RequiredEnvironments = table.Environments
	table.OverrideDependencies = installer.Overrides
	table.NoBuild, table.NoBuildPackage = installer.NoBuild, installer.NoBuildPackages
	table.NoBinary, table.NoBinaryPackage = installer.NoBinary, installer.NoBinaryPackages
	if slices.Contains(installer.NoIsolation, "*") {
		table.NoBuildIsolation = true
	} else {
		table.NoBuildIsolationPackages = installer.NoIsolation
	}
	table.IndexStrategy, table.Prerelease = installer.IndexStrategy, installer.Prerelease
	table.ExcludeNewer = installer.ExcludeNewer
	table.FindLinks = installer.FindLinks
	table.Sources = map[string]uvSource{}

	explicit := map[string]string{} // URL to name
	indexName := func(url string) string {
		if _, known := explicit[url]; !known {
			explicit[url] = "source-" + strconv.Itoa(len(explicit)+1)
			table.Index = append(table.Index, uvIndex{Name: explicit[url], URL: url, Explicit: true})
		}
		return explicit[url]
	}
	if torchIndex != "" && len(recipe.Family) > 0 {
		explicit[torchIndex] = "torch"
		table.Index = append(table.Index, uvIndex{Name: "torch", URL: torchIndex, Explicit: true})
		for _, requirement := range recipe.Family {
			table.Sources[RequirementName(requirement)] = uvSource{Index: "torch"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recipe.Sources)) {
		from := recipe.Sources[name]
		source := uvSource{URL: from.URL, Git: from.Git, Branch: from.Branch, Tag: from.Tag, Rev: from.Rev, LFS: from.LFS,
			Path: from.Path, Subdirectory: from.Subdirectory}
		if from.Path != "" && from.Editable {
			source.Editable = &from.Editable
		}
		if from.Index != "" {
			source.Index = indexName(from.Index)
		}
		table.Sources[name] = source
	}
	for i, url := range installer.ExtraIndexes {
		table.Index = append(table.Index, uvIndex{Name: "extra-" + strconv.Itoa(i+1), URL: url})
	}
	if installer.DefaultIndex != "" {
		table.Index = append(table.Index, uvIndex{Name: "default", URL: installer.DefaultIndex, Default: true})
	}
	content, err := toml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("writing the project file of %s: %w", name, err)
	}
	return append([]byte("# Made from the pack's manifest and the host's facts. Changes here change nothing.\n"), content...), nil
}

// RequirementName is the name at the start of a PEP 508 requirement.
func RequirementName(requirement string) string {
	for i, r := range requirement {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' {
			return normalizeName(requirement[:i])
		}
	}
	return normalizeName(requirement)
}

// environmentMarker restricts a resolution to one platform: a pack need not resolve for others.
func environmentMarker(platform string) string {
	system, machine, _ := strings.Cut(platform, "/")
	switch system {
	case "windows":
		system, machine = "win32", map[string]string{"amd64": "AMD64", "arm64": "ARM64"}[machine]
	case "darwin":
		machine = map[string]string{"amd64": "x86_64", "arm64": "arm64"}[machine]
	default:
		machine = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[machine]
	}
	marker := fmt.Sprintf("sys_platform == '%s' and implementation_name == 'cpython'", system)
	if machine != "" {
		marker += fmt.Sprintf(" and platform_machine == '%s'", machine)
	}
	return marker
}
