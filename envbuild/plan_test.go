package envbuild

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// planOf plans one manifest text for a host.
func planOf(t *testing.T, text string, facts Facts, endpoints Endpoints) (*Plan, error) {
	t.Helper()
	pack := filepath.Join(t.TempDir(), "pack")
	found := manifest.Found{PackDirectory: pack, NodesDirectory: filepath.Join(pack, "nodes"), File: filepath.Join(pack, "nodes", "comfy-env.toml"), Name: "pack-nodes"}
	parsed, problems := manifest.ParseFor(manifest.Platform(facts.Platform.OS, facts.Platform.Arch), found.File, []byte(text))
	if manifest.HasErrors(problems) {
		t.Fatalf("the test's own manifest: %+v", problems)
	}
	for _, script := range parsed.Activation.Scripts {
		writeFile(t, filepath.Join(found.NodesDirectory, script), "")
	}
	return NewPlan(found, parsed, facts, endpoints)
}

func linuxHost(torch, build string, gpu ...string) Facts {
	facts := Facts{Python: PythonFacts{Version: "3.12.1"}, Packages: map[string]string{}, Platform: PlatformFacts{OS: "linux", Arch: "amd64"}}
	if torch != "" {
		facts.Torch = TorchFacts{Version: torch + "+" + build, Build: build}
		facts.Packages["torch"] = torch
	}
	for _, kind := range gpu {
		facts.GPU.Devices = append(facts.GPU.Devices, GPUDevice{Kind: kind})
	}
	facts.GPU = preferGPU(facts.GPU.Devices, build)
	return facts
}

func TestRequirementsKeepTheirVersionsExtrasMarkersAndPlaces(t *testing.T) {
	t.Parallel()
	plan, err := planOf(t, `
[pypi-dependencies]
plain = "*"
ranged = ">=1.2,<2"
short = "==1.4.*"
Under_Score = { version = ">=3", extras = ["fast", "web"] }
archive = { url = "https://example.org/archive-1.0-py3-none-any.whl" }
cloned = { git = "https://example.org/cloned.git", rev = "abc123", subdirectory = "python" }
tagged = { git = "https://example.org/tagged.git", tag = "v1" }
special = { version = "*", index = "https://example.org/simple" }
`, linuxHost("", ""), Endpoints{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"archive", "cloned", "plain", "ranged>=1.2,<2", "short==1.4.*", "special", "tagged", "under-score[fast,web]>=3"}
	if diff := cmp.Diff(want, plan.Recipe.Requirements); diff != "" {
		t.Error(diff)
	}
	sources := map[string]Source{
		"archive": {URL: "https://example.org/archive-1.0-py3-none-any.whl"},
		"cloned":  {Git: "https://example.org/cloned.git", Rev: "abc123", Subdirectory: "python"},
		"tagged":  {Git: "https://example.org/tagged.git", Tag: "v1"},
		"special": {Index: "https://example.org/simple"},
	}
	if diff := cmp.Diff(sources, plan.Recipe.Sources); diff != "" {
		t.Error(diff)
	}
}

func TestATargetsTableWinsForItsPlatformAlone(t *testing.T) {
	t.Parallel()
	text := `
[pypi-dependencies]
common = ">=1"
varied = ">=1"
[target.unix.pypi-dependencies]
varied = ">=2"
[target.linux-64.pypi-dependencies]
varied = ">=3"
only-linux = "*"
[target.win-64.pypi-dependencies]
only-windows = "*"
varied = ">=4"
`
	for system, want := range map[PlatformFacts][]string{
		{OS: "linux", Arch: "amd64"}:   {"common>=1", "only-linux", "varied>=3"},
		{OS: "linux", Arch: "arm64"}:   {"common>=1", "varied>=2"},
		{OS: "windows", Arch: "amd64"}: {"common>=1", "only-windows", "varied>=4"},
		{OS: "darwin", Arch: "arm64"}:  {"common>=1", "varied>=2"},
	} {
		facts := linuxHost("", "")
		facts.Platform = system
		plan, err := planOf(t, text, facts, Endpoints{})
		if err != nil || !slices.Equal(plan.Recipe.Requirements, want) {
			t.Errorf("%v: %v %v", system, plan.Recipe.Requirements, err)
		}
	}
}

func TestTheInterpreterIsTheManifestsElseTheHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		``:                                      {"3.12", "py312-none"},
		`python = "3.11"`:                       {"3.11", "py311-none"},
		`python = "3.11.9"`:                     {"3.11.9", "py311-none"},
		"[dependencies]\npython = \"3.10.*\"\n": {"3.10", "py310-none"},
		"[dependencies]\npip = \"*\"\n":         {"3.12", "py312-none"},
		"[dependencies]\nsetuptools = \">=60\"\n":                  {"3.12", "py312-none"},
		"python = \"3.12\"\n[dependencies]\npython = \"3.12.*\"\n": {"3.12", "py312-none"},
	} {
		plan, err := planOf(t, text, linuxHost("", ""), Endpoints{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if plan.Recipe.Python != want[0] || plan.Stack != want[1] || plan.HostStack != "py312-none" {
			t.Errorf("%q: Python %s, stack %s for %s", text, plan.Recipe.Python, plan.Stack, plan.HostStack)
		}
	}
}

func TestWhatNeedsCondaIsNamedWithItsTables(t *testing.T) {
	t.Parallel()
	plan, err := planOf(t, "[dependencies]\nffmpeg = \"*\"\npip = \"*\"\n[target.linux-64.dependencies]\nlibgl = \">=1\"\n[target.win-64.dependencies]\nm2w64 = \"*\"\n",
		linuxHost("", ""), Endpoints{})
	if err != nil || plan.Recipe.Backend != BackendPixi {
		t.Fatal(err)
	}
	reason := strings.Join(plan.Lines, "\n")
	for _, part := range []string{"ffmpeg [dependencies]", "libgl [target.linux-64.dependencies]"} {
		if !strings.Contains(reason, part) {
			t.Errorf("%s lacks %q", reason, part)
		}
	}
	if strings.Contains(reason, "pip [") || strings.Contains(reason, "m2w64") {
		t.Error(reason)
	}
}

func TestTheTorchIndexFollowsBuildSettingAndSystem(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ setting, build, system, want string }{
		{"", "cu128", "linux", DefaultTorchIndex + "/cu128"},
		{"", "rocm6.4", "linux", DefaultTorchIndex + "/rocm6.4"},
		{"", "cpu", "windows", DefaultTorchIndex + "/cpu"},
		{"", "cpu", "darwin", ""},
		{"default", "cu128", "linux", ""},
		{"https://mirror.example/whl/", "cu128", "linux", "https://mirror.example/whl/cu128"},
		{"https://mirror.example/{build}/simple", "cpu", "linux", "https://mirror.example/cpu/simple"},
	} {
		if got := torchIndex(one.setting, one.build, one.system); got != one.want {
			t.Errorf("%+v: %q", one, got)
		}
	}
}

func TestCUDAPackagesAreSkippedWithAReasonWhereNoCardIs(t *testing.T) {
	t.Parallel()
	text := "[cuda]\npackages = [\"flash-attn\", \"nvdiffrast\"]\n"
	for reason, facts := range map[string]Facts{
		"this machine has no GPU":          linuxHost("2.10.0", "cu128"),
		"the host has no torch":            linuxHost("", "", "nvidia"),
		"the torch build is rocm6.4":       linuxHost("2.10.0", "rocm6.4", "amd"),
		"the torch build is cpu, not CUDA": linuxHost("2.10.0", "cpu", "nvidia"),
	} {
		plan, err := planOf(t, text, facts, Endpoints{})
		if err != nil || len(plan.Recipe.CUDA) > 0 || !strings.Contains(strings.Join(plan.Lines, "\n"), "skipped (flash-attn, nvdiffrast): "+reason) {
			t.Errorf("%s: %v %v", reason, plan.Lines, err)
		}
	}
	plan, err := planOf(t, text, linuxHost("2.10.0", "cu128", "nvidia"), Endpoints{})
	if err != nil || !slices.Equal(plan.Recipe.CUDA, []string{"flash-attn", "nvdiffrast"}) || plan.Recipe.CUDAIndex != DefaultCUDAWheelsIndex {
		t.Errorf("%+v %v", plan.Recipe, err)
	}
}

func TestTheHashIsOfContentAlone(t *testing.T) {
	t.Parallel()
	text := "[pypi-dependencies]\nsmall = \"*\"\n"
	base, err := planOf(t, text, linuxHost("2.10.0", "cpu"), Endpoints{})
	if err != nil {
		t.Fatal(err)
	}
	patched := linuxHost("2.10.0", "cpu")
	patched.Python.Version = "3.12.9"
	patched.Environ = map[string]string{"A": "b"}
	for name, same := range map[string]func() (*Plan, error){
		"another folder":      func() (*Plan, error) { return planOf(t, text, linuxHost("2.10.0", "cpu"), Endpoints{}) },
		"a comment":           func() (*Plan, error) { return planOf(t, "# hello\n"+text, linuxHost("2.10.0", "cpu"), Endpoints{}) },
		"a patch of the host": func() (*Plan, error) { return planOf(t, text, patched, Endpoints{}) },
		"a variable for the node": func() (*Plan, error) {
			return planOf(t, text+"[env_vars]\nA = \"1\"\n", linuxHost("2.10.0", "cpu"), Endpoints{})
		},
	} {
		if plan, err := same(); err != nil || plan.Hash != base.Hash {
			t.Errorf("%s changed the hash (%v)", name, err)
		}
	}
	pinned := linuxHost("2.10.0", "cpu")
	pinned.Packages["comfy-aimdo"] = "0.4.11"
	for name, other := range map[string]func() (*Plan, error){
		"a version": func() (*Plan, error) {
			return planOf(t, "[pypi-dependencies]\nsmall = \">1\"\n", linuxHost("2.10.0", "cpu"), Endpoints{})
		},
		"a pin":   func() (*Plan, error) { return planOf(t, text, pinned, Endpoints{}) },
		"torch":   func() (*Plan, error) { return planOf(t, text, linuxHost("2.10.1", "cpu"), Endpoints{}) },
		"the GPU": func() (*Plan, error) { return planOf(t, text, linuxHost("2.10.0", "cu128", "nvidia"), Endpoints{}) },
		"the torch index": func() (*Plan, error) {
			return planOf(t, text, linuxHost("2.10.0", "cpu"), Endpoints{TorchIndex: "https://mirror.example"})
		},
		"an index": func() (*Plan, error) {
			return planOf(t, text+"[pypi-options]\nindex-url = \"https://mirror.example/simple\"\n", linuxHost("2.10.0", "cpu"), Endpoints{})
		},
	} {
		if plan, err := other(); err != nil || plan.Hash == base.Hash {
			t.Errorf("%s left the hash (%v)", name, err)
		}
	}
}

func TestALocalProjectsBytesBelongToThePlan(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	project := filepath.Join(folder, "local project")
	writeFile(t, filepath.Join(project, "pyproject.toml"), "[project]\nname = \"local\"\nversion = \"1\"\n")
	writeFile(t, filepath.Join(project, "local", "__init__.py"), "A = 1\n")
	hash := func(editable string) string {
		t.Helper()
		plan, err := planOf(t, "[pypi-dependencies]\nlocal = { path = '"+project+"', editable = "+editable+" }\n", linuxHost("", ""), Endpoints{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Recipe.Sources["local"].Path != project {
			t.Errorf("%+v", plan.Recipe.Sources)
		}
		return plan.Hash
	}
	installed, editable := hash("false"), hash("true")
	writeFile(t, filepath.Join(project, "local", "__pycache__", "x.pyc"), "1")
	if hash("false") != installed {
		t.Error("what Python wrote changed the plan")
	}
	writeFile(t, filepath.Join(project, "local", "__init__.py"), "A = 2\n")
	if hash("false") == installed {
		t.Error("an installed project's code changed and the plan did not")
	}
	if hash("true") != editable {
		t.Error("an editable project's code is read in place, it changes no plan")
	}
	if err := os.RemoveAll(project); err != nil {
		t.Fatal(err)
	}
	if _, err := planOf(t, "[pypi-dependencies]\nlocal = { path = '"+project+"' }\n", linuxHost("", ""), Endpoints{}); err == nil || !strings.Contains(err.Error(), ":2: the path of local") {
		t.Errorf("a path that is gone: %v", err)
	}
}

func TestTheHostsPinsAreNeverThePacks(t *testing.T) {
	t.Parallel()
	facts := linuxHost("2.10.0", "cpu")
	facts.Packages["comfy-kitchen"] = "0.2.1+local"
	plan, err := planOf(t, "[pypi-dependencies]\ncomfy_aimdo = \"*\"\nComfy-Kitchen = \">=9\"\n", facts, Endpoints{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(plan.Recipe.Pins, []string{"comfy-kitchen==0.2.1"}) || len(plan.Recipe.Requirements) > 0 {
		t.Errorf("%+v", plan.Recipe)
	}
	if !strings.Contains(strings.Join(plan.Lines, "\n"), "comfy-aimdo left out: the host does not have it, though line 2") {
		t.Errorf("%q", plan.Lines)
	}
}
