//go:build unix

package envbuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

const condaManifest = "[dependencies]\nffmpeg = \"6.*\"\n[pypi-dependencies]\nsmall = \"*\"\n[env_vars]\nMINE = \"1\"\n"

// commands are the first words of the calls.
func commands(calls []pixiCall) string {
	var words []string
	for _, call := range calls {
		words = append(words, call.Arguments[0])
	}
	return strings.Join(words, " ")
}

func TestAManifestThatNeedsCondaIsBuiltWithPixi(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu", "comfy-aimdo", "0.4.11")
	m.index.torch("cpu", "2.10.0", "cpu")
	double := m.usePixi(t)
	m.config.Environ = append(m.environ, "PIXI_PROJECT_ROOT=/another", "CONDA_PREFIX=/another", "HTTPS_PROXY=http://proxy.example:3128", "PIXI_HOME=/of/mine")
	pack := m.pack("one", condaManifest)
	result := m.mustBuild(OutcomeBuilt, pack)
	if want := filepath.Join(result.Revision, ".pixi", "envs", "default"); result.Prefix != want {
		t.Errorf("prefix %s, want %s", result.Prefix, want)
	}
	if got := installed(t, result, "small", "torch", "comfy-aimdo"); got["small"] != "1.0" || got["torch"] != "2.10.0" || got["comfy-aimdo"] != "0.4.11" {
		t.Errorf("installed %v", got)
	}
	calls := pixiCalls(t, double)
	if commands(calls) != "lock install shell-hook" {
		t.Errorf("calls %s", commands(calls))
	}
	for _, call := range calls {
		if !slices.Contains(call.Arguments, filepath.Join(result.Revision, "pixi.toml")) {
			t.Errorf("%v names another workspace", call.Arguments)
		}
		if call.Environ["PIXI_PROJECT_ROOT"] != "" || call.Environ["CONDA_PREFIX"] != "" || call.Environ["HTTPS_PROXY"] == "" || call.Environ["PIXI_HOME"] != "/of/mine" {
			t.Errorf("environment %v", call.Environ)
		}
	}
	if !slices.Contains(calls[1].Arguments, "--frozen") || !slices.Contains(calls[2].Arguments, "--json") {
		t.Errorf("%v %v", calls[1].Arguments, calls[2].Arguments)
	}
	environment, err := m.store().Find("one-nodes", Query{AnyStack: true})
	if err != nil {
		t.Fatal(err)
	}
	if environment.Backend != BackendPixi || environment.Python != filepath.Join(result.Prefix, "bin", "python") {
		t.Errorf("%+v", environment)
	}
	want := map[string]string{"GDAL_DATA": result.Prefix + "/share/gdal", "FROM_SCRIPT": "$kept as it is"}
	if !maps.Equal(environment.Activated, want) || environment.Variables["MINE"] != "1" {
		t.Errorf("activated %v, want %v; variables %v", environment.Activated, want, environment.Variables)
	}
	if !slices.Equal(environment.PathFirst, []string{"/opt/of/a/script"}) {
		t.Errorf("folders %v", environment.PathFirst)
	}
	if !m.said(EventLine, "activation puts /opt/of/a/script on PATH") || !m.said(EventStep, "installing 4 packages, 2 MiB from conda") {
		t.Errorf("lines %q, steps %q", m.texts(EventLine), m.texts(EventStep))
	}
	if err := m.store().MarkUsed(environment); err != nil {
		t.Fatal(err)
	}
	if usage := m.usages(0)[result.Revision]; usage.Collectable || usage.State != StateUsed {
		t.Errorf("%+v", usage)
	}
	m.mustBuild(OutcomeUnchanged, pack)
	if after := pixiCalls(t, double); len(after) != len(calls) {
		t.Errorf("an unchanged build called pixi: %v", commands(after))
	}
}

func TestPixisLockFileIsKeptBuiltFromAndUpgraded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	double := m.usePixi(t)
	pack := m.pack("one", condaManifest)
	first := m.mustBuild(OutcomeBuilt, pack)
	writeFile(t, filepath.Join(double, "newest"), "2.0")
	if err := os.RemoveAll(first.Revision); err != nil {
		t.Fatal(err)
	}
	m.config.Frozen = true
	frozen := m.mustBuild(OutcomeBuilt, pack)
	if calls := commands(pixiCalls(t, double)); calls != "lock install shell-hook install shell-hook" {
		t.Errorf("calls %s", calls)
	}
	if got := installed(t, frozen, "small"); got["small"] != "1.0" {
		t.Errorf("installed %v", got)
	}
	m.config.Frozen = false
	m.pack("one", condaManifest+"MORE = \"1\"\n[target.unix.pypi-dependencies]\nadded = \"*\"\n")
	kept := m.mustBuild(OutcomeBuilt, pack)
	if got := installed(t, kept, "small", "added"); got["small"] != "1.0" || got["added"] != "2.0" {
		t.Errorf("versions were not kept: %v", got)
	}
	m.config.Upgrade = []string{"small", "unheard-of"} // another pack may have the other
	upgraded := m.mustBuild(OutcomeBuilt, pack)
	calls := pixiCalls(t, double)
	if update := calls[len(calls)-3].Arguments; update[0] != "update" || !slices.Contains(update, "--no-install") || !slices.Contains(update, "small") {
		t.Errorf("%v", update)
	}
	if got := installed(t, upgraded, "small"); got["small"] != "2.0" {
		t.Errorf("installed %v", got)
	}
	m.mustBuild(OutcomeUnchanged, pack) // nothing newer
	// Of another plan there is no lock file.
	m.config.Upgrade, m.config.Frozen = nil, true
	m.pack("two", "[dependencies]\ngit = \"*\"\n")
	if failed := m.mustBuild(OutcomeFailed, filepath.Join(m.comfyui, "custom_nodes", "two")); !strings.Contains(failed.Error, "--frozen") {
		t.Errorf("%s", failed.Error)
	}
}

func TestALockedCondaPackageThatIsGoneIsResolvedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	double := m.usePixi(t)
	pack := m.pack("one", condaManifest)
	first := m.mustBuild(OutcomeBuilt, pack)
	if err := os.RemoveAll(first.Revision); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(double, "mode"), "gone")
	failed := m.mustBuild(OutcomeFailed, pack)
	if !strings.Contains(failed.Error, "failed to fetch ffmpeg-6.1-h1.conda: 404") || !m.said(EventLine, "resolving again") {
		t.Errorf("%s; %q", failed.Error, m.texts(EventLine))
	}
	if calls := commands(pixiCalls(t, double)); calls != "lock install shell-hook install lock install" {
		t.Errorf("calls %s", calls)
	}
}

func TestPixisReasonIsPassedOnAndAPinWithoutAWheelIsLeftOut(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "comfy-aimdo", "0.4.11")
	double := m.usePixi(t)
	pack := m.pack("one", condaManifest)
	writeFile(t, filepath.Join(double, "mode"), "conflict")
	failed := m.mustBuild(OutcomeFailed, pack)
	if !strings.Contains(failed.Error, "the resolution failed") || !strings.Contains(failed.Error, "No candidates were found for ffmpeg 99.*") ||
		strings.Contains(failed.Error, "×") {
		t.Errorf("%s", failed.Error)
	}
	writeFile(t, filepath.Join(double, "mode"), "no-wheel")
	result := m.mustBuild(OutcomeBuilt, pack)
	if got := installed(t, result, "comfy-aimdo", "small"); got["comfy-aimdo"] != "" || got["small"] == "" {
		t.Errorf("installed %v", got)
	}
	if !strings.Contains(strings.Join(result.Lines, "\n"), "comfy-aimdo==0.4.11 left out") {
		t.Errorf("%q", result.Lines)
	}
}

func TestACancelledPixiLeavesNoProcessAndNoRevision(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	double := m.usePixi(t)
	writeFile(t, filepath.Join(double, "mode"), "hang")
	pack := m.pack("one", condaManifest)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pids []int
	report := m.config.Report
	m.config.Report = func(event Event) {
		report(event)
		if rest, found := strings.CutPrefix(event.Text, "working "); found && event.Kind == EventStep {
			for word := range strings.FieldsSeq(rest) {
				if pid, err := strconv.Atoi(word); err == nil {
					pids = append(pids, pid)
				}
			}
			cancel()
		}
	}
	results := m.buildWith(ctx, m.facts(), pack)
	if results[0].Outcome != OutcomeCancelled || len(pids) != 2 {
		t.Fatalf("%+v, processes %v", results[0], pids)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d of the build lives: %v", pid, err)
		}
	}
	directory := m.store().directory(results[0].Plan)
	if left, _, err := revisions(directory, ""); err != nil || len(left) > 0 {
		t.Errorf("left %v %v", left, err)
	}
	if err := os.Remove(filepath.Join(double, "mode")); err != nil {
		t.Fatal(err)
	}
	m.mustBuild(OutcomeBuilt, pack)
}

func TestPixiIsFetchedAndUsedOnlyWithItsHash(t *testing.T) {
	archive, known := pixiArchives[runtime.GOOS+"/"+runtime.GOARCH]
	if !known || strings.HasSuffix(archive.name, ".zip") {
		t.Skip("no tar archive for this platform")
	}
	m := newMachine(t)
	m.usePixi(t)
	program, err := os.ReadFile(m.config.Pixi)
	if err != nil {
		t.Fatal(err)
	}
	m.config.Pixi = ""
	m.config.Environ = append(slices.DeleteFunc(slices.Clone(m.environ), func(line string) bool { return strings.HasPrefix(line, "PATH=") }), "PATH=/usr/bin:/bin")
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	writer := tar.NewWriter(zipped)
	if err := writer.WriteHeader(&tar.Header{Name: "pixi", Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writer.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	m.config.PixiReleases = m.index.URL + "/releases"
	m.index.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/releases/v"+pixiVersion+"/"+archive.name {
			return false
		}
		_, err := w.Write(packed.Bytes())
		return err == nil
	})
	pack := m.pack("one", condaManifest)
	failed := m.mustBuild(OutcomeFailed, pack)
	if !strings.Contains(failed.Error, "has sha256 ") || !strings.Contains(failed.Error, "it is not used") || exists(fetchedPixi(m.config.Cache)) {
		t.Errorf("%s", failed.Error)
	}
	sum := sha256.Sum256(packed.Bytes())
	restore := archive
	pixiArchives[runtime.GOOS+"/"+runtime.GOARCH] = pixiArchive{archive.name, hex.EncodeToString(sum[:])}
	defer func() { pixiArchives[runtime.GOOS+"/"+runtime.GOARCH] = restore }()
	m.mustBuild(OutcomeBuilt, pack)
	if info, err := os.Stat(fetchedPixi(m.config.Cache)); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("%v %v", info, err)
	}
	m.mustBuild(OutcomeBuilt, m.pack("two", "[dependencies]\ngit = \"*\"\n"))
	if asked := m.index.asked(archive.name); asked != 2 {
		t.Errorf("fetched %d times, want the refused and the good one", asked)
	}
}

func TestTheWorkspaceFileSaysWhatThePlanDecided(t *testing.T) {
	t.Parallel()
	facts := linuxHost("2.10.0", "cu128", "nvidia")
	facts.Packages["comfy-kitchen"] = "0.2.1"
	plan, err := planOf(t, `
[workspace]
channels = ["pytorch", { channel = "https://conda.example/special", priority = 5 }]
channel-priority = "disabled"
[dependencies]
FFmpeg = ">=6,<7"
boost = { version = "1.8.*", build = "*cuda*", channel = "conda-forge" }
pip = "*"
[constraints]
numpy = "<3"
[pypi-dependencies]
torch = "2.4"
comfy-kitchen = "*"
fancy = { version = ">=1", extras = ["gpu", "web"] }
marked = { version = ">=2", env-markers = "sys_platform == 'linux'" }
cloned = { git = "https://example.org/cloned.git", branch = "main", subdirectory = "python" }
archive = { url = "https://example.org/archive-1.0-py3-none-any.whl" }
special = { version = "==3", index = "https://example.org/simple" }
[target.linux-64.dependencies]
ffmpeg = "6.1.*"
[target.win.dependencies]
m2w64 = "*"
[target.unix.activation.env]
ONE = "$CONDA_PREFIX/one"
[activation]
scripts = ["../activate.sh"]
env = { TWO = "2" }
[system-requirements]
libc = { family = "glibc", version = "2.31" }
[pypi-options]
extra-index-urls = ["https://example.org/extra"]
no-build = ["fancy"]
find-links = [{ path = "wheels" }]
dependency-overrides = { fancy = "==1.5" }
`, facts, Endpoints{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := renderPixi(plan.Name, plan.Recipe, plan.Recipe.Index, []string{"https://mirror.example/simple"})
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := toml.Unmarshal(content, &file); err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	at := func(path ...string) any {
		var here any = file
		for _, name := range path {
			table, _ := here.(map[string]any)
			here = table[name]
		}
		return here
	}
	text := func(value any) string {
		content, err := toml.Marshal(map[string]any{"v": value})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(string(content), "\n", " "), "v = "))
	}
	for _, one := range []struct {
		path string
		want string
	}{
		{"workspace/platforms", "['linux-64']"},
		{"workspace/channel-priority", "'disabled'"},
		{"dependencies/ffmpeg", "'6.1.*'"},
		{"dependencies/python", "'3.12.*'"},
		{"dependencies/pip", "'*'"},
		{"dependencies/boost/build", "'*cuda*'"},
		{"constraints/numpy", "'<3'"},
		{"pypi-dependencies/torch/version", "'==2.10.0'"},
		{"pypi-dependencies/torch/index", "'" + DefaultTorchIndex + "/cu128'"},
		{"pypi-dependencies/comfy-kitchen", "'==0.2.1'"},
		{"pypi-dependencies/fancy/extras", "['gpu', 'web']"},
		{"pypi-dependencies/marked/env-markers", `"sys_platform == 'linux'"`},
		{"pypi-dependencies/cloned/branch", "'main'"},
		{"pypi-dependencies/archive/url", "'https://example.org/archive-1.0-py3-none-any.whl'"},
		{"pypi-dependencies/special/index", "'https://example.org/simple'"},
		{"activation/scripts", "['" + filepath.Join(plan.PackDirectory, "activate.sh") + "']"},
		{"activation/env/ONE", "'$CONDA_PREFIX/one'"},
		{"activation/env/TWO", "'2'"},
		{"system-requirements/cuda", "'12'"},
		{"system-requirements/libc/family", "'glibc'"},
		{"pypi-options/index-url", "'https://mirror.example/simple'"},
		{"pypi-options/no-build", "['fancy']"},
		{"pypi-options/dependency-overrides/fancy", "'==1.5'"},
	} {
		if got := text(at(strings.Split(one.path, "/")...)); got != one.want {
			t.Errorf("%s is %s, want %s", one.path, got, one.want)
		}
	}
	if at("dependencies", "m2w64") != nil || at("pypi-dependencies", "pip") != nil || at("target") != nil || at("env_vars") != nil {
		t.Errorf("too much in\n%s", content)
	}
	for _, channel := range []string{"pytorch", "https://conda.example/special", "conda-forge"} {
		if !strings.Contains(string(content), "channel = '"+channel+"'") {
			t.Errorf("no channel %s in\n%s", channel, content)
		}
	}
	checkPixiFile(t, file)
}

// checkPixiFile holds a workspace file against what pixi's published schema says of the tables that are used.
func checkPixiFile(t *testing.T, file map[string]any) {
	t.Helper()
	known := []string{"workspace", "dependencies", "host-dependencies", "build-dependencies", "constraints", "system-requirements",
		"exclude-newer", "pypi-exclude-newer", "pypi-dependencies", "pypi-options", "activation"}
	for table := range file {
		if !slices.Contains(known, table) {
			t.Errorf("pixi has no table %s at the top", table)
		}
	}
	workspace, _ := file["workspace"].(map[string]any)
	if _, ok := workspace["channels"].([]any); !ok {
		t.Error("a workspace must have channels")
	}
	// Of a Python package exactly one kind of place may be named.
	requirements, _ := file["pypi-dependencies"].(map[string]any)
	for name, value := range requirements {
		table, ok := value.(map[string]any)
		if text, isText := value.(string); isText && text != "" {
			continue
		} else if !ok {
			t.Errorf("%s is %v", name, value)
			continue
		}
		var kinds []string
		for _, kind := range []string{"version", "git", "path", "url"} {
			if _, found := table[kind]; found {
				kinds = append(kinds, kind)
			}
		}
		if len(kinds) != 1 {
			t.Errorf("%s has places %v", name, kinds)
		}
		allowed := map[string][]string{
			"version": {"version", "extras", "index", "env-markers"}, "url": {"url", "extras", "subdirectory", "env-markers"},
			"path": {"path", "editable", "extras", "subdirectory", "env-markers"},
			"git":  {"git", "branch", "tag", "rev", "subdirectory", "extras", "lfs", "env-markers"},
		}
		for key := range table {
			if len(kinds) == 1 && !slices.Contains(allowed[kinds[0]], key) {
				t.Errorf("%s can not have %s beside %s", name, key, kinds[0])
			}
		}
	}
}

func TestARangeOfPythonsTakesTheHostsElseOneThatIsInIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{">=3.10": "3.12", ">=3.10,<3.12": "3.11", "<3.11": "3.10"} {
		plan, err := planOf(t, "[dependencies]\nffmpeg = \"*\"\npython = \""+text+"\"\n", linuxHost("", ""), Endpoints{})
		if err != nil || plan.Recipe.Python != want || plan.Recipe.Conda.Dependencies["python"] != want+".*" {
			t.Errorf("%s: %+v %v", text, plan, err)
		}
	}
	_, err := planOf(t, "[dependencies]\nffmpeg = \"*\"\npython = \"<3.9\"\n", linuxHost("", ""), Endpoints{})
	if err == nil || !strings.Contains(err.Error(), "no Python that ComfyUI runs on") {
		t.Error(err)
	}
}
