package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// matchspecKeys are the keys of a package's table in [dependencies].
var matchspecKeys = []string{
	"version", "build", "build-number", "channel", "subdir", "file-name", "extras", "flags", "license", "license-family",
	"md5", "sha256", "track-features", "url", "path", "git", "branch", "tag", "rev", "subdirectory", "lfs", "when", "package",
}

const condaExample = `name = "*" or name = { version = ">=1.2", channel = "conda-forge" }`

// condaTable reads a [dependencies] table or one of its kin. path are the names that lead to it.
func (c *checker) condaTable(t *table, path ...string) []CondaDependency {
	dependencies := make([]CondaDependency, 0, len(t.entries))
	seen := make(map[string]*entry, len(t.entries))
	for _, e := range t.entries {
		if !condaName.MatchString(e.name) {
			c.oddCondaKey(e)
			continue
		}
		if c.fromHost(e, path) {
			continue
		}
		folded := strings.ToLower(e.name)
		if first, ok := seen[folded]; ok {
			c.duplicatePackage(e, first)
			continue
		}
		seen[folded] = e
		if dependency, ok := c.condaDependency(e); ok {
			dependencies = append(dependencies, dependency)
		}
	}
	return dependencies
}

func (c *checker) oddCondaKey(e *entry) {
	p := problem{at: e.key, severity: Error, code: CodePackageName, message: fmt.Sprintf("%s is no conda package name", quoteName(e.name)),
		why: "names consist of letters, digits, dashes, underscores and dots", fix: "write " + condaExample}
	if channel, name, ok := strings.Cut(e.name, "::"); ok && e.value.kind == kindString && condaName.MatchString(name) {
		replacement := fmt.Sprintf("%s = { version = %s, channel = %s }", quoteName(name), quote(e.value.text), quote(channel))
		p.message, p.why, p.fix = "the channel is part of the key", "", "write "+replacement
		p.edits = []Edit{{e.key.start, e.value.span.end, replacement}}
	} else if end := strings.IndexAny(e.name, "<>=!~ "); end > 0 && condaName.MatchString(e.name[:end]) {
		p.message = "the version is part of the key"
		p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name[:end]), quote(strings.TrimSpace(e.name[end:])))
	} else if bracket := strings.IndexByte(e.name, '['); bracket > 0 {
		p.message = "extras are a matter of Python packages"
		p.fix = fmt.Sprintf("move it to [pypi-dependencies] as %s = { version = \"*\", extras = [...] }", quoteName(e.name[:bracket]))
	}
	c.problem(p)
}

// condaDependency reads one entry.
func (c *checker) condaDependency(e *entry) (CondaDependency, bool) {
	d := CondaDependency{Name: e.name, Version: "*", At: c.position(e.key)}
	switch {
	case e.value.kind == kindString:
		if fault := checkCondaVersion(e.value.text); fault != nil {
			c.wrongText(e.value, CodeCondaVersion, quoteName(e.name), fault)
			return d, false
		}
		d.Version = strings.TrimSpace(e.value.text)
		return d, true
	case e.value.kind != kindTable:
		p := problem{at: e.value.span, severity: Error, code: CodeType,
			message: fmt.Sprintf("%s is %s, not a version", quoteName(e.name), describe(e.value)), fix: "write " + condaExample}
		if (e.value.kind == kindFloat || e.value.kind == kindInteger) && checkCondaVersion(e.value.text+".*") == nil {
			p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name), quote(e.value.text+".*"))
			p.edits = []Edit{{e.value.span.start, e.value.span.end, quote(e.value.text + ".*")}}
		}
		c.problem(p)
		return d, false
	}
	before := len(c.problems)
	for _, key := range e.value.table.entries {
		where := quoteName(e.name) + "." + key.name
		switch key.name {
		case "version":
			if text, ok := c.wantString(key, where, `version = ">=1.2"`); ok {
				if fault := checkCondaVersion(text); fault != nil {
					c.wrongText(key.value, CodeCondaVersion, quoteName(e.name), fault)
				}
				d.Version = strings.TrimSpace(text)
			}
		case "build":
			d.Build, _ = c.wantString(key, where, `build = "*cuda*"`)
		case "channel":
			d.Channel, _ = c.wantString(key, where, `channel = "conda-forge"`)
		case "index":
			c.problem(problem{at: key.key, severity: Error, code: CodeUnknownKey, message: "index is a key of Python packages",
				why: "this section takes packages from conda channels", fix: fmt.Sprintf("write channel, or move %s to [pypi-dependencies]", quoteName(e.name))})
		default:
			if !slices.Contains(matchspecKeys, key.name) {
				c.unknownKey(key, quoteName(e.name), matchspecKeys, Error, "pixi refuses it")
				continue
			}
			if d.Other == nil {
				d.Other = map[string]any{}
			}
			d.Other[key.name] = plain(key.value)
		}
	}
	return d, !slices.ContainsFunc(c.problems[before:], func(p problem) bool { return p.severity == Error })
}
