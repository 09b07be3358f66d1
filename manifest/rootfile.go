package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// rootKeys are the only keys that a comfy-env-root.toml may have.
var rootKeys = []string{"node_packs", "types"}

// nodePackKeys are the keys of a pack's table in [node_packs].
var nodePackKeys = []string{"github", "repo", "tag", "branch", "commit", "registry", "version"}

// typeModes are how a type may cross between processes.
var typeModes = []string{"builtin", "custom"}

// retiredRoot are the sections that comfy-env-root.toml had in earlier formats.
var retiredRoot = map[string]past{
	"settings": {"[settings] is no longer read", "settings are the machine's, not the pack's",
		"remove the section; nodes run in the host when their folder has no " + EnvironmentFile},
	"serializers": {"[serializers] is no longer read", "types are declared, their functions stand in the pack's serialization.py",
		`write TYPE = "custom" below [types]`},
	"apt": {"system packages are no longer installed", "they need root and exist on one kind of Linux only",
		"take the libraries from conda, in [target.linux-64.dependencies] of nodes/" + EnvironmentFile},
	"brew": {"system packages are no longer installed", "they exist on macOS only",
		"take the programs from conda, in [target.osx-arm64.dependencies] of nodes/" + EnvironmentFile},
}

// rootFile reads a comfy-env-root.toml.
func (c *checker) rootFile() {
	for _, e := range c.doc.root.entries {
		c.rootSection(e.name, e)
	}
}

// rootSection reads one section of a root file as the section of that name.
func (c *checker) rootSection(name string, e *entry) {
	switch name {
	case "node_packs":
		if t := c.wantTable(e, "[node_packs]", `Pack = "owner/name" below [node_packs]`); t != nil {
			c.nodePacks(t)
		}
	case "types":
		if t := c.wantTable(e, "[types]", `TYPE = "custom" below [types]`); t != nil {
			c.types(t)
		}
	case "$schema":
	default:
		c.foreignRootSection(e)
	}
}

func (c *checker) foreignRootSection(e *entry) {
	p := problem{at: e.key, severity: Error, code: CodeRetired, why: "this file is about the pack as a whole: [node_packs] and [types], nothing else"}
	old, isOld := retiredRoot[e.name]
	as := "" // what the section would be under its right name
	switch {
	case e.name == "node_reqs":
		p.message, p.why, p.fix = "[node_reqs] has another name", "the packs in it are not installed", "write [node_packs]"
		if p.edits = e.renameUnlessTaken("node_packs"); p.edits != nil {
			as = "node_packs"
		}
	case isOld:
		p.message, p.why, p.fix = old.message, old.why, old.fix
		if packages := condaPackages(e.value); packages != "" {
			p.fix += ": " + packages
		}
	case slices.Contains(environmentKeys, e.name) || retired[e.name].message != "":
		p.code = CodeMisplaced
		p.message = fmt.Sprintf("%s does not belong here", bracketed(e))
		p.fix = fmt.Sprintf("move it to nodes/%s, which describes the environment of the nodes beside it", EnvironmentFile)
	default:
		p.code, p.message = CodeUnknownTable, fmt.Sprintf("there is no section %s", bracketed(e))
		p.fix = "known are [node_packs] and [types]"
		if near := nearest(e.name, rootKeys); near != "" && c.doc.root.get(near) == nil {
			p.fix = "write [" + near + "]"
			p.edits = e.rename(near)
			as = near
		}
	}
	c.problem(p)
	if as != "" { // what is in it has its own mistakes
		c.rootSection(as, e)
	}
}

var (
	githubName = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)
	commitHash = regexp.MustCompile(`^[0-9a-fA-F]{7,64}$`)
)

const nodePackExample = `Pack = "owner/name"`

func (c *checker) nodePacks(t *table) {
	for _, e := range t.entries {
		pack := NodePack{Name: e.name, At: c.position(e.key)}
		switch e.value.kind {
		case kindString:
			pack.GitHub = e.value.text
			c.nodePackSource(e.value)
		case kindTable:
			c.nodePackTable(e, &pack)
		default:
			c.problem(problem{at: e.value.span, severity: Error, code: CodeType,
				message: fmt.Sprintf("%s is %s, not where the pack comes from", quoteName(e.name), describe(e.value)), fix: "write " + nodePackExample})
			continue
		}
		c.m.NodePacks = append(c.m.NodePacks, pack)
	}
}

func (c *checker) nodePackTable(e *entry, pack *NodePack) {
	revisions := []string{}
	for _, key := range e.value.table.entries {
		where := quoteName(e.name) + "." + key.name
		into := map[string]*string{"github": &pack.GitHub, "repo": &pack.GitHub, "tag": &pack.Tag, "branch": &pack.Branch,
			"commit": &pack.Commit, "registry": &pack.Registry, "version": &pack.Version}[key.name]
		if into == nil {
			c.unknownKey(key, quoteName(e.name), nodePackKeys, Warning, "it has no effect")
			continue
		}
		text, ok := c.wantString(key, where, key.name+` = "..."`)
		if !ok {
			continue
		}
		*into = text
		switch key.name {
		case "github", "repo":
			c.nodePackSource(key.value)
		case "tag", "branch", "commit":
			if revisions = append(revisions, key.name); len(revisions) > 1 {
				c.problem(problem{at: key.key, severity: Error, code: CodeConflict, message: strings.Join(revisions, " and ") + " exclude each other",
					why: "one revision is taken", fix: "keep one of them"})
			}
			if key.name == "commit" && !commitHash.MatchString(text) {
				c.problem(problem{at: key.value.span, severity: Error, code: CodeValue, message: quote(text) + " is no commit",
					fix: "write its hash, or use tag or branch"})
			}
		}
	}
	if pack.GitHub == "" && pack.Registry == "" {
		c.problem(problem{at: e.key, severity: Error, code: CodeNodePackSource, message: quoteName(e.name) + " does not say where the pack comes from",
			why: "it can not be installed", fix: `add github = "owner/name" or registry = "name"`})
	}
}

// nodePackSource checks an owner/name or an address.
func (c *checker) nodePackSource(v *value) {
	if githubName.MatchString(v.text) {
		return
	}
	if strings.Contains(v.text, "://") {
		c.addressValue(v, "the pack's address", "https", "http", "ssh", "git")
		return
	}
	c.problem(problem{at: v.span, severity: Error, code: CodeNodePackSource, message: quote(v.text) + " is no place of a pack",
		why: "packs come from a GitHub repository or another git address", fix: "write " + nodePackExample})
}

func (c *checker) types(t *table) {
	c.m.Types = make(map[string]string, len(t.entries))
	for _, e := range t.entries {
		if e.value.kind != kindString {
			c.problem(problem{at: e.value.span, severity: Error, code: CodeType,
				message: fmt.Sprintf("%s is %s, not builtin or custom", quoteName(e.name), describe(e.value)), fix: fmt.Sprintf(`write %s = "custom"`, quoteName(e.name))})
			continue
		}
		if mode := c.oneOf(e, quoteName(e.name), typeModes); mode != "" {
			c.m.Types[e.name] = mode
		}
	}
}
