package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const cudaExample = `packages = ["flash-attn"] below [cuda]`

// cuda reads [cuda].
func (c *checker) cuda(e *entry) {
	t := c.wantTable(e, "[cuda]", cudaExample)
	if t == nil {
		return
	}
	var old []*entry
	for _, key := range t.entries {
		if key.name == "packages" {
			c.cudaPackages(key)
			continue
		}
		if key.value.kind == kindString && nearest(key.name, []string{"packages"}) == "" && packageName.MatchString(key.name) {
			old = append(old, key)
			continue
		}
		c.unknownKey(key, "[cuda]", []string{"packages"}, Warning, "it has no effect: its packages are not installed")
	}
	c.oldCUDA(t, old)
}

// cudaPackages reads the list of packages.
func (c *checker) cudaPackages(e *entry) {
	seen := map[string]*value{}
	list := c.wantStrings(e, "cuda.packages", cudaExample)
	removal := func(i int) []Edit {
		if len(list) != len(e.value.items) { // a string instead of a list, or a list with other things in it
			return nil
		}
		return removeItem(c.doc, list, i)
	}
	c.m.CUDAPackages = make([]CUDAPackage, 0, len(list))
	for i, item := range list {
		name, version := splitRequirement(item.text)
		if !packageName.MatchString(name) {
			c.problem(problem{at: item.span, severity: Error, code: CodePackageName, message: quote(item.text) + " is no package name",
				why: "names consist of letters, digits, dashes, underscores and dots", fix: "write " + cudaExample})
			continue
		}
		if version != "" {
			if fault := checkSpecifiers(version); fault != nil {
				fault.at.start += len(item.text) - len(version)
				fault.at.end += len(item.text) - len(version)
				if fault.replace != "" {
					fault.replace = item.text[:len(item.text)-len(version)] + fault.replace
				}
				c.wrongText(item, CodePyPIVersion, name, fault)
				continue
			}
		}
		normalized := NormalizeName(name)
		if slices.Contains(TorchFamily, normalized) {
			c.problem(problem{at: item.span, severity: Warning, code: CodeTorchCUDA, message: fmt.Sprintf("%s is left out here: every environment gets the host's", name),
				why: "this section is for packages built against torch, not for torch itself; comfy-env refuses to build from it",
				fix: "remove it from the list", edits: removal(i)})
			c.m.Stripped = append(c.m.Stripped, Stripped{Name: name, Table: "cuda.packages", Reason: "the torch family is the host's",
				At: c.position(item.span), path: []string{"cuda", "packages"}})
			continue
		}
		if first, ok := seen[normalized]; ok {
			c.problem(problem{at: item.span, severity: Warning, code: CodeCUDADuplicate, message: name + " is in the list twice",
				fix: "remove one of the two", related: []span{first.span}, edits: removal(i)})
			continue
		}
		seen[normalized] = item
		c.m.CUDAPackages = append(c.m.CUDAPackages, CUDAPackage{Name: name, Version: version, At: c.position(item.span)})
	}
}

// splitRequirement separates a name from the version that follows it, as in "flash-attn==2.8.3".
func splitRequirement(text string) (name, version string) {
	if end := strings.IndexAny(text, "<>=!~ "); end > 0 {
		return text[:end], strings.TrimSpace(text[end:])
	}
	return text, ""
}

// removeItem takes one item out of a list on as few bytes as possible, its comma included. It is nil where a
// comment stands beside the comma.
func removeItem(doc *document, list []*value, i int) []Edit {
	item := list[i].span
	removed := item
	between := span{item.end, item.end}
	switch {
	case i < len(list)-1: // up to the next item
		removed.end = list[i+1].span.start
		between.end = removed.end
	case i > 0: // the last one: from the end of the one before
		removed.start = list[i-1].span.end
		between = span{removed.start, item.start}
	}
	if bytes.ContainsAny(doc.content[between.start:between.end], "#") {
		return nil
	}
	return []Edit{{removed.start, removed.end, ""}}
}

// oldCUDA reports packages in the spelling that was valid once: name = "version" below [cuda].
func (c *checker) oldCUDA(t *table, old []*entry) {
	if len(old) == 0 {
		return
	}
	var names []string
	for _, e := range old {
		name := quote(e.name)
		switch version := strings.TrimSpace(e.value.text); {
		case slices.Contains(TorchFamily, NormalizeName(e.name)):
			continue
		case checkSpecifiers(version) == nil && version != "*":
			name = quote(e.name + version)
		case checkSpecifiers("=="+version) == nil && version != "":
			name = quote(e.name + "==" + version)
		}
		names = append(names, name)
	}
	line := "packages = [" + strings.Join(names, ", ") + "]"
	for i, e := range old {
		p := problem{at: e.key, severity: Warning, code: CodeRetired, message: fmt.Sprintf("%s is not installed: [cuda] lists its packages in one key", e.name),
			why: "a key for each package is a spelling of the past", fix: "write " + line}
		if t.get("packages") == nil && t.origin == originHeader {
			if i == 0 {
				p.edits = []Edit{{e.key.start, e.value.span.end, line}}
			} else {
				p.edits = c.removal(e)
			}
		}
		c.problem(p)
	}
}
