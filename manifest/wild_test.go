package manifest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the verdicts found as the ones expected")

const (
	wildFile     = "../testdata/manifests/wild.txtar"
	verdictsFile = "../testdata/manifests/verdicts.txt"
)

// wild are manifests as pack authors wrote them.
func wild(t testing.TB) []txtar.File {
	t.Helper()
	archive, err := txtar.ParseFile(wildFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 50 {
		t.Fatalf("%s holds %d manifests only", wildFile, len(archive.Files))
	}
	return archive.Files
}

// verdict writes a file's diagnostics, one a line.
func verdict(name string, diagnostics []Diagnostic) string {
	var out strings.Builder
	state := "ok"
	if HasErrors(diagnostics) {
		state = "refused"
	}
	fmt.Fprintf(&out, "%s %s\n", name, state)
	for _, d := range diagnostics {
		fmt.Fprintf(&out, "\t%d:%d %s %s: %s; %s\n", d.Line, d.Column, d.Severity, d.Code, d.Message, d.Fix)
	}
	return out.String()
}

func TestManifestsOfTheWildGetTheirVerdicts(t *testing.T) {
	var got strings.Builder
	for _, file := range wild(t) {
		_, diagnostics := ParseFor("linux-64", file.Name, file.Data)
		got.WriteString(verdict(file.Name, diagnostics))
	}
	if *update {
		if err := os.WriteFile(verdictsFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(verdictsFile)
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); difference != "" {
		t.Errorf("verdicts differ from %s (-want +got):\n%s", verdictsFile, difference)
	}
}

func TestAManifestIsUnderstoodAsItWasMeant(t *testing.T) {
	const content = `python = "3.11"  # Required by bpy 4.2

[dependencies]
c-compiler = "*"
bpy = { version = ">=4", channel = "pozzettiandrea", build = "*gpu*", sha256 = "00" }
torch = "*"

[cuda]
packages = ["flash-attn", "torch-scatter>=2.1"]

[pypi-dependencies]
numpy = ">=1.23, <2.0"
trimesh = { version = "*", extras = ["easy"], env-markers = "sys_platform == 'linux'", index = "https://index.example/simple/" }
utils3d = { git = "https://github.com/a/utils3d.git", rev = "9a4eb15", subdirectory = "python", lfs = true }
wheel-thing = { url = "https://host.example/thing-1.0-py3-none-any.whl" }
local = { path = "./local", editable = true }
comfy_aimdo = "*"

[pypi-dependencies.table]
version = "~=1.4"

[target.linux-64.pypi-dependencies]
triton = ">=3.0.0"

[target.win.dependencies]
ffmpeg = "4.*"

[target.unix.activation]
scripts = ["unix.sh"]

[pypi-options]
index-url = "https://index.example/simple"
extra-index-urls = ["https://other.example/simple"]
find-links = [{ path = "./wheels" }, { url = "https://links.example/" }]
no-build = true
no-binary = ["numpy"]
index-strategy = "unsafe-best-match"
prerelease-mode = "allow"

[pypi-options.dependency-overrides]
numpy = "==1.26"

[activation]
scripts = ["activate.sh"]
env = { MODE = "fast" }

[workspace]
channels = ["conda-forge", { channel = "pozzettiandrea", priority = 3 }]

[system-requirements]
cuda = "12.4"

[env_vars]
KMP_DUPLICATE_LIB_OK = "TRUE"
OMP_NUM_THREADS = 1

[options]
health_check_timeout = 2.5
call_silence = "10m"
idle_release = 0

[options.memory]
vram = "8GiB"
ram = "40%"
`
	m, diagnostics := ParseFor("linux-64", "nodes/comfy-env.toml", []byte(content))
	if HasErrors(diagnostics) {
		t.Fatalf("it is refused:\n%s", verdict("", diagnostics))
	}
	at := func(line int) Position { return Position{Line: line, Column: 1} }
	checks := []struct {
		name      string
		got, want any
	}{
		{"Python", m.Python, "3.11"},
		{"the digest", len(m.Digest), 64},
		{"CUDA packages", m.CUDAPackages, []CUDAPackage{{Name: "flash-attn", At: Position{9, 13}}, {Name: "torch-scatter", Version: ">=2.1", At: Position{9, 27}}}},
		{"conda packages", m.Dependencies, []CondaDependency{{Name: "c-compiler", Version: "*", At: at(4)},
			{Name: "bpy", Version: ">=4", Channel: "pozzettiandrea", Build: "*gpu*", Other: map[string]any{"sha256": "00"}, At: at(5)}}},
		{"Python packages", m.PyPIDependencies, []Requirement{
			{Name: "numpy", Version: ">=1.23, <2.0", At: at(12)},
			{Name: "trimesh", Extras: []string{"easy"}, Marker: "sys_platform == 'linux'", Index: "https://index.example/simple/", At: at(13)},
			{Name: "utils3d", Git: "https://github.com/a/utils3d.git", Rev: "9a4eb15", Subdirectory: "python", LFS: true, At: at(14)},
			{Name: "wheel-thing", URL: "https://host.example/thing-1.0-py3-none-any.whl", At: at(15)},
			{Name: "local", Path: "./local", Editable: true, At: at(16)},
			{Name: "table", Version: "~=1.4", At: Position{19, 20}},
		}},
		{"targets", m.Targets, []Target{
			{Selector: "linux-64", PyPIDependencies: []Requirement{{Name: "triton", Version: ">=3.0.0", At: at(23)}}, At: Position{22, 9}},
			{Selector: "win", Dependencies: []CondaDependency{{Name: "ffmpeg", Version: "4.*", At: at(26)}}, At: Position{25, 9}},
			{Selector: "unix", Activation: Activation{Scripts: []string{"unix.sh"}, ScriptsAt: at(29)}, At: Position{28, 9}},
		}},
		{"index options", m.PyPIOptions, PyPIOptions{IndexURL: "https://index.example/simple", ExtraIndexURLs: []string{"https://other.example/simple"},
			FindLinks: []FindLink{{Path: "./wheels"}, {URL: "https://links.example/"}}, NoBuild: PackageSet{All: true}, NoBinary: PackageSet{Packages: []string{"numpy"}},
			IndexStrategy: "unsafe-best-match", PrereleaseMode: "allow", DependencyOverrides: []Requirement{{Name: "numpy", Version: "==1.26", At: at(41)}}}},
		{"activation", m.Activation, Activation{Scripts: []string{"activate.sh"}, Env: map[string]string{"MODE": "fast"}, ScriptsAt: at(44)}},
		{"channels", m.Channels, []Channel{{Name: "conda-forge"}, {Name: "pozzettiandrea", Priority: 3}}},
		{"system requirements", m.SystemRequirements, map[string]any{"cuda": "12.4"}},
		{"variables", m.EnvVars, map[string]string{"KMP_DUPLICATE_LIB_OK": "TRUE", "OMP_NUM_THREADS": "1"}},
		{"the health check's time", m.Options.HealthCheckTimeout.String(), "2.5s"},
		{"the silence limit", m.Options.CallSilence.String(), "10m0s"},
		{"the idle time", m.Options.IdleRelease.String(), "0s"},
		{"the VRAM cap", *m.Options.Memory.VRAM, Amount{Bytes: 8 << 30}},
		{"the RAM cap", *m.Options.Memory.RAM, Amount{Percent: 40}},
		{"no pinned RAM cap", m.Options.Memory.PinnedRAM == nil, true},
		{"what the host decides", len(m.Stripped), 2},
		{"what pixi gets of the conda packages", m.PassThrough["dependencies"], any(map[string]any{"c-compiler": "*",
			"bpy": map[string]any{"version": ">=4", "channel": "pozzettiandrea", "build": "*gpu*", "sha256": "00"}})},
		{"what pixi does not get", m.PassThrough["cuda"], nil},
	}
	for _, c := range checks {
		if difference := cmp.Diff(c.want, c.got); difference != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, difference)
		}
	}
	if pypi := m.PassThrough["pypi-dependencies"].(map[string]any); pypi["comfy_aimdo"] != nil || pypi["numpy"] != ">=1.23, <2.0" {
		t.Errorf("pixi gets the Python packages %v", pypi)
	}
}

func TestARootFileIsUnderstoodAsItWasMeant(t *testing.T) {
	const content = `[node_packs]
ComfyUI-KJNodes = "kijai/ComfyUI-KJNodes"
Other = { github = "a/other", tag = "v1" }
Third = { registry = "third", version = "1.2" }

[types]
TRIMESH = "custom"
MESH = "builtin"
`
	m, diagnostics := ParseFor("linux-64", "pack/comfy-env-root.toml", []byte(content))
	if len(diagnostics) > 0 {
		t.Fatalf("it has diagnostics:\n%s", verdict("", diagnostics))
	}
	if !m.Root {
		t.Error("it is not taken for a root file")
	}
	packs := []NodePack{
		{Name: "ComfyUI-KJNodes", GitHub: "kijai/ComfyUI-KJNodes", At: Position{2, 1}},
		{Name: "Other", GitHub: "a/other", Tag: "v1", At: Position{3, 1}},
		{Name: "Third", Registry: "third", Version: "1.2", At: Position{4, 1}},
	}
	if difference := cmp.Diff(packs, m.NodePacks); difference != "" {
		t.Errorf("packs (-want +got):\n%s", difference)
	}
	if difference := cmp.Diff(map[string]string{"TRIMESH": "custom", "MESH": "builtin"}, m.Types); difference != "" {
		t.Errorf("types (-want +got):\n%s", difference)
	}
}

func TestAnEmptyManifestIsValid(t *testing.T) {
	for _, name := range []string{EnvironmentFile, RootFile} {
		for _, content := range []string{"", "\n", "# only a comment", "\r\n"} {
			if m, diagnostics := Parse(name, []byte(content)); len(diagnostics) > 0 || m == nil {
				t.Errorf("%s with %q has diagnostics:\n%s", name, content, verdict("", diagnostics))
			}
		}
	}
}
