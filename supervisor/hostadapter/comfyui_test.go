package hostadapter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

// adapterSuite is a folder of unittests that import the adapter's modules as they are laid out.
func adapterSuite(t *testing.T, folder string) pythontest.Suite {
	t.Helper()
	adapter, err := hostadapter.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := filepath.Abs("../../spawn/pyworker/tests")
	if err != nil {
		t.Fatal(err)
	}
	return pythontest.Suite{Directory: folder, PythonPath: []string{adapter, tests, shared}}
}

func TestTheUnittestsOfTheAdapterPass(t *testing.T) {
	pythontest.Each(t, func(t *testing.T, python pythontest.Interpreter) {
		pythontest.Run(t, python.Path, adapterSuite(t, "tests/adapter"))
	})
}

func TestEveryModuleThatPacksImportIsLaidOut(t *testing.T) {
	adapter, err := hostadapter.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"comfy_env/__init__.py", "comfy_env/isolation/__init__.py", "comfy_env/isolation/wrap.py",
		"comfy_env/isolation/workers/__init__.py", "comfy_env/isolation/workers/_ipc_shared.py",
		"comfyui_adapter/__init__.py", "comfyui_adapter/launch.py", "comfyui_adapter/program.txt",
	} {
		if _, err := os.Stat(filepath.Join(adapter, filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
}
