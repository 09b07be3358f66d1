package envbuild

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestAVirtualEnvironmentIsReadFromItsFilesAndNeverStarted(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cu128", "torchvision", "0.25.0", "comfy-aimdo", "0.4.11", "numpy", "2.1.0", "unrelated", "1.0")
	before := m.facts()
	mark := filepath.Join(m.folder, "started")
	// The interpreter becomes a script that leaves a mark; nothing else of the environment changes.
	if err := os.Remove(m.host); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, m.host, "#!/bin/sh\ntouch '"+mark+"'\n")
	facts := m.facts()
	if _, err := os.Stat(mark); err == nil {
		t.Error("the interpreter was started")
	}
	if !reflect.DeepEqual(facts, before) {
		t.Errorf("facts differ:\n%+v\n%+v", before, facts)
	}
	want := map[string]string{"torch": "2.10.0", "torchvision": "0.25.0", "comfy-aimdo": "0.4.11", "numpy": "2.1.0"}
	if !reflect.DeepEqual(facts.Packages, want) {
		t.Errorf("packages %v", facts.Packages)
	}
	if facts.Torch != (TorchFacts{Version: "2.10.0+cu128", Build: "cu128"}) || facts.ComfyUI.Version != "0.30.0" {
		t.Errorf("%+v", facts)
	}
	if facts.Python.BaseExecutable == facts.Python.Executable || minorVersion(facts.Python.Version) == "" {
		t.Errorf("%+v", facts.Python)
	}
}

func TestEveryWayOfMakingAVirtualEnvironmentIsUnderstood(t *testing.T) {
	t.Parallel()
	python := needPython(t, "")
	base, err := prober{}.ask(t.Context(), python)
	if err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]string{
		"venv":        {python, "-m", "venv", "--without-pip"},
		"venv copies": {python, "-m", "venv", "--without-pip", "--copies"},
		"venv system": {python, "-m", "venv", "--without-pip", "--system-site-packages"},
		"uv":          {needUV(t), "venv", "--quiet", "--python", python},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := filepath.Join(t.TempDir(), "environment")
			if output, err := exec.Command(arguments[0], append(arguments[1:], prefix)...).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, output)
			}
			found, err := prober{}.interpreter(t.Context(), prefixPython(prefix))
			if err != nil {
				t.Fatal(err)
			}
			if found.Version != base.Version || found.BaseExecutable == prefixPython(prefix) || found.SitePackages[0] != sitePackages(prefix, base.Version) {
				t.Errorf("%+v", found)
			}
			if asked, err := runProbe(t.Context(), prefixPython(prefix)); err != nil || asked.Version != found.Version {
				t.Errorf("it says of itself %+v, %v", asked, err)
			}
			if name == "venv system" && len(found.SitePackages) < 2 {
				t.Errorf("the system's packages are missing: %v", found.SitePackages)
			}
		})
	}
}

func TestAnInterpreterThatIsNoVirtualEnvironmentIsAskedOnceForItsBytes(t *testing.T) {
	t.Parallel()
	python := needPython(t, "")
	cache := t.TempDir()
	first, err := prober{cache: cache}.interpreter(t.Context(), python)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(cache, "interpreters", "*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	content, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, kept[0], strings.Replace(string(content), first.Version, "3.99.0", 1))
	second, err := prober{cache: cache}.interpreter(t.Context(), python)
	if err != nil || second.Version != "3.99.0" {
		t.Errorf("it was started again: %+v %v", second, err)
	}
	writeFile(t, kept[0], "cut sho")
	if third, err := (prober{cache: cache}).interpreter(t.Context(), python); err != nil || third.Version != first.Version {
		t.Errorf("a broken cache: %+v %v", third, err)
	}
}

func TestAScriptThatStartsAPythonIsAskedEachTime(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no scripts that are interpreters")
	}
	script := filepath.Join(t.TempDir(), "python")
	cache := t.TempDir()
	for _, version := range []string{"3.11.9", "3.12.1"} {
		writeProgram(t, script, `#!/bin/sh
echo '{"version": "`+version+`", "executable": "/usr/bin/python", "implementation": "cpython"}'
`)
		found, err := prober{cache: cache}.interpreter(t.Context(), script)
		if err != nil || found.Version != version {
			t.Errorf("%+v %v", found, err)
		}
	}
}

func TestWhatIsNoInterpreterIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	silent := filepath.Join(folder, "silent")
	writeProgram(t, silent, "#!/bin/sh\nexit 0\n")
	failing := filepath.Join(folder, "failing")
	writeProgram(t, failing, "#!/bin/sh\necho 'libpython3.so: cannot open shared object file' >&2\nexit 127\n")
	text := filepath.Join(folder, "text")
	writeFile(t, text, "hello")
	for path, want := range map[string]string{
		silent: "does not answer as a Python", failing: "cannot open shared object file", text: "does not run as a Python 3",
		folder: "is a folder", filepath.Join(folder, "missing"): "no such file",
	} {
		_, err := ReadFacts(t.Context(), FactsSource{Python: path, Environ: os.Environ()})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTheBuildKindIsReadFromTorchsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n":  "cu128",
		"__version__ = '2.10.0'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n":        "cu128",
		"__version__ = '2.1.2+cu121'\ndebug = False\ncuda = '12.1'\nhip = None\n":                  "cu121",
		"__version__ = '2.9.0+cu130'\ncuda = '13.0'\n":                                             "cu130",
		"__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n":      "cpu",
		"__version__ = '2.10.0'\ncuda: Optional[str] = None\n":                                     "cpu",
		"__version__ = '2.9.1+rocm6.4'\ncuda = None\nhip: Optional[str] = '6.4.43484-123639ef4'\n": "rocm6.4",
		"__version__ = '2.5.1+rocm6.2.4'\ncuda = None\nhip = '6.2.41134'\n":                        "rocm6.2.4",
		"__version__ = '2.7.0a0+git3f903c3'\ncuda = None\nhip = '6.3.42134'\n":                     "rocm6.3",
		"__version__ = '2.10.0+xpu'\ncuda = None\nhip = None\nxpu: Optional[str] = '20250301'\n":   "xpu",
	} {
		site := t.TempDir()
		writeFile(t, filepath.Join(site, "torch", "version.py"), text)
		got, err := readTorch([]string{filepath.Join(site, "missing"), site}, "2.10.0")
		if err != nil || got.Build != want {
			t.Errorf("%q: %q, %v; want %q", text, got.Build, err, want)
		}
	}
	if _, err := readTorch([]string{t.TempDir()}, "2.10.0"); err == nil || !strings.Contains(err.Error(), "install torch again") {
		t.Errorf("metadata without torch: %v", err)
	}
}

func TestTheBuildKindFollowsTheCardThatIsThere(t *testing.T) {
	t.Parallel()
	card := func(kinds ...string) []GPUDevice {
		var devices []GPUDevice
		for _, kind := range kinds {
			devices = append(devices, GPUDevice{Kind: kind})
		}
		return devices
	}
	for _, one := range []struct {
		torch   string
		devices []GPUDevice
		want    string
		kind    string
	}{
		{"cu128", nil, "cpu", ""},
		{"cu128", card("nvidia"), "cu128", "nvidia"},
		{"cu128", card("nvidia", "nvidia"), "cu128", "nvidia"},
		{"cu128", card("intel", "nvidia"), "cu128", "nvidia"},
		{"cu128", card("amd"), "cpu", "amd"},
		{"rocm6.4", card("nvidia", "amd"), "rocm6.4", "amd"},
		{"rocm6.4", card("nvidia"), "cpu", "nvidia"},
		{"cpu", card("nvidia"), "cpu", "nvidia"},
		{"cpu", card("apple"), "cpu", "apple"},
		{"xpu", card("intel"), "xpu", "intel"},
	} {
		facts := Facts{Torch: TorchFacts{Version: "2.10.0", Build: one.torch}, GPU: preferGPU(one.devices, one.torch)}
		if got, reason := facts.BuildKind(); got != one.want || facts.GPU.Kind != one.kind || reason == "" {
			t.Errorf("torch %s, cards %v: %s (%s), GPU %q", one.torch, one.devices, got, reason, facts.GPU.Kind)
		}
	}
}

func TestADriverThatIsTooOldForTheHostsTorchIsSaid(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		driver, build string
		said          bool
	}{
		{"470.57.02", "cu128", true}, {"525.60.13", "cu128", false}, {"570.124.06", "cu130", true}, {"580.65.06", "cu130", false},
		{"470.57.02", "cu118", false}, {"", "cu128", false}, {"470.57.02", "cpu", false}, {"470.57.02", "rocm6.4", false}, {"470.57.02", "cu", false},
	} {
		facts := linuxHost("2.10.0", one.build, "nvidia")
		facts.GPU.Driver = one.driver
		plan, err := planOf(t, "", facts, Endpoints{})
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(plan.Lines, "\n"), "this torch will not see the card"); said != one.said {
			t.Errorf("driver %s, torch for %s: %q", one.driver, one.build, plan.Lines)
		}
	}
}

func TestFactsSurviveAFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cu128")
	facts := m.facts()
	folder := t.TempDir()
	path, err := SaveFacts(folder, facts)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := ReadFacts(t.Context(), FactsSource{File: path})
	if err != nil || !reflect.DeepEqual(loaded, facts) {
		t.Errorf("%+v\n%+v\n%v", facts, loaded, err)
	}
	facts.Environ = map[string]string{"OTHER": "1"}
	if again, err := SaveFacts(folder, facts); err != nil || again != path {
		t.Errorf("other variables made another host: %s %s %v", path, again, err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v: variables may be secret", info.Mode(), err)
	}
}

func TestFactsFilesThatAreIncompleteAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`: "unexpected end", `{}`: "python.version", `{"python":{"version":"three"}}`: "python.version",
		`{"python":{"version":"3.12.1"},"packages":{"torch":"2.10.0"}}`: "torch.build",
		`{"format":99,"python":{"version":"3.12.1"}}`:                   "format is 99",
	} {
		path := filepath.Join(t.TempDir(), "facts.json")
		writeFile(t, path, text)
		if _, err := LoadFacts(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "facts.json")
	writeFile(t, path, `{"python":{"version":"3.12.1"},"torch":{"version":"2.10.0+cpu","build":"cpu"}}`)
	if facts, err := LoadFacts(path); err != nil || facts.Stack() != "py312-torch2.10-cpu" {
		t.Errorf("the least that is enough: %+v %v", facts, err)
	}
}
