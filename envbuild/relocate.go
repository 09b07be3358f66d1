package envbuild

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// move is a folder whose place has changed.
type move struct{ from, to string }

// moves are folders whose places have changed: a revision's and its pack's.
type moves []move

// needed are those that change anything.
func (m moves) needed() moves {
	return slices.DeleteFunc(slices.Clone(m), func(one move) bool { return one.from == one.to || one.from == "" })
}

// text replaces the paths that a text holds, as they are and as they stand in URLs.
func (m moves) text(content []byte) []byte {
	for _, one := range m.needed() {
		content = replacePath(content, one.from, one.to)
		if escaped := (&url.URL{Path: filepath.ToSlash(one.from)}).EscapedPath(); escaped != one.from {
			content = replacePath(content, escaped, (&url.URL{Path: filepath.ToSlash(one.to)}).EscapedPath())
		}
	}
	return content
}

// replacePath replaces a path wherever it stands for itself or for something in it: "/a/b" is not in "/a/bc".
func replacePath(content []byte, from, to string) []byte {
	var changed bytes.Buffer
	for {
		at := bytes.Index(content, []byte(from))
		if at < 0 {
			changed.Write(content)
			return changed.Bytes()
		}
		end := at + len(from)
		changed.Write(content[:at])
		if end == len(content) || !isNameByte(content[end]) {
			changed.WriteString(to)
		} else {
			changed.WriteString(from)
		}
		content = content[end:]
	}
}

// isNameByte reports whether a byte goes on with the name of a file.
func isNameByte(b byte) bool {
	return b == '-' || b == '_' || b == '.' || b == '+' || b == '%' || b >= 0x80 ||
		b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// recipe is a recipe with its paths moved. A path is the whole of a string, or follows "file://".
func (m moves) recipe(recipe Recipe) (Recipe, error) {
	content, err := json.Marshal(recipe)
	if err != nil {
		return recipe, err
	}
	var values any
	if err := json.Unmarshal(content, &values); err != nil {
		return recipe, err
	}
	if content, err = json.Marshal(m.needed().values(values)); err != nil {
		return recipe, err
	}
	var moved Recipe
	err = json.Unmarshal(content, &moved)
	return moved, err
}

// values moves the paths in decoded JSON, names of keys included.
func (m moves) values(value any) any {
	switch value := value.(type) {
	case string:
		return m.path(value)
	case []any:
		for i := range value {
			value[i] = m.values(value[i])
		}
	case map[string]any:
		moved := make(map[string]any, len(value))
		for key, inner := range value {
			moved[m.path(key)] = m.values(inner)
		}
		return moved
	}
	return value
}

func (m moves) path(text string) string {
	if at := strings.Index(text, "file://"); at >= 0 {
		return text[:at+len("file://")] + string(m.text([]byte(text[at+len("file://"):])))
	}
	for _, one := range m {
		if rest, found := strings.CutPrefix(text, one.from); found && (rest == "" || rest[0] == '/' || rest[0] == filepath.Separator) {
			return one.to + rest
		}
	}
	return text
}

// relocatable is the largest file in which paths are replaced; scripts and lists of paths are small.
const relocatable = 1 << 20

// relocate gives a prefix of uv's that was made elsewhere its new place: scripts with a fixed path, lists of folders
// and editable packages' finders. What uv makes with --relocatable needs none of it.
func relocate(prefix, version string, m moves) error {
	site := sitePackages(prefix, version)
	quoted := globQuote(site)
	patterns := []string{
		filepath.Join(globQuote(filepath.Dir(prefixPython(prefix))), "*"),
		filepath.Join(quoted, "*.pth"), filepath.Join(quoted, "*.egg-link"), filepath.Join(quoted, "__editable__*.py"),
		filepath.Join(quoted, "*.dist-info", "direct_url.json"),
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("looking for paths in %s: %w", prefix, err)
		}
		for _, file := range files {
			if err := relocateFile(file, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// relocateFile replaces paths in one text file.
func relocateFile(file string, m moves) error {
	info, err := os.Lstat(file)
	if err != nil {
		return fmt.Errorf("relocating %s: %w", file, err)
	}
	if !info.Mode().IsRegular() || info.Size() > relocatable {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("relocating %s: %w", file, err)
	}
	if bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	moved := m.text(content)
	if bytes.Equal(moved, content) {
		return nil
	}
	if err := os.WriteFile(file, moved, info.Mode().Perm()); err != nil {
		return fmt.Errorf("relocating %s: %w", file, err)
	}
	return nil
}

// rebase makes a virtual environment that of another interpreter of the same version: the links in its folder of
// programs, and pyvenv.cfg.
func rebase(prefix string, base interpreter, links []string) error {
	for _, link := range links {
		if err := os.Symlink(base.Executable, filepath.Join(prefix, filepath.FromSlash(link))); err != nil {
			return fmt.Errorf("linking the interpreter: %w", err)
		}
	}
	file := filepath.Join(prefix, "pyvenv.cfg")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the virtual environment's file: %w", err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(content)) {
		key, _, _ := strings.Cut(line, "=")
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "home":
			line = "home = " + filepath.Dir(base.Executable) + "\n"
		case "version", "version_info":
			line = strings.TrimSpace(key) + " = " + base.Version + "\n"
		case "executable", "base-executable", "base-prefix", "base-exec-prefix", "command":
			continue // of the machine that it was made on
		}
		lines.WriteString(line)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("writing the virtual environment's file: %w", err)
	}
	return nil
}

// samePlatform says why what was made on one platform can not be used on this one, "" where it can.
func samePlatform(made PlatformFacts) string {
	if made.OS == runtime.GOOS && made.Arch == runtime.GOARCH {
		return ""
	}
	return fmt.Sprintf("it is for %s/%s, and this is %s/%s", made.OS, made.Arch, runtime.GOOS, runtime.GOARCH)
}
