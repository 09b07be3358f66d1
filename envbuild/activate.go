package envbuild

import (
	"bytes"
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
)

// activationTimeout bounds the running of a prefix's activation scripts.
const activationTimeout = 60 * time.Second

// printVariables is run by the prefix's Python at the end of an activation.
const printVariables = "import json, os\nprint()\nprint(json.dumps(dict(os.environ)))\n"

// activatePrefix runs the activation scripts of a conda prefix once, in a shell, and returns the variables that differ
// afterwards, without those that a worker's own start sets, and the folders outside of the prefix that they put on PATH.
// folder takes the two files that this needs.
func activatePrefix(ctx context.Context, plan *Plan, prefix, folder string, environ []string) (variables map[string]string, folders []string, err error) {
	environ = slices.DeleteFunc(pixiEnviron(environ), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(droppedVariables, strings.ToUpper(name)) || strings.HasPrefix(name, "PIXI_")
	})
	// Python's own change of the locale would look like the scripts' doing.
	base := append(slices.Clone(environ), "CONDA_PREFIX="+prefix, "CONDA_SHLVL=1", "PYTHONCOERCECLOCALE=0",
		"PATH="+filepath.Dir(condaPython(prefix))+string(filepath.ListSeparator)+environValue(environ, "PATH"))
	printer := filepath.Join(folder, "variables.py")
	if err := os.WriteFile(printer, []byte(printVariables), 0o600); err != nil {
		return nil, nil, fmt.Errorf("activating %s: %w", prefix, err)
	}
	defer os.Remove(printer)
	text, name, shell := activationScript(plan, prefix, printer)
	script := filepath.Join(folder, name)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return nil, nil, fmt.Errorf("activating %s: %w", prefix, err)
	}
	defer os.Remove(script)
	ctx, cancel := context.WithTimeout(ctx, activationTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, shell[0], append(shell[1:], script)...)
	command.Env, command.Dir = base, folder
	ownGroup(command)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, nil, fmt.Errorf("its activation scripts fail: %w: %s", errors.Join(err, ctx.Err()), shorten(lastLine(stderr.String()), 200))
	}
	var after map[string]string
	if err := json.Unmarshal([]byte(lastLine(stdout.String())), &after); err != nil {
		return nil, nil, fmt.Errorf("what its activation scripts set can not be read: %w", err)
	}
	variables = map[string]string{}
	for name, value := range after {
		if !activationNoise(name) && environValue(base, name) != value {
			variables[name] = value
		}
	}
	return variables, foreignFolders(after["PATH"], base, prefix), nil
}

// activationScript is a script for the system's shell that runs the prefix's scripts and those of the manifest, sets
// the manifest's activation variables, and ends with the printing of all variables.
func activationScript(plan *Plan, prefix, printer string) (text, name string, shell []string) {
	extension := ".sh"
	if runtime.GOOS == "windows" {
		extension = ".bat"
	}
	scripts, _ := filepath.Glob(filepath.Join(globQuote(prefix), "etc", "conda", "activate.d", "*"+extension)) // the pattern is a good one
	var variables map[string]string
	if conda := plan.Recipe.Conda; conda != nil {
		scripts = append(scripts, conda.Activation.Scripts...)
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
		fmt.Fprintf(&lines, "\"%s\" -BsS \"%s\"\r\n", condaPython(prefix), printer)
		return lines.String(), "activate.bat", []string{"cmd.exe", "/d", "/c"}
	}
	for _, script := range scripts {
		fmt.Fprintf(&lines, ". %s || exit 1\n", shellQuote(script))
	}
	for _, name := range sortedKeys(variables) {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`").Replace(variables[name])
		fmt.Fprintf(&lines, "export %s=\"%s\"\n", name, escaped)
	}
	fmt.Fprintf(&lines, "exec %s -BsS %s\n", shellQuote(condaPython(prefix)), shellQuote(printer))
	shell = []string{"/bin/sh"}
	if bash, err := exec.LookPath("/bin/bash"); err == nil { // conda's scripts are written for it
		shell = []string{bash, "--noprofile", "--norc"}
	}
	return lines.String(), "activate.sh", shell
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
