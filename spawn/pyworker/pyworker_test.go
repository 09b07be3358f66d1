package pyworker_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
)

func TestTheProgramIsLaidOutWhole(t *testing.T) {
	program, err := pyworker.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"__main__.py", "comfy_supervisor_worker/__init__.py", "comfy_supervisor_worker/wire/__init__.py", "comfy_supervisor_worker/wire/values.py"} {
		if _, err := os.Stat(filepath.Join(program, filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
	for folder, below := range map[string]string{"worker": "comfy_supervisor_worker", "wire": "comfy_supervisor_worker/wire", "program": ""} {
		sources, err := filepath.Glob(filepath.Join(folder, "*.py"))
		if err != nil || len(sources) == 0 {
			t.Fatalf("no sources in %s: %v", folder, err)
		}
		for _, source := range sources {
			want, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(program, filepath.FromSlash(below), filepath.Base(source)))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s was laid out differently: %v", source, err)
			}
		}
	}
}

func TestTheSameContentIsLaidOutOnce(t *testing.T) {
	cache := t.TempDir()
	first, err := pyworker.Layout(cache)
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(first, "comfy_supervisor_worker", "__pycache__")
	if err := os.Mkdir(marker, 0o755); err != nil { // what Python adds stays
		t.Fatal(err)
	}
	second, err := pyworker.Layout(cache)
	if err != nil || second != first {
		t.Fatalf("laid out at %s, then at %s: %v", first, second, err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error("the second time replaced what was right")
	}
}

func TestOtherContentIsLaidOutElsewhere(t *testing.T) {
	cache := t.TempDir()
	one, err := pyworker.Sources{"a.py": []byte("1"), "b.py": []byte("")}.Layout(cache, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []pyworker.Sources{
		{"a.py": []byte("2"), "b.py": []byte("")}, {"a.py": []byte(""), "b.py": []byte("1")}, {"a.py": []byte("1")}, {"a.pyb": []byte("1"), "b.py": nil},
	} {
		path, err := other.Layout(cache, "x")
		if err != nil || path == one {
			t.Errorf("%v was laid out at %s: %v", other, path, err)
		}
	}
}

func TestADamagedLayoutIsReplaced(t *testing.T) {
	cache := t.TempDir()
	program, err := pyworker.Layout(cache)
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(program, "__main__.py")
	for name, damage := range map[string]func() error{
		"changed": func() error { return os.WriteFile(main, []byte("raise SystemExit"), 0o644) },
		"missing": func() error { return os.Remove(main) },
		"gone":    func() error { return os.RemoveAll(program) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			again, err := pyworker.Layout(cache)
			if err != nil || again != program {
				t.Fatalf("laid out at %s: %v", again, err)
			}
			content, err := os.ReadFile(main)
			if err != nil || !strings.Contains(string(content), "comfy_supervisor_worker") {
				t.Errorf("the damage is still there: %v", err)
			}
		})
	}
	leftovers(t, filepath.Dir(program), filepath.Base(program))
}

func TestManyAtOnceLayOutOne(t *testing.T) {
	cache := t.TempDir()
	var group sync.WaitGroup
	programs := make([]string, 16)
	for i := range programs {
		group.Go(func() {
			program, err := pyworker.Layout(cache)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(program, "__main__.py")); err != nil {
				t.Error(err)
			}
			programs[i] = program
		})
	}
	group.Wait()
	for _, program := range programs {
		if program != programs[0] {
			t.Errorf("laid out at %s and at %s", programs[0], program)
		}
	}
	leftovers(t, filepath.Dir(programs[0]), filepath.Base(programs[0]))
}

func TestACacheThatHoldsItMayBeReadOnly(t *testing.T) {
	cache := t.TempDir()
	program, err := pyworker.Layout(cache)
	if err != nil {
		t.Fatal(err)
	}
	protect := func(mode os.FileMode) {
		for _, folder := range []string{program, filepath.Dir(program), cache} {
			if err := os.Chmod(folder, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	protect(0o555)
	defer protect(0o755)
	again, err := pyworker.Layout(cache)
	if err != nil || again != program {
		t.Errorf("laid out at %s: %v", again, err)
	}
}

func TestACacheThatCanNotBeMadeIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := pyworker.Layout(file)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "COMFY_SUPERVISOR_CACHE_DIR") {
		t.Errorf("the error is %v", err)
	}
}

// leftovers fails the test if a folder holds anything else than one entry.
func leftovers(t *testing.T, folder, only string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != only {
			t.Errorf("%s is left over", entry.Name())
		}
	}
}

func TestTheSourcesHoldNoByteCode(t *testing.T) {
	sources := pyworker.Sources{}
	if err := pyworker.AddWire(sources, "w"); err != nil {
		t.Fatal(err)
	}
	for name := range sources {
		if filepath.Ext(name) != ".py" || !fs.ValidPath(name) {
			t.Errorf("%s is laid out", name)
		}
	}
}
