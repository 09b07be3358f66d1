package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/demo"
)

// TestTheCommandLine runs the scripts in testdata/script against the real program, each in folders of its own.
func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	binary := buildProgram(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// The user's home stays: how Python packages are reached is configured there.
			for _, variable := range os.Environ() {
				if name, _, _ := strings.Cut(variable, "="); !isPrivate(name) {
					env.Vars = append(env.Vars, variable)
				}
			}
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("PROGRAM", binary)
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, "tmp"))
			for name, folder := range map[string]string{
				"COMFY_SUPERVISOR_RUNTIME_DIR": "run", "COMFY_SUPERVISOR_STATE_DIR": "state",
				"COMFY_SUPERVISOR_CACHE_DIR": "cache", "COMFY_ENV_ROOT": "environments",
			} {
				env.Setenv(name, filepath.Join(env.WorkDir, folder))
			}
			env.Defer(func() { // a script that failed half-way may have left a supervisor
				stop := exec.Command(binary, "stop", "--all")
				stop.Env = env.Vars
				_ = stop.Run()
			})
			return os.MkdirAll(filepath.Join(env.WorkDir, "tmp"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"demo-held":    demoHeld,
			"answered":     answered,
			"nothing-left": nothingLeft,
			"exits":        exits,
		},
	})
}

// isPrivate names the variables that would lead a script to the user's own instance or environments.
func isPrivate(name string) bool {
	return strings.HasPrefix(name, "COMFY_") || name == "XDG_RUNTIME_DIR" || name == "TMPDIR" || name == "PATH"
}

// buildProgram builds the program under test, as a user would have it.
func buildProgram(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "comfy-supervisor")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("building the program: %v\n%s", err, said)
	}
	return binary
}

// exits CODE COMMAND... runs a command and wants that exit code; what it said is stdout and stderr of the script.
func exits(script *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) < 2 {
		script.Fatalf("usage: exits CODE COMMAND...")
	}
	err := script.Exec(arguments[1], arguments[2:]...)
	code := 0
	if failed, ok := err.(*exec.ExitError); ok {
		code = failed.ExitCode()
	} else if err != nil {
		script.Fatalf("running %s: %v", arguments[1], err)
	}
	if fmt.Sprint(code) != arguments[0] {
		script.Fatalf("exit code %d, want %s", code, arguments[0])
	}
}

// demo-held FILE reads what `demo --json` printed: every claim held.
func demoHeld(script *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 1 {
		script.Fatalf("usage: demo-held FILE")
	}
	outcome := decodeOutcome(script, arguments[0])
	const steps = 12
	if !outcome.Holds || len(outcome.Steps) != steps {
		script.Fatalf("%d of %d steps, held: %v", len(outcome.Steps), steps, outcome.Holds)
	}
	for _, step := range outcome.Steps {
		if !step.Holds || len(step.Seen) == 0 {
			script.Fatalf("step %q: held %v, seen %v", step.Name, step.Holds, step.Seen)
		}
	}
	if len(outcome.Workers) < 3 {
		script.Fatalf("workers %v, want two generations and the Python host's", outcome.Workers)
	}
}

// answeredAfter is the time of the first answer in what a demonstration printed, as JSON or for people.
var answeredAfter = regexp.MustCompile(`"first_answer_seconds": ([0-9.]+)|first call was answered ([0-9.]+) s`)

// answered FILE... wants that these demonstrations say when they had their first answer, and logs it. How long that may
// take is no test's business: another program may have the machine meanwhile.
func answered(script *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) == 0 {
		script.Fatalf("usage: answered FILE...")
	}
	for _, file := range arguments {
		match := answeredAfter.FindStringSubmatch(script.ReadFile(file))
		if match == nil {
			script.Fatalf("%s does not say when the first call was answered", file)
		}
		seconds, err := strconv.ParseFloat(match[1]+match[2], 64)
		script.Check(err)
		if seconds <= 0 {
			script.Fatalf("%s says that the first call was answered after %v s", file, seconds)
		}
		script.Logf("%s: the first answer after %v s", file, seconds)
	}
}

func decodeOutcome(script *testscript.TestScript, file string) demo.Outcome {
	var outcome demo.Outcome
	if err := json.Unmarshal([]byte(script.ReadFile(file)), &outcome); err != nil {
		script.Fatalf("%s is not the JSON of a demonstration: %v", file, err)
	}
	return outcome
}

// nothing-left [FILE...] wants no process, socket or temporary file of the script's instances; FILEs are outcomes of
// demonstrations whose workers are looked for as well.
func nothingLeft(script *testscript.TestScript, negated bool, arguments []string) {
	if negated {
		script.Fatalf("usage: nothing-left [FILE...]")
	}
	marks := []string{script.Getenv("WORK") + string(filepath.Separator)}
	for _, file := range arguments {
		for _, worker := range decodeOutcome(script, file).Workers {
			marks = append(marks, "COMFY_SUPERVISOR_WORKER="+worker)
		}
	}
	left, err := leftOf(marks)
	if err != nil {
		script.Fatalf("looking for what is left: %v", err)
	}
	for _, folder := range []string{script.Getenv("TMPDIR"), script.Getenv("COMFY_SUPERVISOR_RUNTIME_DIR")} {
		entries, err := os.ReadDir(folder)
		if err != nil && !os.IsNotExist(err) {
			script.Fatalf("looking for what is left: %v", err)
		}
		for _, entry := range entries {
			left = append(left, filepath.Join(folder, entry.Name()))
		}
	}
	if len(left) > 0 {
		script.Fatalf("left:\n%s", strings.Join(left, "\n"))
	}
}
