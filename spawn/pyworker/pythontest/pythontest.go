package pythontest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// Oldest is the oldest minor version of Python 3 that the project's Python supports.
const Oldest = 10

// Interpreter is a CPython 3.
type Interpreter struct {
	Path  string
	Minor int // of its version 3.x
}

// Interpreters returns the oldest and the newest supported CPython found on PATH and among pyenv's; one, if they are the
// same version.
func Interpreters(t testing.TB) []Interpreter {
	t.Helper()
	byMinor := map[int]Interpreter{}
	for _, candidate := range candidates() {
		found, ok := probe(candidate)
		if _, known := byMinor[found.Minor]; ok && !known {
			byMinor[found.Minor] = found
		}
	}
	if len(byMinor) == 0 {
		t.Fatalf("no CPython 3.%d or newer was found on PATH or in %s: install one", Oldest, pyenvVersions())
	}
	var minors []int
	for minor := range byMinor {
		minors = append(minors, minor)
	}
	slices.Sort(minors)
	chosen := []Interpreter{byMinor[minors[0]]}
	if newest := minors[len(minors)-1]; newest != minors[0] {
		chosen = append(chosen, byMinor[newest])
	}
	return chosen
}

// Newest is the last of Interpreters.
func Newest(t testing.TB) Interpreter {
	t.Helper()
	found := Interpreters(t)
	return found[len(found)-1]
}

// Each runs a test with each of Interpreters, side by side.
func Each(t *testing.T, test func(t *testing.T, python Interpreter)) {
	t.Helper()
	for _, python := range Interpreters(t) {
		t.Run("python3."+strconv.Itoa(python.Minor), func(t *testing.T) {
			t.Parallel()
			test(t, python)
		})
	}
}

func pyenvVersions() string {
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		root = filepath.Join(home, ".pyenv")
	}
	return filepath.Join(root, "versions")
}

// candidates are the paths that may be interpreters, pyenv's own before its shims.
func candidates() []string {
	found, _ := filepath.Glob(filepath.Join(pyenvVersions(), "3.*", "bin", "python3")) // the pattern is right
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		matches, _ := filepath.Glob(filepath.Join(folder, "python3*"))
		for _, match := range matches {
			name := strings.TrimSuffix(filepath.Base(match), ".exe")
			if version := strings.TrimPrefix(name, "python3"); version == "" || strings.HasPrefix(version, ".") && !strings.Contains(version[1:], "-") {
				found = append(found, match)
			}
		}
	}
	return found
}

func probe(path string) (Interpreter, bool) {
	output, err := exec.Command(path, "-I", "-c",
		"import sys, platform; print(sys.version_info[0], sys.version_info[1], platform.python_implementation(), sys.executable)").Output()
	if err != nil {
		return Interpreter{}, false
	}
	fields := strings.SplitN(strings.TrimSpace(string(output)), " ", 4)
	if len(fields) != 4 || fields[0] != "3" || fields[2] != "CPython" {
		return Interpreter{}, false
	}
	minor, err := strconv.Atoi(fields[1])
	if err != nil || minor < Oldest {
		return Interpreter{}, false
	}
	return Interpreter{Path: fields[3], Minor: minor}, true
}

// Suite is a folder of unittests.
type Suite struct {
	// Directory holds the tests; the test_*.py files in it are run, those of folders below it are not.
	Directory string
	// PythonPath are the folders to import from, besides Directory.
	PythonPath []string
	// Environ are variables to add, as NAME=VALUE.
	Environ []string
	Limit   time.Duration // 5 minutes if 0
}

// Run runs a suite with an interpreter; what it printed is logged, and its failure is the test's.
func Run(t testing.TB, python string, suite Suite) {
	t.Helper()
	limit := suite.Limit
	if limit == 0 {
		limit = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	directory, err := filepath.Abs(suite.Directory)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, python, "-X", "dev", "-X", "faulthandler", "-m", "unittest", "discover", "-s", ".", "-t", ".")
	command.Dir = directory
	paths := append([]string{directory}, suite.PythonPath...)
	command.Env = append(cleanEnviron(),
		"PYTHONPATH="+strings.Join(paths, string(os.PathListSeparator)),
		"PYTHONDONTWRITEBYTECODE=1", // the source tree stays as it is
		"TMPDIR="+t.TempDir())
	command.Env = append(command.Env, suite.Environ...)
	command.WaitDelay = 10 * time.Second
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("the unittests in %s with %s: %v (context: %v)\n%s", suite.Directory, python, err, ctx.Err(), output)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	summary := lines[max(0, len(lines)-4):]
	t.Logf("%s: %s", python, strings.Join(summary, " "))
	if strings.Contains(string(output), "Ran 0 tests") {
		t.Fatalf("there are no unittests in %s", suite.Directory)
	}
}

// cleanEnviron is the environment without what would make Python or the client behave differently.
func cleanEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PYTHON") || strings.HasPrefix(variable, "COMFY_") ||
			strings.HasPrefix(variable, "VIRTUAL_ENV=")
	})
}

// Environment returns the interpreter of a virtual environment with packages, made by pip at the first use on this
// machine and kept in the user's cache folder.
func Environment(t testing.TB, base Interpreter, packages ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("finding the folder for test environments: %v", err)
	}
	key := sha256.Sum256([]byte(base.Path + "\n" + strings.Join(packages, "\n")))
	prefix := filepath.Join(cache, "comfy-supervisor-tests", "python3."+strconv.Itoa(base.Minor)+"-"+hex.EncodeToString(key[:6]))
	python := filepath.Join(prefix, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(prefix, "Scripts", "python.exe")
	}
	if err := os.MkdirAll(filepath.Dir(prefix), 0o755); err != nil {
		t.Fatalf("making the folder for test environments: %v", err)
	}
	lock := flock.New(prefix + ".lock")
	if err := lock.Lock(); err != nil { // another test package may be making the same one
		t.Fatalf("waiting for whoever makes %s: %v", prefix, err)
	}
	defer func() { _ = lock.Unlock() }()
	complete := prefix + ".complete"
	if _, err := os.Stat(complete); err == nil {
		return python
	}
	if err := os.RemoveAll(prefix); err != nil {
		t.Fatalf("removing a half-made %s: %v", prefix, err)
	}
	run(t, base.Path, "-m", "venv", prefix)
	run(t, python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...)...)
	if err := os.WriteFile(complete, []byte(strings.Join(packages, "\n")+"\n"), 0o644); err != nil {
		t.Fatalf("recording that %s is complete: %v", prefix, err)
	}
	return python
}

func run(t testing.TB, program string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = cleanEnviron()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v (these tests need a package index)\n%s", program, strings.Join(arguments, " "), err, output)
	}
}

// TorchVariable names an interpreter that has torch and numpy already, so that none is made.
const TorchVariable = "COMFY_SUPERVISOR_TEST_TORCH_PYTHON"

// Torch returns an interpreter with torch and numpy: the one that TorchVariable names, else what otherwise makes.
func Torch(t testing.TB, otherwise func(testing.TB) string) string {
	t.Helper()
	if python := os.Getenv(TorchVariable); python != "" {
		return python
	}
	return otherwise(t)
}
