package envbuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// activationTimeout bounds the running of a prefix's activation scripts.
const activationTimeout = 60 * time.Second

// printVariables is run by the prefix's Python at the end of an activation.
const printVariables = "import json, os\nprint()\nprint(json.dumps(dict(os.environ)))\n"

// activated is what running an environment's activation scripts once has brought about.
type activated struct {
	Variables map[string]string // that differ afterwards, without those that a worker's own start sets
	// First and Last are the folders put on PATH, before and behind what was there.
	First, Last []string
}

// activation runs activation scripts.
type activation struct {
	plan    *Plan
	prefix  string
	folder  string // takes the two files that this needs
	environ []string
	guard   []string // see guarded
	busy    string   // lock file that is held while a script may live
	log     func(line string)
}

// activate runs the activation scripts of a prefix and of the manifest once, in a shell.
func (a activation) activate(ctx context.Context) (activated, error) {
	environ := slices.DeleteFunc(pixiEnviron(a.environ), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(droppedVariables, strings.ToUpper(name)) || strings.HasPrefix(name, "PIXI_")
	})
	python := prefixPython(a.prefix)
	// Python's own change of the locale would look like the scripts' doing.
	base := append(slices.Clone(environ), "PYTHONCOERCECLOCALE=0",
		"PATH="+filepath.Dir(python)+string(filepath.ListSeparator)+environValue(environ, "PATH"))
	if exists(filepath.Join(a.prefix, condaMetadata)) {
		base = append(base, "CONDA_PREFIX="+a.prefix, "CONDA_SHLVL=1")
	} else {
		base = append(base, "VIRTUAL_ENV="+a.prefix)
	}
	printer := filepath.Join(a.folder, "variables.py")
	if err := os.WriteFile(printer, []byte(printVariables), 0o600); err != nil {
		return activated{}, fmt.Errorf("activating %s: %w", a.prefix, err)
	}
	defer os.Remove(printer)
	text, name, shell := activationScript(a.plan, a.prefix, printer)
	script := filepath.Join(a.folder, name)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return activated{}, fmt.Errorf("activating %s: %w", a.prefix, err)
	}
	defer os.Remove(script)
	limited, cancel := context.WithTimeout(ctx, activationTimeout)
	defer cancel()
	order := guardOrder{Arguments: append(shell, script), Environ: base, Directory: a.folder, Lock: a.busy}
	var lines []string
	err := guarded(limited, a.guard, order, func(line string) {
		lines = append(lines, line)
		if a.log != nil && !strings.HasPrefix(line, "{") { // the variables may hold what is no one's business
			a.log(line)
		}
	})
	if err != nil {
		reason := shorten(lastLine(strings.Join(lines, "\n")), 200)
		if ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
			reason = fmt.Sprintf("no end within %v", activationTimeout)
		}
		return activated{}, fmt.Errorf("its activation scripts fail: %w: %s", err, reason)
	}
	var after map[string]string
	for _, line := range lines {
		if strings.HasPrefix(line, "{") {
			var variables map[string]string
			if json.Unmarshal([]byte(line), &variables) == nil {
				after = variables
			}
		}
	}
	if after == nil {
		return activated{}, fmt.Errorf("what its activation scripts set can not be read: %q", shorten(lastLine(strings.Join(lines, "\n")), 200))
	}
	return changedBy(after, base, a.prefix), nil
}

// changedBy is what activating a prefix has changed of the variables of base.
func changedBy(after map[string]string, base []string, prefix string) activated {
	result := activated{Variables: map[string]string{}}
	for name, value := range after {
		if !activationNoise(name) && environValue(base, name) != value {
			result.Variables[name] = value
		}
	}
	path := after["PATH"]
	for name, value := range after { // Windows spells it as it likes
		if strings.EqualFold(name, "PATH") {
			path = cmp.Or(path, value)
		}
	}
	result.First, result.Last = addedFolders(path, environValue(base, "PATH"), prefix)
	return result
}

// addedFolders are the folders of a PATH that are neither on the one of before nor those in which a prefix has its
// programs: those before the last folder that was there, and those behind it.
func addedFolders(path, before, prefix string) (first, last []string) {
	known := filepath.SplitList(before)
	folders := filepath.SplitList(path)
	end := -1
	for i, folder := range folders {
		if slices.Contains(known, folder) {
			end = i
		}
	}
	for i, folder := range folders {
		if !filepath.IsAbs(folder) || slices.Contains(known, folder) || slices.Contains(programFolders(prefix), folder) {
			continue
		}
		if end >= 0 && i > end {
			last = append(last, folder)
		} else {
			first = append(first, folder)
		}
	}
	return first, last
}

// programFolders are those that activating a prefix puts on PATH by itself.
func programFolders(prefix string) []string {
	if runtime.GOOS != "windows" {
		return []string{filepath.Join(prefix, "bin"), filepath.Join(prefix, "condabin")}
	}
	folders := []string{prefix}
	for _, below := range []string{`Library\mingw-w64\bin`, `Library\usr\bin`, `Library\bin`, "Scripts", "bin", "condabin"} {
		folders = append(folders, filepath.Join(prefix, below))
	}
	return folders
}

// tell says which folders activation adds to PATH.
func (a activated) tell(say func(format string, arguments ...any)) {
	for _, folder := range slices.Concat(a.First, a.Last) {
		say("activation puts %s on PATH", folder)
	}
}

// activationScript is a script for the system's shell that runs the prefix's scripts and those of the manifest, sets
// the manifest's activation variables where they are not left to the start of a worker, and ends with the printing of
// all variables.
func activationScript(plan *Plan, prefix, printer string) (text, name string, shell []string) {
	extension := ".sh"
	if runtime.GOOS == "windows" {
		extension = ".bat"
	}
	scripts, _ := filepath.Glob(filepath.Join(globQuote(prefix), "etc", "conda", "activate.d", "*"+extension)) // the pattern is a good one
	scripts = append(scripts, plan.scripts()...)
	var variables map[string]string
	if conda := plan.Recipe.Conda; conda != nil {
		variables = conda.Activation.Env
	}
	var lines strings.Builder
	if runtime.GOOS == "windows" {
		lines.WriteString("@echo off\r\n")
		for _, script := range scripts {
			fmt.Fprintf(&lines, "call \"%s\" || exit /b 1\r\n", script)
		}
		for _, name := range sortedKeys(variables) {
			fmt.Fprintf(&lines, "set \"%s=%s\"\r\n", name, variables[name])
		}
		fmt.Fprintf(&lines, "\"%s\" -BsS \"%s\"\r\n", prefixPython(prefix), printer)
		return lines.String(), "activate.bat", []string{"cmd.exe", "/d", "/c"}
	}
	for _, script := range scripts {
		fmt.Fprintf(&lines, ". %s || exit 1\n", shellQuote(script))
	}
	for _, name := range sortedKeys(variables) {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`").Replace(variables[name])
		fmt.Fprintf(&lines, "export %s=\"%s\"\n", name, escaped)
	}
	fmt.Fprintf(&lines, "exec %s -BsS %s\n", shellQuote(prefixPython(prefix)), shellQuote(printer))
	shell = []string{"/bin/sh"}
	if bash, err := exec.LookPath("/bin/bash"); err == nil { // conda's scripts are written for it
		shell = []string{bash, "--noprofile", "--norc"}
	}
	return lines.String(), "activate.sh", shell
}

// scripts are the activation scripts of the manifest.
func (p *Plan) scripts() []string {
	if p.Recipe.Conda != nil {
		return p.Recipe.Conda.Activation.Scripts
	}
	return p.Recipe.Scripts
}

// takeScripts makes the manifest's activation scripts, and their bytes, part of the recipe.
func (p *Plan) takeScripts(merged merged, at manifest.Position) error {
	var scripts []string
	for _, script := range merged.Activation.Scripts {
		path := p.absolute(script)
		if suffix := filepath.Ext(path); runtime.GOOS == "windows" && !strings.EqualFold(suffix, ".bat") && !strings.EqualFold(suffix, ".cmd") {
			return fmt.Errorf("%s:%d: the activation script %s is none for Windows' command interpreter; name a .bat below [target.win.activation]",
				p.Manifest, at.Line, script)
		}
		hash, err := hashLocal(path, false)
		if err != nil {
			return fmt.Errorf("%s:%d: the activation script: %w", p.Manifest, at.Line, err)
		}
		if p.Recipe.Local == nil {
			p.Recipe.Local = map[string]string{}
		}
		p.Recipe.Local[path] = hash
		scripts = append(scripts, path)
	}
	if p.Recipe.Conda != nil {
		p.Recipe.Conda.Activation.Scripts = scripts
	} else {
		p.Recipe.Scripts = scripts
	}
	return nil
}

// shellQuote makes one word of a text.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// globQuote takes a path literally in a pattern.
func globQuote(path string) string {
	if runtime.GOOS == "windows" {
		return strings.ReplaceAll(path, "[", "[[]") // no escapes there
	}
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "*", `\*`, "?", `\?`).Replace(path)
}

func sortedKeys(values map[string]string) []string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
