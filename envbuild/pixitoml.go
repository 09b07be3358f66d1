package envbuild

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// pixiProjectName is the workspace file that pixi reads in a revision.
const pixiProjectName = "pixi.toml"

// renderPixi writes the workspace file of a recipe: one workspace with one environment for one platform.
// torchIndex is the index of the torch family, "" for the default one; indexes are the operator's own Python
// indexes, the default one first ("" for none).
func renderPixi(name string, recipe Recipe, torchIndex string, indexes []string) ([]byte, error) {
	conda := recipe.Conda
	workspace := map[string]any{"name": name, "platforms": []string{conda.Platform}, "channels": pixiChannels(conda.Channels)}
	for key, value := range conda.Workspace {
		workspace[key] = value
	}
	if newer := recipe.Installer.ExcludeNewer; newer != "" && workspace["exclude-newer"] == nil {
		workspace["exclude-newer"] = newer
	}
	file := map[string]any{"workspace": workspace}
	put := func(table string, values map[string]any) {
		if len(values) > 0 {
			file[table] = values
		}
	}
	put("dependencies", conda.Dependencies)
	put("host-dependencies", conda.Host)
	put("build-dependencies", conda.Build)
	put("constraints", conda.Constraints)
	put("system-requirements", conda.System)
	put("exclude-newer", conda.Newer)
	put("pypi-exclude-newer", conda.PyPINewer)
	put("pypi-dependencies", pixiRequirements(recipe, torchIndex))
	put("pypi-options", pixiOptions(recipe.Installer, indexes))
	activation := map[string]any{}
	if len(conda.Activation.Scripts) > 0 {
		activation["scripts"] = conda.Activation.Scripts
	}
	if len(conda.Activation.Env) > 0 {
		activation["env"] = conda.Activation.Env
	}
	put("activation", activation)
	content, err := toml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("writing the workspace file of %s: %w", name, err)
	}
	return append([]byte("# Made from the pack's manifest and the host's facts. Changes here change nothing.\n"), content...), nil
}

// pixiChannels writes plain names, or tables as soon as one has a priority.
func pixiChannels(channels []CondaChannel) any {
	names := make([]string, len(channels))
	tables := make([]map[string]any, len(channels))
	prioritised := false
	for i, channel := range channels {
		names[i] = channel.Name
		tables[i] = map[string]any{"channel": channel.Name}
		if channel.Priority != 0 {
			tables[i]["priority"], prioritised = channel.Priority, true
		}
	}
	if prioritised {
		return tables
	}
	return names
}

// pixiRequirements is [pypi-dependencies]: the torch family from its index, the pins, and the pack's own.
func pixiRequirements(recipe Recipe, torchIndex string) map[string]any {
	requirements := map[string]any{}
	for _, requirement := range recipe.Family {
		name, spec := pixiRequirement(requirement, Source{Index: torchIndex})
		requirements[name] = spec
	}
	for _, requirement := range recipe.Pins {
		name, spec := pixiRequirement(requirement, Source{})
		requirements[name] = spec
	}
	for _, requirement := range recipe.Requirements {
		name, spec := pixiRequirement(requirement, recipe.Sources[RequirementName(requirement)])
		requirements[name] = spec
	}
	return requirements
}

// pixiRequirement turns a requirement of a plan, "name[extras]version ; marker", into pixi's form. A marker goes to
// env-markers, which pixi reads and its published schema does not have.
func pixiRequirement(requirement string, source Source) (name string, spec any) {
	text, marker, _ := strings.Cut(requirement, " ; ")
	if bare, place, found := strings.Cut(text, " @ "); found {
		text, source = bare, directSource(place)
	}
	name = RequirementName(text)
	end := strings.IndexAny(text, "[<>=!~ ")
	version, extras := "", ""
	if end >= 0 {
		version = text[end:]
	}
	if rest, found := strings.CutPrefix(version, "["); found {
		extras, version, _ = strings.Cut(rest, "]")
	}
	version = strings.TrimSpace(version)
	if version == "" {
		version = "*"
	}
	table := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			table[key] = value
		}
	}
	put("url", source.URL)
	put("git", source.Git)
	put("path", source.Path)
	direct := len(table) > 0
	if !direct {
		put("version", version)
		put("index", source.Index)
	}
	put("rev", source.Rev)
	if source.Rev == "" {
		put("tag", source.Tag)
		if source.Tag == "" {
			put("branch", source.Branch)
		}
	}
	put("subdirectory", source.Subdirectory)
	if source.Editable {
		table["editable"] = true
	}
	if source.LFS {
		table["lfs"] = true
	}
	if extras != "" {
		var list []string
		for extra := range strings.SplitSeq(extras, ",") {
			list = append(list, strings.TrimSpace(extra))
		}
		table["extras"] = list
	}
	put("env-markers", marker)
	if len(table) == 1 && !direct {
		return name, version
	}
	return name, table
}

// directSource reads the place of a direct reference, as directText writes it.
func directSource(place string) Source {
	place, subdirectory, _ := strings.Cut(place, "#subdirectory=")
	if git, found := strings.CutPrefix(place, "git+"); found {
		source := Source{Git: git, Subdirectory: subdirectory}
		if at := strings.LastIndex(git, "@"); at > strings.LastIndex(git, "/") {
			source.Git, source.Rev = git[:at], git[at+1:]
		}
		return source
	}
	if path, found := strings.CutPrefix(place, "file://"); found {
		return Source{Path: path, Subdirectory: subdirectory}
	}
	return Source{URL: place, Subdirectory: subdirectory}
}

// pixiOptions is [pypi-options].
func pixiOptions(installer InstallerPlan, indexes []string) map[string]any {
	options := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			options[key] = value
		}
	}
	index := installer.DefaultIndex
	if index == "" && len(indexes) > 0 {
		index = indexes[0]
	}
	put("index-url", index)
	extra := append([]string(nil), installer.ExtraIndexes...)
	if len(indexes) > 1 {
		extra = append(extra, indexes[1:]...)
	}
	if len(extra) > 0 {
		options["extra-index-urls"] = extra
	}
	var links []map[string]any
	for _, link := range installer.FindLinks {
		key := "path"
		if strings.Contains(link, "://") {
			key = "url"
		}
		links = append(links, map[string]any{key: link})
	}
	if len(links) > 0 {
		options["find-links"] = links
	}
	set := func(key string, all bool, packages []string) {
		switch {
		case all:
			options[key] = true
		case len(packages) > 0:
			options[key] = packages
		}
	}
	set("no-build", installer.NoBuild, installer.NoBuildPackages)
	set("no-binary", installer.NoBinary, installer.NoBinaryPackages)
	if len(installer.NoIsolation) > 0 {
		set("no-build-isolation", installer.NoIsolation[0] == "*", installer.NoIsolation)
	}
	put("index-strategy", installer.IndexStrategy)
	put("prerelease-mode", installer.Prerelease)
	overrides := map[string]any{}
	for _, requirement := range installer.Overrides {
		name, spec := pixiRequirement(requirement, Source{})
		overrides[name] = spec
	}
	if len(overrides) > 0 {
		options["dependency-overrides"] = overrides
	}
	return options
}
