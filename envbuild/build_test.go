package envbuild

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnEnvironmentGetsTheHostsTorchAndPinsInPlaceOfThePacks(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cu128", "torchvision", "0.25.0", "comfy-aimdo", "0.4.11")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.torch("cpu", "2.11.0", "cpu")
	m.index.torch("", "2.11.0", "cu128")
	file, content := makeWheel("torchvision", "0.25.0+cpu", "py3-none-any", []string{"torch==2.10.0", "shared"})
	m.index.add("torch/cpu", file, content)
	old, older := makeWheel("shared", "0.1", "py3-none-any", nil)
	m.index.add("torch/cpu", old, older)
	m.index.wheel("shared", "2.0", nil)
	m.index.wheel("comfy-aimdo", "0.4.11", nil)
	m.index.wheel("comfy-aimdo", "0.6.0", nil)
	m.index.wheel("small", "1.2", nil)
	pack := m.pack("ComfyUI-Sample", "[pypi-dependencies]\ncomfy-aimdo = \"*\"\ntorch = \">=2.11\"\nsmall = \">=1\"\n")

	result := m.mustBuild(OutcomeBuilt, pack)
	got := installed(t, result, "torch", "torchvision", "comfy-aimdo", "comfy-kitchen", "shared", "small", "torchaudio")
	want := map[string]string{"torch": "2.10.0+cpu", "torchvision": "0.25.0+cpu", "comfy-aimdo": "0.4.11", "shared": "2.0", "small": "1.2"}
	if !maps.Equal(got, want) {
		t.Errorf("installed %v, want %v", got, want)
	}
	for _, line := range []string{
		"comfy-aimdo==0.4.11: the host's version, in place of what line 2",
		"torch==2.10.0: the host's version, in place of what line 3",
		"comfy-kitchen left out: the host does not have it",
		"build cpu: this machine has no GPU",
	} {
		if !strings.Contains(strings.Join(result.Lines, "\n"), line) {
			t.Errorf("no line %q in:\n%s", line, strings.Join(result.Lines, "\n"))
		}
	}
	if result.Environment != "sample-nodes" || !strings.HasSuffix(result.Stack, "-torch2.10-cpu") {
		t.Errorf("name %q, stack %q", result.Environment, result.Stack)
	}
	if output, err := exec.Command(prefixPython(result.Prefix), "-c", "import small; print(small.__version__)").CombinedOutput(); err != nil || strings.TrimSpace(string(output)) != "1.2" {
		t.Errorf("the environment's Python: %v %s", err, output)
	}
}

func TestROCmsCompilerComesFromTorchsIndexAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.9.1+rocm6.4")
	m.index.torch("rocm6.4", "2.9.1", "rocm6.4", "pytorch-triton-rocm==3.5.1; platform_system == \"Linux\"", "shared")
	for _, version := range []string{"3.5.1", "3.6.0"} {
		file, content := makeWheel("pytorch-triton-rocm", version, "py3-none-any", nil)
		m.index.add("torch/rocm6.4", file, content)
	}
	file, content := makeWheel("shared", "0.1", "py3-none-any", nil)
	m.index.add("torch/rocm6.4", file, content)
	m.index.wheel("shared", "2.0", nil)
	facts := m.facts()
	facts.GPU = GPUFacts{Present: true, Kind: "amd", Devices: []GPUDevice{{Kind: "amd"}}}
	results := m.buildWith(t.Context(), facts, m.pack("one", ""))
	if results[0].Outcome != OutcomeBuilt {
		t.Fatal(results[0].Error)
	}
	got := installed(t, results[0], "torch", "pytorch-triton-rocm", "shared")
	if want := map[string]string{"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.5.1", "shared": "2.0"}; !maps.Equal(got, want) {
		t.Errorf("installed %v, want %v", got, want)
	}
	if !strings.HasSuffix(results[0].Stack, "-torch2.9-rocm64") {
		t.Errorf("stack %s", results[0].Stack)
	}
}

func TestAnUnreachableTorchIndexIsAskedOnceAndTheDefaultIndexFollows(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cu128")
	m.index.torch("", "2.10.0", "cu128")
	listener := newPackageIndex(t)
	m.config.Endpoints.TorchIndex = listener.URL // nobody listens there any more
	listener.Close()
	first, second := m.pack("one", ""), m.pack("two", "")

	results := m.build(first, second)
	for _, result := range results {
		if result.Outcome != OutcomeBuilt {
			t.Fatalf("%s: %s", result.Outcome, result.Error)
		}
		if got := installed(t, result, "torch")["torch"]; got != "2.10.0" {
			t.Errorf("torch %q", got)
		}
		if !strings.HasSuffix(result.Stack, "torch2.10-cpu") {
			t.Errorf("the stack tag must name the kind asked for, not %s", result.Stack)
		}
	}
	if !m.said(EventLine, "torch family from the default index") || !m.said(EventLine, "torch's build is cu128, where cpu was asked for") {
		t.Errorf("lines: %q", m.texts(EventLine))
	}
	mark, err := readStamp(results[0].Revision)
	if err != nil || mark.Received.Build != "cu128" || mark.Recipe.Torch != "cpu" {
		t.Errorf("stamp: %+v %v", mark, err)
	}
	for _, result := range m.build(first, second) {
		if result.Outcome != OutcomeUnchanged {
			t.Errorf("having received another kind made %s stale: %v", result.Environment, result.Why)
		}
	}
}

func TestATorchIndexWithoutTheVersionIsAnError(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*machine){
		"no such package": func(*machine) {},
		"no such version": func(m *machine) { m.index.torch("cpu", "2.9.0", "cpu") },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "torch", "2.10.0+cpu")
			prepare(m)
			m.index.torch("", "2.10.0", "cu128") // the default index must not be asked
			result := m.mustBuild(OutcomeFailed, m.pack("one", ""))
			if !strings.Contains(result.Error, m.index.torchBase()+"/cpu") || !strings.Contains(result.Error, "torch") {
				t.Errorf("error %q", result.Error)
			}
			if m.index.asked("/simple/torch") > 0 {
				t.Error("the default index was asked")
			}
		})
	}
}

func TestAFailedBuildPassesOnTheReasonAndLeavesThePreviousEnvironment(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	before := m.mustBuild(OutcomeBuilt, pack)
	if before.Stack[len("py3"):][strings.Index(before.Stack, "-")-len("py3"):] != "-none" {
		t.Errorf("stack %q", before.Stack)
	}

	m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nnowhere-to-be-found = \">=2\"\n")
	failed := m.mustBuild(OutcomeFailed, pack)
	if !strings.Contains(failed.Error, "nowhere-to-be-found was not found") {
		t.Errorf("error %q", failed.Error)
	}
	var failure *BuildError
	if !errors.As(failed.Err, &failure) {
		t.Fatalf("error %T", failed.Err)
	}
	log, err := os.ReadFile(failure.Log)
	if err != nil || !strings.Contains(string(log), "nowhere-to-be-found") || !strings.Contains(string(log), "$ uv lock") {
		t.Errorf("log %q: %v", log, err)
	}
	found, err := m.store().Find("one-nodes", Query{Stack: m.facts().Stack()})
	if err != nil || found.Prefix != before.Prefix {
		t.Errorf("the environment of before: %+v, %v", found, err)
	}
	if left, _, err := revisions(filepath.Dir(before.Revision), ""); err != nil || len(left) != 1 {
		t.Errorf("revisions %v: %v", left, err)
	}
}

func TestAnIndexThatFailsIsReportedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	reset := func(w http.ResponseWriter) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			connection.Close()
		}
	}
	cases := map[string]struct {
		prepare func(m *machine)
		want    string
	}{
		"a wrong hash":      {func(m *machine) { m.index.hashes["small-1.0-py3-none-any.whl"] = strings.Repeat("0", 64) }, "hash"},
		"a missing file":    {func(m *machine) { m.index.intercept(onFile(func(w http.ResponseWriter) { w.WriteHeader(404) })) }, "404"},
		"a server error":    {func(m *machine) { m.index.intercept(onFile(func(w http.ResponseWriter) { w.WriteHeader(500) })) }, "500"},
		"a reset":           {func(m *machine) { m.index.intercept(onFile(reset)) }, "small"},
		"nobody to talk to": {func(m *machine) { m.index.Close() }, "small"},
	}
	for name, one := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.index.wheel("small", "1.0", nil)
			one.prepare(m)
			result := m.mustBuild(OutcomeFailed, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
			if !strings.Contains(strings.ToLower(result.Error), one.want) {
				t.Errorf("error %q", result.Error)
			}
			left, _, err := revisions(m.store().directory(result.Plan), "")
			if err != nil || len(left) != 0 {
				t.Errorf("left %v: %v", left, err)
			}
			if _, err := m.store().Find("one-nodes", Query{AnyStack: true}); err == nil {
				t.Error("a failed build can be found")
			}
		})
	}
}

// onFile answers requests for files, not for pages.
func onFile(answer func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/files/") {
			return false
		}
		answer(w)
		return true
	}
}

func TestAnUnchangedEnvironmentNeedsNoNetworkNoPythonAndNoUV(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	before := m.mustBuild(OutcomeBuilt, pack)

	m.index.Close()
	m.config.UV = filepath.Join(m.folder, "no-uv")
	m.environ = []string{"PATH=" + filepath.Join(m.folder, "empty")}
	m.config.Environ = m.environ
	result := m.mustBuild(OutcomeUnchanged, pack)
	if result.Prefix != before.Prefix || !m.said(EventUnchanged, "unchanged") {
		t.Errorf("result %+v, events %v", result, m.events)
	}
}

func TestWhatMakesABuildNecessaryIsPrinted(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "comfy-aimdo", "0.4.11")
	for _, version := range []string{"1.0", "2.0"} {
		m.index.wheel("small", version, nil)
	}
	m.index.wheel("comfy-aimdo", "0.4.11", nil)
	m.index.wheel("comfy-aimdo", "0.4.12", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"==1.0\"\n")
	first := m.mustBuild(OutcomeBuilt, pack)
	if !m.said(EventWhy, "nothing is built from this manifest") {
		t.Errorf("why: %q", m.texts(EventWhy))
	}

	m.pack("one", "# a comment\n[pypi-dependencies]\nsmall = \"==1.0\"\n[env_vars]\nTONE = \"blue\"\n")
	if same := m.mustBuild(OutcomeUnchanged, pack); same.Prefix != first.Prefix {
		t.Error("a comment and a variable for the worker made a new revision")
	}
	if found, err := m.store().Find("one-nodes", Query{AnyStack: true}); err != nil || found.Variables["TONE"] != "blue" {
		t.Errorf("the variable is not recorded: %+v %v", found, err)
	}

	m.pack("one", "[pypi-dependencies]\nsmall = \"==2.0\"\n")
	second := m.mustBuild(OutcomeBuilt, pack)
	if !m.said(EventWhy, "the manifest changed") {
		t.Errorf("why: %q", m.texts(EventWhy))
	}
	m.install("comfy-aimdo", "0.4.12")
	third := m.mustBuild(OutcomeBuilt, pack)
	if !m.said(EventWhy, "the host's comfy-aimdo changed from 0.4.11 to 0.4.12") {
		t.Errorf("why: %q", m.texts(EventWhy))
	}
	m.install("comfy-aimdo", "0.4.11")
	again := m.mustBuild(OutcomeReused, pack)
	if again.Prefix != second.Prefix || third.Prefix == second.Prefix {
		t.Errorf("prefixes %s, %s, %s", second.Prefix, third.Prefix, again.Prefix)
	}
	for _, kept := range []Result{first, second, third} {
		if got := installed(t, kept, "small"); len(got) != 1 {
			t.Errorf("the revision %s is not whole any more", kept.Revision)
		}
	}
	current, err := os.ReadFile(filepath.Join(filepath.Dir(again.Revision), currentName))
	if err != nil || strings.TrimSpace(string(current)) != filepath.Base(again.Revision) {
		t.Errorf("current is %q: %v", current, err)
	}
}

func TestADamagedEnvironmentIsBuiltAgainWithTheVeryVersionsItHad(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	m.index.wheel("other", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nother = \"*\"\n")
	before := m.mustBuild(OutcomeBuilt, pack)
	sites, err := filepath.Glob(filepath.Join(before.Prefix, "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		t.Fatal(sites, err)
	}
	if err := os.RemoveAll(filepath.Join(sites[0], "small")); err != nil {
		t.Fatal(err)
	}
	m.index.wheel("other", "2.0", nil)
	after := m.mustBuild(OutcomeBuilt, pack)
	if !m.said(EventWhy, "small was deleted from its packages") {
		t.Errorf("why: %q", m.texts(EventWhy))
	}
	if got := installed(t, after, "small", "other"); got["other"] != "1.0" || got["small"] != "1.0" {
		t.Errorf("installed %v", got)
	}
	if filepath.Base(after.Revision) != strings.TrimSuffix(filepath.Base(before.Revision), "1")+"2" {
		t.Errorf("revisions %s and %s", before.Revision, after.Revision)
	}
	if _, err := os.Stat(filepath.Join(sites[0], "small", "__init__.py")); err == nil {
		t.Error("a revision was changed after it was complete")
	}
}

func TestAPackFolderThatIsReadOnlyBuilds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	before := listing(t, pack)
	for _, folder := range []string{filepath.Join(pack, "nodes"), pack} {
		if err := os.Chmod(folder, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(folder, 0o755) })
	}
	m.mustBuild(OutcomeBuilt, pack)
	if after := listing(t, pack); after != before {
		t.Errorf("the pack changed from\n%s\nto\n%s", before, after)
	}
}

func listing(t *testing.T, folder string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		text.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
