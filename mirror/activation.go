package mirror

import (
	"regexp"
	"slices"
	"strings"
)

// reference is a variable's name inside a value of [activation.env], in the spellings of POSIX shells.
var reference = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// windowsReference is the spelling of Windows' command interpreter.
var windowsReference = regexp.MustCompile(`%([A-Za-z_][A-Za-z0-9_()]*)%`)

// addPrefix offers what activating the environment means: its programs come first on a PATH that otherwise stays
// whole, but for the folders that its activation scripts add.
func (b *builder) addPrefix(input Input) {
	if b.os == "windows" || b.os == "darwin" {
		b.offer("KMP_DUPLICATE_LIB_OK", "TRUE", rankDefault, FromDefault, "several packages bring an OpenMP of their own")
	}
	if b.prefix == "" {
		return
	}
	if input.Backend == "pixi" {
		b.offer("CONDA_PREFIX", b.prefix, rankFact, FromDefault, "")
	} else {
		b.offer("VIRTUAL_ENV", b.prefix, rankFact, FromDefault, "")
	}
	folders := slices.Concat(b.pathFolders(input.FirstFolders), b.programFolders(input.Backend))
	last := b.pathFolders(input.LastFolders)
	note := "the environment's own programs come first"
	if len(input.FirstFolders)+len(input.LastFolders) > 0 {
		note = "the environment's own programs come first, with the folders that its activation scripts add"
	}
	name, source := "PATH", FromDefault
	if current, found := b.value("PATH"); found {
		name, source = b.names[b.key("PATH")], current.source
		folders = append(folders, current.value)
		b.drop("PATH")
	}
	b.offer(name, strings.Join(append(folders, last...), b.listSeparator()), rankFact, source, note)
}

// pathFolders are those that can stand on a PATH.
func (b *builder) pathFolders(folders []string) []string {
	return slices.DeleteFunc(slices.Clone(folders), func(folder string) bool {
		return folder == "" || strings.Contains(folder, b.listSeparator()) || strings.ContainsRune(folder, 0)
	})
}

// programFolders are the folders with programs of an environment, in the order in which activation puts them.
func (b *builder) programFolders(backend string) []string {
	if b.os != "windows" {
		return []string{strings.TrimRight(b.prefix, "/") + "/bin"}
	}
	prefix := strings.TrimRight(b.prefix, `\/`)
	if backend != "pixi" {
		return []string{prefix + `\Scripts`}
	}
	return []string{
		prefix, prefix + `\Library\mingw-w64\bin`, prefix + `\Library\usr\bin`, prefix + `\Library\bin`,
		prefix + `\Scripts`, prefix + `\bin`,
	}
}

func (b *builder) listSeparator() string {
	if b.os == "windows" {
		return ";"
	}
	return ":"
}

// expandActivation replaces references to other variables in [activation.env], which pixi hands to a shell. A name
// that stands for nothing becomes empty, as there.
func (b *builder) expandActivation(activation map[string]string) map[string]string {
	expanded := make(map[string]string, len(activation))
	for name, value := range activation {
		expanded[name] = b.expand(value, activation, newSet(name))
	}
	return expanded
}

// expand resolves a value's references: to the other variables of the table, else to the environment as it is
// without them. A variable that refers to itself means the environment's.
func (b *builder) expand(value string, table map[string]string, within set) string {
	lookup := func(name string) string {
		if other, found := table[name]; found && !within.has(name) {
			deeper := newSet(name)
			for outer := range within {
				deeper[outer] = struct{}{}
			}
			return b.expand(other, table, deeper)
		}
		if name == "CONDA_PREFIX" {
			return b.prefix
		}
		current, _ := b.value(name)
		return current.value
	}
	pattern := reference
	if b.os == "windows" {
		pattern = windowsReference
	}
	return pattern.ReplaceAllStringFunc(value, func(match string) string {
		return lookup(strings.Trim(match, "${}%"))
	})
}
