package manifest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// requirementKeys are the keys of a package's table in [pypi-dependencies].
var requirementKeys = []string{
	"version", "extras", "env-markers", "index", "path", "editable", "git", "branch", "tag", "rev", "lfs", "url", "subdirectory",
}

const pypiExample = `name = "*" or name = { version = ">=1.2", extras = ["extra"] }`

// pypiTable reads a [pypi-dependencies] table. path are the names that lead to it.
func (c *checker) pypiTable(t *table, path ...string) []Requirement {
	requirements := make([]Requirement, 0, len(t.entries))
	seen := make(map[string]*entry, len(t.entries))
	for _, e := range t.entries {
		if !packageName.MatchString(e.name) {
			c.oddPackageKey(e)
			continue
		}
		if c.fromHost(e, path) {
			continue
		}
		normalized := NormalizeName(e.name)
		if first, ok := seen[normalized]; ok {
			c.duplicatePackage(e, first)
			continue
		}
		seen[normalized] = e
		requirement, ok := c.requirement(e)
		if !ok {
			continue
		}
		requirements = append(requirements, requirement)
		c.requirementPlatform(e, normalized, requirement, path)
	}
	return requirements
}

// duplicatePackage reports one package under two spellings.
func (c *checker) duplicatePackage(e, first *entry) {
	p := problem{at: e.key, severity: Error, code: CodeDuplicate,
		message: fmt.Sprintf("%s and %s are the same package", first.name, e.name),
		why:     "case, dashes, underscores and dots make no difference in package names, so it is unclear which line counts",
		fix:     "keep one of the two lines", related: []span{first.key}}
	if scalar(e.value) && scalar(first.value) && e.value.text == first.value.text {
		p.severity = Warning
		p.why = "case, dashes, underscores and dots make no difference in package names"
		p.fix = "remove this line, it says the same as the first"
		p.edits = c.removal(e)
	}
	c.problem(p)
}

// fromHost takes out an entry that the host decides, and says so.
func (c *checker) fromHost(e *entry, path []string) bool {
	name := NormalizeName(e.name)
	conda := path[len(path)-1] != "pypi-dependencies" && path[len(path)-1] != "dependency-overrides"
	p := problem{at: e.key, severity: Note, code: CodeTorchHost,
		message: fmt.Sprintf("%s is left out here: every environment gets the host's", e.name),
		why:     "tensors cross between processes in torch's own format, so both sides need the same torch",
		fix:     "nothing needs to be done; the line can be removed"}
	reason := "the torch family is the host's"
	switch {
	case slices.Contains(TorchFamily, name), conda && slices.Contains(condaTorch, name):
	case slices.Contains(HostPins, name):
		reason = "the version is the host's"
		p.code = CodeHostPin
		p.message = fmt.Sprintf("%s is replaced by the host's own version", e.name)
		p.why = "worker and host page one card under one policy, so they need the same version"
		if version := declaredVersion(e.value); exactVersion(version) != "" {
			p.severity = Warning
			p.message = fmt.Sprintf("%s %s is replaced by the host's own version", e.name, version)
			p.fix = "remove the line"
			p.edits = c.removal(e)
		}
	default:
		return false
	}
	c.problem(p)
	c.m.Stripped = append(c.m.Stripped, Stripped{Name: e.name, Table: strings.Join(path, "."), Reason: reason, At: c.position(e.key), path: path})
	return true
}

// declaredVersion is the version of an entry, as a string or in a table.
func declaredVersion(v *value) string {
	if v.kind == kindTable {
		if e := v.table.get("version"); e != nil {
			v = e.value
		}
	}
	if v.kind == kindString {
		return v.text
	}
	return ""
}

// oddPackageKey reports a key that is no package name.
func (c *checker) oddPackageKey(e *entry) {
	p := problem{at: e.key, severity: Error, code: CodePackageName, message: fmt.Sprintf("%s is no package name", quoteName(e.name)),
		why: "names consist of letters, digits, dashes, underscores and dots", fix: "write " + pypiExample}
	if bracket := strings.IndexByte(e.name, '['); bracket > 0 && strings.HasSuffix(e.name, "]") && packageName.MatchString(e.name[:bracket]) && e.value.kind == kindString {
		extras := strings.Split(e.name[bracket+1:len(e.name)-1], ",")
		for i := range extras {
			extras[i] = quote(strings.TrimSpace(extras[i]))
		}
		replacement := fmt.Sprintf("%s = { version = %s, extras = [%s] }", quoteName(e.name[:bracket]), quote(e.value.text), strings.Join(extras, ", "))
		p.message, p.why, p.fix = "extras are not part of the name", "", "write "+replacement
		p.edits = []Edit{{e.key.start, e.value.span.end, replacement}}
	} else if end := strings.IndexAny(e.name, "<>=!~ ;@"); end > 0 && packageName.MatchString(e.name[:end]) {
		p.message = "the version is part of the key"
		p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name[:end]), quote(strings.TrimSpace(e.name[end:])))
	}
	c.problem(p)
}

// requirement reads one entry.
func (c *checker) requirement(e *entry) (Requirement, bool) {
	r := Requirement{Name: e.name, At: c.position(e.key)}
	switch {
	case e.value.kind == kindString:
		var ok bool
		r.Version, ok = c.pypiVersion(e, e.value)
		return r, ok
	case e.value.kind != kindTable:
		p := problem{at: e.value.span, severity: Error, code: CodeType,
			message: fmt.Sprintf("%s is %s, not a version", quoteName(e.name), describe(e.value)), fix: "write " + pypiExample}
		if (e.value.kind == kindFloat || e.value.kind == kindInteger) && checkSpecifiers("=="+e.value.text) == nil {
			p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name), quote("=="+e.value.text))
			p.edits = []Edit{{e.value.span.start, e.value.span.end, quote("==" + e.value.text)}}
		}
		c.problem(p)
		return r, false
	}
	return c.requirementTable(e, r)
}

// pypiVersion reads a version and returns "" for any.
func (c *checker) pypiVersion(e *entry, v *value) (string, bool) {
	if strings.Contains(v.text, "://") || strings.HasPrefix(v.text, "git+") {
		c.problem(problem{at: v.span, severity: Error, code: CodePyPIVersion, message: quoteName(e.name) + ": an address is no version",
			why: "addresses have keys of their own", fix: fmt.Sprintf("write %s = { %s = %s }", quoteName(e.name), addressKey(v.text), quote(strings.TrimPrefix(v.text, "git+")))})
		return "", false
	}
	if fault := checkSpecifiers(v.text); fault != nil {
		c.wrongText(v, CodePyPIVersion, quoteName(e.name), fault)
		return "", false
	}
	version := strings.TrimSpace(v.text)
	if version == "*" {
		version = ""
	}
	return version, true
}

func addressKey(address string) string {
	if strings.HasPrefix(address, "git+") || strings.HasSuffix(address, ".git") {
		return "git"
	}
	return "url"
}

// requirementTable reads an entry that is a table.
func (c *checker) requirementTable(e *entry, r Requirement) (Requirement, bool) {
	before := len(c.problems)
	sources := map[string]*entry{}
	var editable *entry
	unknown := false
	for _, key := range e.value.table.entries {
		where := quoteName(e.name) + "." + key.name
		text := func(into *string, example string) {
			*into, _ = c.wantString(key, where, key.name+" = "+example)
		}
		switch key.name {
		case "version":
			if _, ok := c.wantString(key, where, `version = ">=1.2"`); ok {
				r.Version, _ = c.pypiVersion(e, key.value)
			}
			sources["version"] = key
		case "extras":
			r.Extras = c.extras(key, where)
		case "env-markers":
			if text, ok := c.wantString(key, where, `env-markers = "sys_platform == 'linux'"`); ok {
				if fault := checkMarker(text); fault != nil {
					c.wrongText(key.value, CodeMarker, where, fault)
				}
				r.Marker = text
			}
		case "index":
			text(&r.Index, `"https://..."`)
			c.address(key, where, "http", "https", "file")
		case "url":
			text(&r.URL, `"https://..."`)
			c.address(key, where, "http", "https", "file")
			sources["url"] = key
		case "git":
			text(&r.Git, `"https://..."`)
			c.gitAddress(key, where)
			sources["git"] = key
		case "path":
			text(&r.Path, `"./folder"`)
			sources["path"] = key
		case "branch":
			text(&r.Branch, `"main"`)
		case "tag":
			text(&r.Tag, `"v1.0"`)
		case "rev":
			text(&r.Rev, `"0123abc"`)
		case "subdirectory":
			text(&r.Subdirectory, `"folder"`)
		case "editable":
			r.Editable = c.wantBoolean(key, where)
			editable = key
		case "lfs":
			r.LFS = c.wantBoolean(key, where)
		case "markers", "marker", "environment":
			c.problem(problem{at: key.key, severity: Error, code: CodeUnknownKey, message: fmt.Sprintf("%s has no key %s", quoteName(e.name), key.name),
				fix: "write env-markers", edits: key.renameUnlessTaken("env-markers")})
		case "channel", "build":
			c.problem(problem{at: key.key, severity: Error, code: CodeUnknownKey, message: fmt.Sprintf("%s is a key of conda packages", key.name),
				why: "this section takes Python packages from a package index", fix: fmt.Sprintf("move %s to [dependencies], or remove the key", quoteName(e.name))})
		default:
			c.unknownKey(key, quoteName(e.name), requirementKeys, Error, "pixi refuses it")
			unknown = true
		}
	}
	if len(sources) == 0 && !unknown {
		c.noSource(e)
	}
	c.requirementConflicts(e, sources, editable)
	return r, !slices.ContainsFunc(c.problems[before:], func(p problem) bool { return p.severity == Error })
}

// noSource reports an entry that says neither a version nor a place.
func (c *checker) noSource(e *entry) {
	p := problem{at: e.key, severity: Error, code: CodeConflict, message: quoteName(e.name) + " says no version and no place to come from",
		why: "it is unclear what to install", fix: `add version = "*" for any version`}
	if t := e.value.table; t.origin == originInline && len(t.entries) > 0 {
		at := t.entries[0].whole.start
		p.edits = []Edit{{at, at, `version = "*", `}}
	}
	c.problem(p)
}

// requirementConflicts reports keys that exclude each other.
func (c *checker) requirementConflicts(e *entry, sources map[string]*entry, editable *entry) {
	t := e.value.table
	if len(sources) > 1 {
		var names []string
		var last *entry
		for _, name := range []string{"version", "url", "git", "path"} {
			if sources[name] != nil {
				names = append(names, name)
				last = sources[name]
			}
		}
		c.problem(problem{at: last.key, severity: Error, code: CodeConflict,
			message: fmt.Sprintf("%s and %s exclude each other", strings.Join(names[:len(names)-1], ", "), names[len(names)-1]),
			why:     "a package comes from one place", fix: "keep one of them"})
	}
	var refs []string
	for _, name := range []string{"branch", "tag", "rev"} {
		key := t.get(name)
		if key == nil {
			continue
		}
		refs = append(refs, name)
		if sources["git"] == nil {
			c.problem(problem{at: key.key, severity: Error, code: CodeConflict, message: name + " without git", why: "it names a place in a git repository",
				fix: `add git = "https://...", or remove the key`})
		} else if len(refs) > 1 {
			c.problem(problem{at: key.key, severity: Error, code: CodeConflict, message: strings.Join(refs, " and ") + " exclude each other",
				why: "one commit is taken", fix: "keep one of them"})
		}
	}
	if index := t.get("index"); index != nil && sources["version"] == nil {
		c.problem(problem{at: index.key, severity: Error, code: CodeConflict, message: "index without version", why: "only versions are looked up in an index",
			fix: `add version = "*", or remove the key`})
	}
	if editable != nil && sources["path"] == nil {
		c.problem(problem{at: editable.key, severity: Error, code: CodeConflict, message: "editable without path", why: "only a local folder can be edited in place",
			fix: `add path = "./folder", or remove the key`})
	}
}

// extras reads a list of extras.
func (c *checker) extras(e *entry, where string) []string {
	var extras []string
	for _, item := range c.wantStrings(e, where, `extras = ["extra"]`) {
		if !packageName.MatchString(item.text) {
			c.problem(problem{at: item.span, severity: Error, code: CodeExtras, message: fmt.Sprintf("%s is no name of an extra", quote(item.text)),
				why: "names consist of letters, digits, dashes, underscores and dots", fix: `write one name a string: extras = ["one", "two"]`})
			continue
		}
		extras = append(extras, item.text)
	}
	return extras
}

// address checks that a string is an absolute URL of one of the schemes.
func (c *checker) address(e *entry, where string, schemes ...string) {
	if e.value.kind == kindString {
		c.addressValue(e.value, where, schemes...)
	}
}

func (c *checker) addressValue(v *value, where string, schemes ...string) {
	fix := "write an address that starts with " + strings.Join(schemes[:len(schemes)-1], "://, ") + ":// or " + schemes[len(schemes)-1] + "://"
	parsed, err := url.Parse(v.text)
	switch {
	case err != nil:
		c.problem(problem{at: v.span, severity: Error, code: CodeURL, message: where + ": this is no address: " + urlReason(err), fix: fix})
	case !slices.Contains(schemes, parsed.Scheme):
		c.problem(problem{at: v.span, severity: Error, code: CodeURL, message: where + ": this is no address of the kind that is needed here", fix: fix})
	case parsed.Scheme != "file" && parsed.Host == "":
		c.problem(problem{at: v.span, severity: Error, code: CodeURL, message: where + ": the address names no host", fix: "write one such as https://host/path"})
	}
}

// urlReason is what is wrong with an address, without the address.
func urlReason(err error) string {
	if inner, ok := err.(*url.Error); ok {
		return inner.Err.Error()
	}
	return err.Error()
}

// gitAddress checks a repository's address; git's own short form is no URL.
func (c *checker) gitAddress(e *entry, where string) {
	v := e.value
	if v.kind != kindString {
		return
	}
	if rest, ok := strings.CutPrefix(v.text, "git+"); ok {
		c.problem(problem{at: v.span, severity: Error, code: CodeURL, message: where + ": git+ is not part of the address here",
			why: "the key says already that it is a repository", fix: "write " + quote(rest), edits: []Edit{{v.span.start, v.span.end, quote(rest)}}})
		return
	}
	if user, path, ok := strings.Cut(v.text, ":"); ok && !strings.Contains(v.text, "://") && strings.Contains(user, "@") {
		long := "ssh://" + user + "/" + strings.TrimPrefix(path, "/")
		c.problem(problem{at: v.span, severity: Error, code: CodeURL, message: where + ": this is git's short form, not a URL",
			fix: "write " + quote(long), edits: []Edit{{v.span.start, v.span.end, quote(long)}}})
		return
	}
	c.addressValue(v, where, "https", "http", "ssh", "git", "file")
}

// requirementPlatform warns of what can not be installed on the platform that is checked for.
func (c *checker) requirementPlatform(e *entry, normalized string, r Requirement, path []string) {
	if len(path) > 1 && path[0] == "target" && !MatchesPlatform(path[1], c.platform) || r.Marker != "" {
		return
	}
	fits := func(prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(c.platform, prefix) })
	}
	if only, ok := platformOnly[normalized]; ok && !fits(only.platforms) && r.URL == "" && r.Git == "" && r.Path == "" {
		fix := fmt.Sprintf("move it to [target.%s.pypi-dependencies]", strings.TrimSuffix(only.platforms[0], "-"))
		if only.instead != "" {
			fix += "; " + only.instead
		}
		c.problem(problem{at: e.key, severity: Error, code: CodePlatformCannot,
			message: fmt.Sprintf("%s does not exist for %s", e.name, c.platform), why: "the environment can not be built on this machine", fix: fix})
	}
	if tag := wheelPlatform(r.URL); tag != "" && !fits([]string{tag}) {
		c.problem(problem{at: e.key, severity: Error, code: CodePlatformCannot,
			message: fmt.Sprintf("the wheel of %s is for another platform than %s", e.name, c.platform), why: "the environment can not be built on this machine",
			fix: fmt.Sprintf("move it to [target.%s.pypi-dependencies]", strings.TrimSuffix(tag, "-"))})
	}
}

// wheelPlatform is the platform prefix, in pixi's spelling, of a wheel's file name; "" when it fits all or is
// unknown.
func wheelPlatform(address string) string {
	name, _, _ := strings.Cut(address, "#")
	name, ok := strings.CutSuffix(name[strings.LastIndexByte(name, '/')+1:], ".whl")
	if !ok {
		return ""
	}
	tag := name[strings.LastIndexByte(name, '-')+1:]
	switch {
	case strings.HasPrefix(tag, "win"):
		return "win-"
	case strings.HasPrefix(tag, "macosx"):
		return "osx-"
	case strings.HasPrefix(tag, "manylinux"), strings.HasPrefix(tag, "musllinux"), strings.HasPrefix(tag, "linux"):
		return "linux-"
	}
	return ""
}
