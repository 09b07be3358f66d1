package manifest

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// tree makes files (and, with a slash at the end, folders) below a folder.
func tree(t *testing.T, folder string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(folder, filepath.FromSlash(file))
		if strings.HasSuffix(file, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnvironmentNamesAreThoseThatExist(t *testing.T) {
	for _, c := range []struct{ pack, file, want string }{
		{"/c/comfyui-sam3", "/c/comfyui-sam3/nodes/comfy-env.toml", "sam3-nodes"},
		{"/c/ComfyUI-GeometryPack", "/c/ComfyUI-GeometryPack/nodes/blender/comfy-env.toml", "geometrypack-blender"},
		{"/c/comfyui_UniRig", "/c/comfyui_UniRig/nodes/comfy-env.toml", "unirig-nodes"},
		{"/c/COMFYUI-X", "/c/COMFYUI-X/nodes/comfy-env.toml", "comfyui-x-nodes"},
		{"/c/Foo._disabled", "/c/Foo._disabled/comfy-env.toml", "foo-disabled"},
		{"/c/My Pack (2)", "/c/My Pack (2)/nodes/nodes_gpu/comfy-env.toml", "my-pack-2-nodes-gpu"},
		{"/c/--a__b--", "/c/--a__b--/nodes/comfy-env.toml", "a-b-nodes"},
		{"/c/日本", "/c/日本/nodes/comfy-env.toml", "nodes"},
		{"/c/日本", "/c/日本/nodes/語/comfy-env.toml", ""},
		{"pack", "pack/nodes/comfy-env.toml", "pack-nodes"},
		{"/c/ComfyUI-ComfyUI-x", "/c/ComfyUI-ComfyUI-x/nodes/comfy-env.toml", "comfyui-x-nodes"},
	} {
		if got := EnvironmentName(filepath.FromSlash(c.pack), filepath.FromSlash(c.file)); got != c.want {
			t.Errorf("%s in %s is %q, want %q", c.file, c.pack, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := sanitizeName(rapid.String().Draw(t, "name"))
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
			t.Fatalf("the name is %q", name)
		}
		if again := sanitizeName(name); again != name {
			t.Fatalf("%q becomes %q", name, again)
		}
	})
}

func TestManifestsAreFoundWhereNodesAreLookedForAndNowhereElse(t *testing.T) {
	comfyui := t.TempDir()
	tree(t, comfyui, "main.py", "custom_nodes/ComfyUI-A/nodes/comfy-env.toml", "custom_nodes/ComfyUI-A/nodes/gpu/comfy-env.toml",
		"custom_nodes/ComfyUI-A/nodes/gpu/deep/comfy-env.toml", "custom_nodes/ComfyUI-A/nodes/_private/comfy-env.toml", "custom_nodes/ComfyUI-A/nodes/.git/comfy-env.toml",
		"custom_nodes/B/nodes/plain/", "custom_nodes/C.disabled/nodes/comfy-env.toml", "custom_nodes/_D/nodes/comfy-env.toml", "custom_nodes/.E/nodes/comfy-env.toml",
		"custom_nodes/F/__init__.py", "custom_nodes/single.py", "custom_nodes/G/nodes/off.disabled/comfy-env.toml")
	nodes := filepath.Join(comfyui, "custom_nodes")
	packA := filepath.Join(nodes, "ComfyUI-A")
	want := []Found{
		{PackDirectory: packA, NodesDirectory: filepath.Join(packA, "nodes"), File: filepath.Join(packA, "nodes", EnvironmentFile), Name: "a-nodes"},
		{PackDirectory: packA, NodesDirectory: filepath.Join(packA, "nodes", "gpu"), File: filepath.Join(packA, "nodes", "gpu", EnvironmentFile), Name: "a-gpu"},
	}
	for _, folder := range []string{comfyui, nodes, packA} {
		found, problems := Discover(folder)
		if difference := cmp.Diff(want, found); difference != "" || len(problems) > 0 {
			t.Errorf("in %s (-want +got):\n%s\nproblems %v", folder, difference, problems)
		}
	}
	found, problems := DiscoverAll([]string{packA, comfyui})
	if len(found) != 2 || len(problems) > 0 {
		t.Errorf("a pack reached twice gives %v, %v", found, problems)
	}
}

func TestTwoManifestsOfOneNameAreAnErrorThatNamesBoth(t *testing.T) {
	comfyui := t.TempDir()
	tree(t, comfyui, "custom_nodes/ComfyUI-Same/nodes/comfy-env.toml", "custom_nodes/same/nodes/comfy-env.toml")
	found, problems := Discover(comfyui)
	if len(found) != 1 || len(problems) != 1 {
		t.Fatalf("found %v, problems %v", found, problems)
	}
	p := problems[0]
	first := filepath.Join(comfyui, "custom_nodes", "ComfyUI-Same", "nodes", EnvironmentFile)
	if p.Code != CodeDuplicateName || p.Severity != Error || p.File != filepath.Join(comfyui, "custom_nodes", "same", "nodes", EnvironmentFile) {
		t.Errorf("the problem is %+v", p)
	}
	if len(p.Related) != 1 || p.Related[0].File != first || !strings.Contains(p.Message, `"same-nodes"`) || !strings.Contains(p.Fix, filepath.Join(comfyui, "custom_nodes", "same")) {
		t.Errorf("it does not name both places and what to rename: %+v", p)
	}
}

func TestFilesInTheWrongPlaceAreWarnedOf(t *testing.T) {
	pack := filepath.Join(t.TempDir(), "pack")
	tree(t, pack, "comfy-env.toml", "nodes/comfy-env-root.toml", "comfy-env-root.toml")
	found, problems := Discover(pack)
	if len(found) != 0 || len(problems) != 2 {
		t.Fatalf("found %v, problems %v", found, problems)
	}
	for i, want := range []struct{ file, fix string }{
		{filepath.Join(pack, EnvironmentFile), filepath.Join(pack, "nodes", EnvironmentFile)}, {filepath.Join(pack, "nodes", RootFile), filepath.Join(pack, RootFile)},
	} {
		if p := problems[i]; p.File != want.file || p.Code != CodeMisplacedFile || p.Severity != Warning || !strings.Contains(p.Fix, want.fix) {
			t.Errorf("got %+v, want one about %s", p, want.file)
		}
	}
}

func TestOddFilesInTheWayAreReportedAndTheRestIsFound(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links and permissions are other things there")
	}
	nodes := filepath.Join(t.TempDir(), "custom_nodes")
	tree(t, nodes, "a/nodes/comfy-env.toml/", "b/nodes/comfy-env.toml", "real/comfy-env.toml", "closed/nodes/comfy-env.toml")
	for link, target := range map[string]string{"circle": "circle", "nowhere": "missing", "linked/nodes": "../../real-nodes"} {
		path := filepath.Join(nodes, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(nodes, "..", "real-nodes")
	tree(t, outside, "comfy-env.toml")
	closed := filepath.Join(nodes, "closed", "nodes")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o755) }) // so that the folder can be removed
	found, problems := Discover(nodes)
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	for _, want := range []string{"a-nodes", "b-nodes", "linked-nodes"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not found among %v", want, names)
		}
	}
	if !slices.ContainsFunc(problems, func(d Diagnostic) bool { return d.File == filepath.Join(nodes, "circle") && d.Code == CodeUnreadable }) {
		t.Errorf("the circle is not reported: %v", problems)
	}
	if os.Geteuid() != 0 && !slices.ContainsFunc(problems, func(d Diagnostic) bool { return strings.HasPrefix(d.File, closed) && d.Severity == Error }) {
		t.Errorf("the closed folder is not reported: %v", problems)
	}
	if _, diagnostics := Load(filepath.Join(nodes, "a", "nodes", EnvironmentFile)); len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Message, "folder") {
		t.Errorf("a folder in the file's place: %v", diagnostics)
	}
	for _, d := range problems {
		checkDiagnostics(t, nil, []Diagnostic{{Position: d.Position, Length: d.Length, Severity: d.Severity, Code: d.Code, Message: d.Message, Fix: d.Fix}})
	}
}

func TestFilesThatCanNotBeReadAreDiagnosed(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large", EnvironmentFile)
	tree(t, folder, "large/comfy-env.toml", "closed/comfy-env.toml")
	if err := os.Truncate(large, MaxFileSize+1); err != nil {
		t.Fatal(err)
	}
	for file, code := range map[string]Code{large: CodeTooLarge, filepath.Join(folder, "missing.toml"): CodeUnreadable, folder: CodeUnreadable} {
		m, diagnostics := Load(file)
		if len(diagnostics) != 1 || diagnostics[0].Code != code || diagnostics[0].Line != 1 || diagnostics[0].Severity != Error || m == nil {
			t.Errorf("%s gives %+v", file, diagnostics)
		}
	}
	if runtime.GOOS != "windows" {
		if _, problem := ReadFile("/dev/zero"); problem == nil || !strings.Contains(problem.Message, "regular") {
			t.Errorf("a device gives %+v", problem)
		}
	}
}

func TestAPlatformIsMatchedByItsNameAndItsFamily(t *testing.T) {
	for _, c := range []struct {
		selector, platform string
		want               bool
	}{
		{"linux-64", "linux-64", true}, {"linux", "linux-64", true}, {"unix", "linux-64", true}, {"win", "linux-64", false}, {"linux-aarch64", "linux-64", false},
		{"unix", "osx-arm64", true}, {"osx", "osx-arm64", true}, {"unix", "win-64", false}, {"win", "win-arm64", true},
	} {
		if got := MatchesPlatform(c.selector, c.platform); got != c.want {
			t.Errorf("%s for %s is %v", c.selector, c.platform, got)
		}
	}
	for platform, want := range map[string]string{"linux/amd64": "linux-64", "linux/arm64": "linux-aarch64", "windows/amd64": "win-64", "darwin/arm64": "osx-arm64", "plan9/386": "plan9-386"} {
		system, machine, _ := strings.Cut(platform, "/")
		if got := Platform(system, machine); got != want {
			t.Errorf("%s is %s, want %s", platform, got, want)
		}
	}
	if !KnownPlatform(HostPlatform()) {
		t.Errorf("%s is unknown", HostPlatform())
	}
}
