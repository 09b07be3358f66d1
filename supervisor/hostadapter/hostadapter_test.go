package hostadapter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

func TestTheHostsPythonIsLaidOutWhole(t *testing.T) {
	folder, err := hostadapter.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("comfy_supervisor/*.py")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	for _, source := range sources {
		want, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, source))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s was laid out differently: %v", source, err)
		}
	}
	for _, shared := range []string{"__init__.py", "channel.py", "values.py", "memory.py"} {
		if _, err := os.Stat(filepath.Join(folder, "comfy_supervisor", "wire", shared)); err != nil {
			t.Error(err)
		}
	}
}

// suite is a folder of unittests that use the client with real workers.
func suite(t *testing.T, directory string) pythontest.Suite {
	t.Helper()
	cache := t.TempDir()
	program, err := pyworker.Layout(cache)
	if err != nil {
		t.Fatal(err)
	}
	host, err := hostadapter.Layout(cache)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Abs("tests")
	if err != nil {
		t.Fatal(err)
	}
	miniature, err := filepath.Abs("../../testdata/comfyui")
	if err != nil {
		t.Fatal(err)
	}
	return pythontest.Suite{
		Directory:  directory,
		PythonPath: []string{host, tests},
		Environ:    []string{"COMFY_SUPERVISOR_TEST_PROGRAM=" + program, "COMFY_SUPERVISOR_TEST_COMFYUI=" + miniature},
	}
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
