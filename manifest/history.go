package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// past is a section or key of an earlier format and what has taken its place.
type past struct {
	message string
	why     string
	fix     string
}

// retired are the sections that comfy-env.toml had in earlier formats.
var retired = map[string]past{
	"apt": {"system packages are no longer installed", "they need root and exist on one kind of Linux only",
		"take the libraries from conda: [target.linux-64.dependencies]"},
	"brew": {"system packages are no longer installed", "they exist on macOS only",
		"take the programs from conda: [target.osx-arm64.dependencies]"},
	"system": {"system packages are no longer installed", "they need root and exist on one kind of Linux only",
		"take the libraries from conda: [target.linux-64.dependencies]"},
	"tools": {"tools are no longer installed", "an environment holds packages only",
		`take Blender from its Python package: bpy = ">=4.2" below [pypi-dependencies]`},
	"env": {"the environment is no longer described in [env]", "its name is derived from the folders, CUDA from the machine",
		`write python = "3.11" at the top of the file and remove the section`},
	"packages": {"packages are no longer listed in [packages]", "nothing of the section is installed",
		`write name = "version" below [pypi-dependencies]`},
	"sources": {"[sources] is no longer read", "wheels and indexes are named where pixi has them",
		`write extra-index-urls = ["https://..."] or find-links = [{ url = "https://..." }] below [pypi-options]`},
	"wheel_sources": {"[wheel_sources] is no longer read", "wheels and indexes are named where pixi has them",
		`write find-links = [{ url = "https://..." }] below [pypi-options]`},
	"variables": {"there are no variables for versions any more", "the wheels of [cuda] are chosen for the machine",
		"write the versions themselves, and packages built against torch below [cuda]"},
	"local": {"[local] is no longer read", "a manifest describes one environment, so its sections stand at the top",
		"write [cuda] for [local.cuda], [pypi-dependencies] for [local.packages]"},
	"isolated": {"isolation is no longer switched on in the file", "the file's presence in the nodes folder is the switch",
		"remove it"},
	"isolate": {"isolation is no longer switched on in the file", "the file's presence in the nodes folder is the switch",
		"remove it"},
	"settings": {"[settings] is no longer read", "settings are the machine's, not the pack's",
		"remove the section; without a " + EnvironmentFile + " in the nodes folder nothing is isolated"},
	"serializers": {"[serializers] is no longer read", "types that cross between processes are declared for the whole pack",
		`write TYPE = "custom" below [types] in ` + RootFile + " and put the functions into the pack's serialization.py"},
	"rocm": {"there is no [rocm]", "wheels are chosen for the machine from the packages of [cuda]",
		"remove the section, and keep the packages in [cuda]"},
	"cuda_version":    {"the CUDA version is not chosen in the file", "it is the host's", "remove the line"},
	"pytorch_version": {"the PyTorch version is not chosen in the file", "it is the host's", "remove the line"},
	"requirements":    {"requirements are not a list", "nothing of it is installed", `write name = "version" below [pypi-dependencies]`},
	"conda": {"[conda] is no longer read", "nothing of the section is installed",
		`write name = "version" below [dependencies], channels = [...] below [workspace]`},
	"project": {"[project] has another name", "pixi calls it [workspace]", "write [workspace]"},
}

// platformSections are the tables of earlier formats that held what is one platform's.
var platformSections = map[string]string{
	"linux": "linux-64", "windows": "win-64", "win": "win-64", "darwin": "osx-arm64", "macos": "osx-arm64", "osx": "osx-arm64",
}

// condaForSystem are the conda packages that hold what system packages did. Empty: nothing is needed.
var condaForSystem = map[string]string{
	"libgl1": "libgl", "libgl1-mesa-glx": "libgl", "libglx-mesa0": "mesalib", "libosmesa6": "mesalib", "libopengl0": "libopengl",
	"libglu1-mesa": "libglu", "libxi6": "xorg-libxi", "libsm6": "xorg-libsm", "libice6": "xorg-libice", "libxext6": "xorg-libxext",
	"libxrender1": "xorg-libxrender", "libxkbcommon0": "libxkbcommon", "libx11-6": "xorg-libx11", "libgomp1": "libgomp",
	"libegl1": "libegl", "libglib2.0-0": "glib", "ffmpeg": "ffmpeg", "git": "git", "pkg-config": "pkg-config", "cmake": "cmake",
	"ninja-build": "ninja", "build-essential": "cxx-compiler", "gcc": "c-compiler", "g++": "cxx-compiler", "python3-dev": "",
}

// foreignSection reports a top-level key that an environment file does not have.
func (c *checker) foreignSection(e *entry) {
	name := e.name
	p := problem{at: e.key, severity: Error, why: "it would never be read"}
	old, isOld := retired[name]
	switch {
	case name == "$schema":
		return
	case name == "tool":
		c.problem(problem{at: e.key, severity: Note, code: CodeIgnored, message: "[tool] is left to other tools",
			fix: "keep it if another tool reads it here"})
		return
	case name == "node_packs" || name == "types":
		p.code, p.message = CodeMisplaced, fmt.Sprintf("[%s] does not belong here", name)
		p.why, p.fix = "it is about the whole pack; here it never had an effect", fmt.Sprintf("move it to %s in the pack's own folder", RootFile)
	case name == "node_reqs":
		p.code, p.message = CodeRetired, "[node_reqs] is no longer read"
		p.why, p.fix = "it is about the whole pack; here it never had an effect", fmt.Sprintf("move it to %s in the pack's own folder, as [node_packs]", RootFile)
	case name == "environments" || name == "feature":
		p.code, p.message = CodeRefused, fmt.Sprintf("[%s] can not be used here", name)
		p.why = "a file describes one environment, which is generated from it"
		p.fix = fmt.Sprintf("give each environment a folder below nodes with a %s of its own", EnvironmentFile)
	case isOld:
		p.code, p.message, p.why, p.fix = CodeRetired, old.message, old.why, old.fix
		if name == "packages" || name == "requirements" || name == "local" {
			packages := e.value
			if packages.kind == kindTable && packages.table.get("packages") != nil {
				packages = packages.table.get("packages").value
			}
			if items := spelledRequirements(packages); len(items) > 0 {
				p.fix = fmt.Sprintf("write %s below [pypi-dependencies]", strings.Join(items[:min(len(items), maxSpelled)], ", "))
			}
		}
		if name == "env" && e.value.kind == kindTable {
			if python := e.value.table.get("python"); python != nil && scalar(python.value) {
				p.fix = fmt.Sprintf("write python = %s at the top of the file and remove the section", quote(python.value.text))
			}
		}
		if name == "apt" || name == "brew" || name == "system" {
			if packages := condaPackages(e.value); packages != "" {
				p.fix += ": " + packages
			}
		}
		if name == "project" {
			p.edits = e.renameUnlessTaken("workspace")
		}
	case platformSections[name] != "" && e.value.kind == kindTable:
		p.code, p.message = CodeRetired, fmt.Sprintf("[%s] is no longer read", name)
		p.fix = fmt.Sprintf("write [target.%s.pypi-dependencies] or [target.%s.dependencies]", platformSections[name], platformSections[name])
	case c.namedEnvironment(e):
		return
	default:
		kind := "key"
		if e.value.kind == kindTable || e.value.tables {
			kind = "section"
		}
		p.code, p.message = CodeUnknownTable, fmt.Sprintf("there is no %s %s", kind, bracketed(e))
		p.why = "it would never be read, and pixi refuses the whole file for it"
		if near := nearest(name, environmentKeys); near != "" && c.doc.root.get(near) == nil {
			renamed := *e
			renamed.name = near
			p.fix = "write " + bracketed(&renamed)
			p.edits = e.rename(near)
			c.problem(p)
			c.environmentSection(near, &renamed) // what is in it has its own mistakes
			return
		} else if moved := optionHome(name); moved != "" {
			p.fix = "move it to " + moved
		} else {
			p.fix = "known are " + strings.Join(environmentKeys, ", ")
		}
	}
	c.problem(p)
}

// optionHome is the section that has a key of this name.
func optionHome(name string) string {
	switch {
	case slices.Contains(optionNames, name):
		return "[options]"
	case slices.Contains(memoryNames, name):
		return "[options.memory]"
	case slices.Contains(pypiOptionKeys, name):
		return "[pypi-options]"
	case slices.Contains(workspaceKeys, name):
		return "[workspace]"
	case slices.Contains(activationKeys, name):
		return "[activation]"
	}
	return ""
}

// bracketed writes a key as it stands in the file: sections in brackets.
func bracketed(e *entry) string {
	if e.value.kind == kindTable || e.value.tables {
		return "[" + quoteName(e.name) + "]"
	}
	return quoteName(e.name)
}

// condaPackages names the conda packages for the system packages that a section lists.
func condaPackages(v *value) string {
	var names []string
	seen := map[string]bool{}
	collectStrings(v, func(text string) {
		name, known := condaForSystem[text]
		if known && name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name+` = "*"`)
		}
	})
	return strings.Join(names, ", ")
}

// collectStrings visits every string in a value. The reader has bounded how deep values nest.
func collectStrings(v *value, visit func(string)) {
	switch {
	case v.kind == kindString:
		visit(v.text)
	case v.kind == kindTable:
		for _, e := range v.table.entries {
			collectStrings(e.value, visit)
		}
	default:
		for _, item := range v.items {
			collectStrings(item, visit)
		}
	}
}

// environmentTable are the keys by which the named environments of an earlier format are recognised, and where
// the content of each has gone; empty for what is no longer chosen in the file.
var environmentTable = map[string]string{
	"python":          "at the top of the file",
	"cuda":            "below [cuda]",
	"packages":        "below [pypi-dependencies]",
	"requirements":    "below [pypi-dependencies]",
	"conda":           "below [dependencies]",
	"env":             "below [env_vars]",
	"cuda_version":    "",
	"pytorch_version": "",
	"isolated":        "",
}

// namedEnvironment reports a table that described an environment under its name, with what each key became.
func (c *checker) namedEnvironment(e *entry) bool {
	if e.value.kind != kindTable {
		return false
	}
	known := 0
	for _, key := range e.value.table.entries {
		if _, ok := environmentTable[key.name]; ok {
			known++
		}
	}
	if known == 0 || 2*known < len(e.value.table.entries) {
		return false
	}
	c.problem(problem{at: e.key, severity: Error, code: CodeRetired,
		message: fmt.Sprintf("[%s] describes an environment in the spelling of the past", quoteName(e.name)),
		why:     "a file describes one environment, named after its folders, so its sections stand at the top",
		fix:     fmt.Sprintf("write its keys at the top of <pack>/nodes/%s", EnvironmentFile)})
	for _, key := range e.value.table.entries {
		if place, ok := environmentTable[key.name]; ok {
			c.problem(problem{at: key.key, severity: Error, code: CodeRetired,
				message: fmt.Sprintf("%s.%s is no longer read", quoteName(e.name), key.name), fix: presentSpelling(key, place)})
		}
	}
	return true
}

// maxSpelled bounds how many entries are written out in a remedy.
const maxSpelled = 6

// presentSpelling is the remedy for one key of a named environment, with its values as they are written today.
func presentSpelling(key *entry, place string) string {
	if place == "" {
		return "remove the line: " + retired[key.name].why
	}
	var items []string
	switch {
	case key.name == "python" && scalar(key.value):
		return "write python = " + quote(key.value.text) + " " + place
	case key.name == "cuda" && key.value.kind == kindTable:
		for _, e := range key.value.table.entries {
			items = append(items, quote(e.name))
		}
		return "write packages = [" + strings.Join(items, ", ") + "] " + place
	case key.name == "env" && key.value.kind == kindTable:
		for _, e := range key.value.table.entries {
			items = append(items, quoteName(e.name)+" = "+quote(e.value.text))
		}
	case key.name == "conda" && key.value.kind == kindTable:
		if packages := key.value.table.get("packages"); packages != nil {
			items = spelledRequirements(packages.value)
		}
	default:
		items = spelledRequirements(key.value)
	}
	if len(items) == 0 {
		return "write what is needed " + place
	}
	if len(items) > maxSpelled {
		items = append(items[:maxSpelled], "...")
	}
	return "write " + strings.Join(items, ", ") + " " + place
}

// spelledRequirements turns requirements as pip has them into entries of a table.
func spelledRequirements(v *value) []string {
	var items []string
	collectStrings(v, func(text string) {
		text, _, _ = strings.Cut(text, ";")
		name, version := splitRequirement(strings.TrimSpace(text))
		if version == "" || checkSpecifiers(version) != nil {
			version = "*"
		}
		base, extras, hasExtras := strings.Cut(name, "[")
		if !packageName.MatchString(base) {
			return
		}
		if hasExtras {
			items = append(items, fmt.Sprintf("%s = { version = %s, extras = [%s] }", quoteName(base), quote(version), quote(strings.TrimSuffix(extras, "]"))))
		} else {
			items = append(items, quoteName(base)+" = "+quote(version))
		}
	})
	return items
}
