package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// workspaceKeys are the keys that [workspace] may have here; the rest is generated.
var workspaceKeys = []string{
	"channels", "authors", "build-variants", "build-variants-files", "channel-priority", "conda-pypi-map", "dependencies",
	"description", "documentation", "exclude-newer", "homepage", "license", "license-file", "preview", "pypi-options",
	"readme", "repository", "requires-pixi", "s3-options", "solve-strategy", "target",
}

// generatedWorkspaceKeys are made from the environment's name and the machine, so a manifest may not set them.
var generatedWorkspaceKeys = map[string]string{
	"name":      "the name is derived from the folders the file lies in",
	"version":   "an environment has no version of its own",
	"platforms": "the environment is built for the machine it is built on",
}

func (c *checker) workspace(e *entry) {
	t := c.wantTable(e, "[workspace]", `channels = ["conda-forge"] below [workspace]`)
	if t == nil {
		return
	}
	for _, key := range t.entries {
		if why, ok := generatedWorkspaceKeys[key.name]; ok {
			c.problem(problem{at: key.key, severity: Error, code: CodeRefused, message: fmt.Sprintf("[workspace] %s can not be set here", key.name),
				why: why, fix: "remove the line", edits: c.removal(key)})
			continue
		}
		switch key.name {
		case "channels":
			c.m.Channels = c.channels(key)
		default:
			if !slices.Contains(workspaceKeys, key.name) {
				c.unknownKey(key, "[workspace]", workspaceKeys, Error, "pixi refuses it")
			}
		}
	}
}

func (c *checker) channels(e *entry) []Channel {
	const example = `channels = ["conda-forge"]`
	if e.value.kind != kindArray {
		for _, item := range c.wantStrings(e, "workspace.channels", example) {
			return []Channel{{Name: item.text}}
		}
		return nil
	}
	channels := make([]Channel, 0, len(e.value.items))
	for _, item := range e.value.items {
		channel := Channel{Name: item.text}
		if item.kind == kindTable {
			for _, key := range item.table.entries {
				switch key.name {
				case "channel":
					channel.Name, _ = c.wantString(key, "the channel", `channel = "conda-forge"`)
				case "priority":
					if key.value.kind != kindInteger {
						c.problem(problem{at: key.value.span, severity: Error, code: CodeType, message: "a channel's priority is " + describe(key.value) + ", not an integer",
							fix: "write priority = 1"})
						continue
					}
					channel.Priority, _ = key.value.integer() // too large ones have been reported by the reader
				default:
					c.unknownKey(key, "a channel", []string{"channel", "priority"}, Error, "pixi refuses it")
				}
			}
		} else if item.kind != kindString {
			channel.Name = ""
		}
		if channel.Name == "" {
			c.problem(problem{at: item.span, severity: Error, code: CodeType, message: "a channel is " + describe(item) + ", not a name or an address",
				fix: "write " + example})
			continue
		}
		channels = append(channels, channel)
	}
	return channels
}

var activationKeys = []string{"scripts", "env"}

func (c *checker) activation(e *entry, path string) Activation {
	var a Activation
	t := c.wantTable(e, "["+path+"]", `scripts = ["activate.sh"] below [`+path+"]")
	if t == nil {
		return a
	}
	for _, key := range t.entries {
		switch key.name {
		case "scripts":
			a.ScriptsAt = c.position(key.key)
			for _, item := range c.wantStrings(key, path+".scripts", `scripts = ["activate.sh"]`) {
				a.Scripts = append(a.Scripts, item.text)
			}
		case "env":
			if variables := c.wantTable(key, "["+path+".env]", `NAME = "value" below [`+path+".env]"); variables != nil {
				a.Env = c.variables(variables, path+".env")
			}
		default:
			c.unknownKey(key, "["+path+"]", activationKeys, Error, "pixi refuses it")
		}
	}
	return a
}

var systemRequirementKeys = []string{"archspec", "cuda", "libc", "linux", "macos", "unix"}

func (c *checker) systemRequirements(e *entry, path string) map[string]any {
	t := c.wantTable(e, "["+path+"]", `cuda = "12" below [`+path+"]")
	if t == nil {
		return nil
	}
	for _, key := range t.entries {
		where := path + "." + key.name
		switch {
		case !slices.Contains(systemRequirementKeys, key.name):
			c.unknownKey(key, "["+path+"]", systemRequirementKeys, Error, "pixi refuses it")
		case key.name == "libc" && key.value.kind == kindTable:
			for _, inner := range key.value.table.entries {
				if inner.name != "family" && inner.name != "version" {
					c.unknownKey(inner, where, []string{"family", "version"}, Error, "pixi refuses it")
				}
			}
		case key.value.kind == kindArray || key.value.kind == kindTable || key.value.kind == kindTime:
			c.problem(problem{at: key.value.span, severity: Error, code: CodeType, message: fmt.Sprintf("%s is %s, not a version", where, describe(key.value)),
				fix: fmt.Sprintf("write %s = \"12\"", key.name)})
		}
	}
	return plainTable(t)
}

// targetKeys are the sections that a [target.PLATFORM] may have.
var targetKeys = []string{
	"dependencies", "host-dependencies", "build-dependencies", "constraints", "pypi-dependencies", "dev", "activation", "tasks",
	"system-requirements",
}

func (c *checker) targets(e *entry) {
	t := c.wantTable(e, "[target]", "[target.linux-64.pypi-dependencies]")
	if t == nil {
		return
	}
	for _, selector := range t.entries {
		inner := c.wantTable(selector, "[target."+selector.name+"]", "[target.linux-64.pypi-dependencies]")
		if inner == nil {
			continue
		}
		if !slices.Contains(platforms, selector.name) && !slices.Contains(platformFamilies, selector.name) {
			c.unknownPlatform(selector)
		}
		c.m.Targets = append(c.m.Targets, c.target(selector, inner))
	}
}

func (c *checker) unknownPlatform(selector *entry) {
	known := slices.Concat(platformFamilies, platforms)
	p := problem{at: selector.key, severity: Error, code: CodePlatform, message: fmt.Sprintf("%s is no platform", quoteName(selector.name)),
		why: "what stands in this section would never be used", fix: "write one of " + strings.Join(known[:10], ", ")}
	near := platformAliases[foldName(selector.name)]
	if near == "" {
		near = nearest(selector.name, known)
	}
	if near != "" {
		p.fix = "write " + near
		p.edits = selector.renameUnlessTaken(near)
	}
	c.problem(p)
}

func (c *checker) target(selector *entry, t *table) Target {
	target := Target{Selector: selector.name, At: c.position(selector.key)}
	for _, section := range t.entries {
		c.targetSection(&target, selector, section.name, section)
	}
	return target
}

// targetSection reads one section of a target as the section of that name.
func (c *checker) targetSection(target *Target, selector *entry, name string, section *entry) {
	t := selector.value.table
	path := "target." + selector.name + "." + name
	switch name {
	case "pypi-dependencies", "dependencies", "host-dependencies", "build-dependencies", "constraints":
		inner := c.wantTable(section, "["+path+"]", `name = "version" below [`+path+"]")
		if inner == nil {
			return
		}
		names := []string{"target", selector.name, name}
		switch name {
		case "pypi-dependencies":
			target.PyPIDependencies = c.pypiTable(inner, names...)
		case "dependencies":
			target.Dependencies = c.condaTable(inner, names...)
		case "host-dependencies":
			target.HostDependencies = c.condaTable(inner, names...)
		case "build-dependencies":
			target.BuildDependencies = c.condaTable(inner, names...)
		case "constraints":
			target.Constraints = c.condaTable(inner, names...)
		}
	case "activation":
		target.Activation = c.activation(section, path)
	case "system-requirements":
		target.SystemRequirements = c.systemRequirements(section, path)
		c.problem(problem{at: section.key, severity: Warning, code: CodeMisplaced, message: "pixi has no system-requirements for one platform",
			why: "here they are taken as the whole environment's on that platform; pixi itself refuses the file", fix: "move the keys to [system-requirements]"})
	case "tasks":
		c.problem(problem{at: section.key, severity: Warning, code: CodeIgnored, message: "tasks have no effect here",
			why: "nothing runs pixi tasks in a worker's environment", fix: "keep tasks in a pixi.toml of your own"})
	case "dev":
	case "cuda", "env_vars", "options", "pypi-options", "workspace", "python":
		p := problem{at: section.key, severity: Error, code: CodeMisplaced, message: fmt.Sprintf("%s can not be set for one platform", section.name),
			why: "it would never be read", fix: fmt.Sprintf("move it to [%s]", section.name)}
		if section.name == "env_vars" {
			p.fix = fmt.Sprintf("move it to [target.%s.activation.env]", selector.name)
		}
		if section.name == "python" {
			p.fix = "write it at the top of the file"
		}
		c.problem(p)
	default:
		c.unknownKey(section, "[target."+selector.name+"]", targetKeys, Error, "pixi refuses it")
		if near := nearest(section.name, targetKeys); near != "" && t.get(near) == nil {
			c.targetSection(target, selector, near, section) // what is in it has its own mistakes
		}
	}
}

// pypiOptionKeys are the keys of [pypi-options].
var pypiOptionKeys = []string{
	"index-url", "extra-index-urls", "find-links", "no-build", "no-binary", "no-build-isolation", "index-strategy",
	"prerelease-mode", "skip-wheel-filename-check", "dependency-overrides",
}

var (
	indexStrategies = []string{"first-index", "unsafe-first-match", "unsafe-best-match"}
	prereleaseModes = []string{"disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"}
)

func (c *checker) pypiOptions(t *table) PyPIOptions {
	var o PyPIOptions
	for _, key := range t.entries {
		where := "pypi-options." + key.name
		switch key.name {
		case "index-url":
			o.IndexURL, _ = c.wantString(key, where, `index-url = "https://..."`)
			c.address(key, where, "http", "https", "file")
		case "extra-index-urls":
			for _, item := range c.wantStrings(key, where, `extra-index-urls = ["https://..."]`) {
				c.addressValue(item, where, "http", "https", "file")
				o.ExtraIndexURLs = append(o.ExtraIndexURLs, item.text)
			}
		case "find-links":
			o.FindLinks = c.findLinks(key)
		case "no-build":
			o.NoBuild = c.packageSet(key, where)
		case "no-binary":
			o.NoBinary = c.packageSet(key, where)
		case "no-build-isolation":
			o.NoBuildIsolation = c.packageSet(key, where)
		case "index-strategy":
			o.IndexStrategy = c.oneOf(key, where, indexStrategies)
		case "prerelease-mode":
			o.PrereleaseMode = c.oneOf(key, where, prereleaseModes)
		case "skip-wheel-filename-check":
			o.SkipWheelFilenameCheck = c.wantBoolean(key, where)
		case "dependency-overrides":
			if inner := c.wantTable(key, "["+where+"]", `name = "==1.2" below [`+where+"]"); inner != nil {
				o.DependencyOverrides = c.pypiTable(inner, "pypi-options", "dependency-overrides")
			}
		default:
			c.unknownKey(key, "[pypi-options]", pypiOptionKeys, Error, "pixi refuses it")
		}
	}
	return o
}

func (c *checker) findLinks(e *entry) []FindLink {
	const example = `find-links = [{ path = "./wheels" }, { url = "https://..." }]`
	if e.value.kind != kindArray {
		c.problem(problem{at: e.value.span, severity: Error, code: CodeType, message: "find-links is " + describe(e.value) + ", not a list", fix: "write " + example})
		return nil
	}
	var links []FindLink
	for _, item := range e.value.items {
		if item.kind != kindTable || len(item.table.entries) != 1 {
			c.problem(problem{at: item.span, severity: Error, code: CodeType, message: "an entry of find-links is not a table with path or url", fix: "write " + example})
			continue
		}
		key := item.table.entries[0]
		switch key.name {
		case "path":
			text, _ := c.wantString(key, "path", `path = "./wheels"`)
			links = append(links, FindLink{Path: text})
		case "url":
			text, _ := c.wantString(key, "url", `url = "https://..."`)
			c.address(key, "url", "http", "https", "file")
			links = append(links, FindLink{URL: text})
		default:
			c.unknownKey(key, "an entry of find-links", []string{"path", "url"}, Error, "pixi refuses it")
		}
	}
	return links
}

// packageSet reads what is true, false or a list of packages.
func (c *checker) packageSet(e *entry, where string) PackageSet {
	if e.value.kind == kindBoolean {
		return PackageSet{All: e.value.text == "true"}
	}
	if e.value.kind != kindArray {
		c.problem(problem{at: e.value.span, severity: Error, code: CodeType, message: fmt.Sprintf("%s is %s, not true, false or a list of packages", where, describe(e.value)),
			fix: fmt.Sprintf("write %s = true or %s = [\"package\"]", e.name, e.name)})
		return PackageSet{}
	}
	var set PackageSet
	for _, item := range c.wantStrings(e, where, e.name+` = ["package"]`) {
		if !packageName.MatchString(item.text) {
			c.problem(problem{at: item.span, severity: Error, code: CodePackageName, message: quote(item.text) + " is no package name",
				why: "names consist of letters, digits, dashes, underscores and dots", fix: `write the bare name`})
			continue
		}
		set.Packages = append(set.Packages, item.text)
	}
	return set
}

// oneOf reads a string out of a fixed vocabulary.
func (c *checker) oneOf(e *entry, where string, values []string) string {
	text, ok := c.wantString(e, where, e.name+" = "+quote(values[0]))
	if !ok || slices.Contains(values, text) {
		return text
	}
	p := problem{at: c.inText(e.value, span{0, len(text)}), severity: Error, code: CodeValue, message: fmt.Sprintf("%s is %s", where, quote(text)),
		fix: "write one of " + strings.Join(values, ", ")}
	if near := nearest(text, values); near != "" {
		p.fix = "write " + quote(near)
		p.edits = []Edit{{e.value.span.start, e.value.span.end, quote(near)}}
	}
	c.problem(p)
	return ""
}

func (c *checker) excludeNewer(e *entry) string {
	if e.value.kind == kindString || e.value.kind == kindTime {
		return e.value.text
	}
	c.problem(problem{at: e.value.span, severity: Error, code: CodeType, message: fmt.Sprintf("%s is %s, not a date", e.name, describe(e.value)),
		fix: fmt.Sprintf("write %s = \"2026-01-31\"", e.name)})
	return ""
}

// pypiExcludeNewer is a date, or a table of dates by package.
func (c *checker) pypiExcludeNewer(e *entry) {
	if e.value.kind != kindTable {
		c.m.PyPIExcludeNewer = c.excludeNewer(e)
	}
}
