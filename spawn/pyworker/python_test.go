package pyworker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

// suite is a folder of unittests that import the worker's modules as they are laid out.
func suite(t *testing.T, directory string) pythontest.Suite {
	t.Helper()
	program, err := pyworker.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Abs("tests")
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"COMFY_SUPERVISOR_TEST_PROGRAM=" + program}
	if executions := os.Getenv("COMFY_SUPERVISOR_TEST_FUZZ"); executions != "" {
		environ = append(environ, "COMFY_SUPERVISOR_TEST_FUZZ="+executions)
	}
	return pythontest.Suite{Directory: directory, PythonPath: []string{program, tests}, Environ: environ}
}

func TestThePythonUnittestsPass(t *testing.T) {
	pythontest.Each(t, func(t *testing.T, python pythontest.Interpreter) {
		pythontest.Run(t, python.Path, suite(t, "tests"))
	})
}

func TestThePythonUnittestsThatNeedNumpyPass(t *testing.T) {
	pythontest.Each(t, func(t *testing.T, python pythontest.Interpreter) {
		pythontest.Run(t, pythontest.Environment(t, python, "numpy"), suite(t, "tests/with_numpy"))
	})
}
