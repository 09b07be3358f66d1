package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// consumedTables are the keys of an environment file that are this program's; all others are pixi's.
var consumedTables = []string{"python", "cuda", "env_vars", "options"}

// pixiTables are the top-level keys that pixi 0.75 accepts, without those it must generate itself.
var pixiTables = []string{
	"workspace", "package", "target", "dependencies", "host-dependencies", "build-dependencies", "constraints",
	"exclude-newer", "pypi-dependencies", "pypi-exclude-newer", "dev", "activation", "tasks", "pypi-options",
	"system-requirements",
}

// environmentKeys are all keys that an environment file may have.
var environmentKeys = slices.Concat(consumedTables, pixiTables)

// environmentFile reads a comfy-env.toml.
func (c *checker) environmentFile() {
	for _, e := range c.doc.root.entries {
		c.environmentSection(e.name, e)
	}
	c.pythonFromDependencies()
	if cuda := c.doc.root.get("cuda"); cuda != nil && len(c.m.CUDAPackages) > 0 && strings.HasPrefix(c.platform, "osx") {
		c.problem(problem{at: cuda.key, severity: Note, code: CodePlatformCannot,
			message: "there is no CUDA on macOS", why: "the packages of this section are skipped on this machine",
			fix: "make sure that the nodes work without them, or say so in the pack's README"})
	}
}

// environmentSection reads one section of an environment file as the section of that name.
func (c *checker) environmentSection(name string, e *entry) {
	switch {
	case name == "python":
		c.python(e)
	case name == "cuda":
		c.cuda(e)
	case name == "env_vars":
		c.envVars(e)
	case name == "options":
		if t := c.wantTable(e, "[options]", "[options] with its keys below it"); t != nil {
			c.m.Options = c.options(t)
		}
	case slices.Contains(pixiTables, name):
		c.pixiSection(name, e)
	default:
		c.foreignSection(e)
	}
}

// pixiSection reads a section that is pixi's and keeps it for the pixi backend.
func (c *checker) pixiSection(name string, e *entry) {
	switch name {
	case "dependencies", "host-dependencies", "build-dependencies", "constraints":
		if t := c.wantTable(e, "["+name+"]", `name = "version" below [`+name+"]"); t != nil {
			list := c.condaTable(t, name)
			switch name {
			case "dependencies":
				c.m.Dependencies = list
			case "host-dependencies":
				c.m.HostDependencies = list
			case "build-dependencies":
				c.m.BuildDependencies = list
			case "constraints":
				c.m.Constraints = list
			}
		}
	case "pypi-dependencies":
		if t := c.wantTable(e, "[pypi-dependencies]", `name = "version" below [pypi-dependencies]`); t != nil {
			c.m.PyPIDependencies = c.pypiTable(t, name)
		}
	case "pypi-options":
		if t := c.wantTable(e, "[pypi-options]", `index-url = "https://..." below [pypi-options]`); t != nil {
			c.m.PyPIOptions = c.pypiOptions(t)
		}
	case "target":
		c.targets(e)
	case "activation":
		c.m.Activation = c.activation(e, "activation")
	case "system-requirements":
		c.m.SystemRequirements = c.systemRequirements(e, "system-requirements")
	case "workspace":
		c.workspace(e)
	case "exclude-newer":
		c.m.ExcludeNewer = c.excludeNewer(e)
	case "pypi-exclude-newer":
		c.pypiExcludeNewer(e)
	case "tasks":
		c.problem(problem{at: e.key, severity: Warning, code: CodeIgnored, message: "[tasks] has no effect here",
			why: "nothing runs pixi tasks in a worker's environment", fix: "keep tasks in a pixi.toml of your own"})
	case "package", "dev":
		c.wantTable(e, "["+name+"]", "a ["+name+"] section as pixi has it")
	}
	if stripped := c.withoutStripped(e); stripped != nil {
		c.m.PassThrough[e.name] = stripped
	}
}

// withoutStripped is a section as plain values without the entries that the host decides.
func (c *checker) withoutStripped(e *entry) any {
	if e.value.kind != kindTable {
		return plain(e.value)
	}
	whole := plainTable(e.value.table)
	for _, s := range c.m.Stripped {
		if s.path[0] != e.name {
			continue
		}
		inner := whole
		for _, part := range s.path[1:] {
			next, ok := inner[part].(map[string]any)
			if !ok {
				inner = nil
				break
			}
			inner = next
		}
		delete(inner, s.Name)
	}
	return whole
}

// pythonVersion is a version as this file has it: 3.11, or with a patch number.
var pythonVersion = regexp.MustCompile(`^([23])\.(\d{1,3})(\.\d{1,3})?$`)

// loosePython finds the version in the spellings that mean exactly one.
var loosePython = regexp.MustCompile(`^\s*(?:==?\s*)?(?:[pP]ython\s*|[cC][pP]|[pP][yY]|v)?(?:==?\s*)?3\.?(\d{1,2})((?:\.\d{1,3})?)(?:\.\*|\.x)?\s*$`)

const pythonExample = `python = "3.12"`

func (c *checker) python(e *entry) {
	c.m.PythonAt = c.position(e.key)
	v := e.value
	if v.kind == kindFloat || v.kind == kindInteger {
		p := problem{at: v.span, severity: Error, code: CodePythonQuotes,
			message: fmt.Sprintf("python is the number %s, not a version", number(v)),
			why:     "numbers lose their trailing zeros: 3.10 without quotes is 3.1"}
		written := strings.ReplaceAll(v.text, "_", "")
		if pythonVersion.MatchString(written) {
			p.fix = fmt.Sprintf("write python = %s", quote(written))
			p.edits = []Edit{{v.span.start, v.span.end, quote(written)}}
		} else {
			p.fix = "write " + pythonExample
		}
		c.problem(p)
		return
	}
	text, ok := c.wantString(e, "python", pythonExample)
	if !ok {
		return
	}
	at := c.inText(v, span{0, len(text)})
	match := pythonVersion.FindStringSubmatch(text)
	if match == nil {
		c.oddPython(v, at)
		return
	}
	if tooOld(match[1], match[2]) {
		c.problem(problem{at: at, severity: Error, code: CodePythonTooOld,
			message: fmt.Sprintf("Python %s is too old", text), why: "ComfyUI and the worker program need Python 3.10 or later",
			fix: `write python = "3.10" or a later version, or remove the line for the host's version`})
		return
	}
	c.m.Python = text
}

// number writes a number as it is understood, which is not always how it is written.
func number(v *value) string {
	if f, err := v.float(); err == nil && v.kind == kindFloat {
		return fmt.Sprint(f)
	}
	return v.text
}

func tooOld(major, minor string) bool {
	return major == "2" || len(minor) < 2
}

// wordyPython are the spellings that comfy-env takes for one version too.
var wordyPython = regexp.MustCompile(`^(?:==?\s*)?3\.\d{2}(?:\.\d{1,3})?(?:\.\*)?$`)

// oddPython reports a python that is no plain version. Where it can mean only one, that is the fix, and a mere
// comparison with one version counts as that version.
func (c *checker) oddPython(v *value, at span) {
	p := problem{at: at, severity: Error, code: CodePythonVersion,
		message: fmt.Sprintf("%q is no Python version", v.text),
		why:     "one interpreter is chosen for the environment, so it is a single version, not a range",
		fix:     "write " + pythonExample + ", or remove the line for the host's version"}
	if match := loosePython.FindStringSubmatch(v.text); match != nil && len(match[1]) == 2 {
		version := "3." + match[1] + match[2]
		p.fix = fmt.Sprintf("write python = %s", quote(version))
		p.edits = []Edit{{v.span.start, v.span.end, quote(version)}}
		if wordyPython.MatchString(v.text) {
			p.severity, p.message, p.why = Warning, fmt.Sprintf("%q is taken for Python %s", v.text, version), "a version needs no comparison here"
			c.m.Python = version
		}
	}
	c.problem(p)
}

// pythonFromDependencies handles python among the conda packages: a plain version counts as if it stood at
// the top.
func (c *checker) pythonFromDependencies() {
	for i, dependency := range c.m.Dependencies {
		if !strings.EqualFold(dependency.Name, "python") {
			continue
		}
		section := c.doc.root.get("dependencies")
		if section == nil { // misspelt, which has been said
			return
		}
		e := section.value.table.get(dependency.Name)
		match := loosePython.FindStringSubmatch(dependency.Version)
		p := problem{at: e.key, severity: Warning, code: CodePythonConda, message: "the Python version stands among the conda packages",
			why: "the interpreter is chosen by python at the top of the file", fix: "write " + pythonExample + " at the top and remove this line"}
		switch {
		case dependency.Version == "*":
			p.fix = "remove this line"
			p.edits = c.removal(e)
		case match == nil || len(match[1]) != 2:
			p.message = "a range of Python versions stands among the conda packages"
		default:
			version := "3." + match[1] + match[2]
			p.fix = fmt.Sprintf("write python = %s at the top and remove this line", quote(version))
			if c.m.Python == "" && c.doc.root.get("python") == nil {
				c.m.Python, c.m.PythonAt = version, c.position(e.key)
				if removal := c.removal(e); removal != nil {
					p.edits = append(removal, Edit{0, 0, "python = " + quote(version) + c.doc.newline()})
				}
			} else if c.m.Python != version {
				p.severity, p.code = Error, CodeConflict
				p.message = fmt.Sprintf("two Python versions: %s at the top, %s here", c.m.Python, version)
				p.fix = "remove this line, or correct the one at the top"
				p.related = []span{c.doc.root.get("python").key}
			} else {
				p.fix = "remove this line"
				p.edits = c.removal(e)
			}
			c.m.Dependencies = slices.Delete(c.m.Dependencies, i, i+1)
		}
		c.problem(p)
		return
	}
}
