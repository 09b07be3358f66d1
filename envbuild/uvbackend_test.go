package envbuild

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAPinWithoutAWheelForThisPlatformIsLeftOutWithALine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "comfy-aimdo", "0.4.11", "comfy-kitchen", "0.2.1")
	file, content := makeWheel("comfy-aimdo", "0.4.11", "py3-none-win_arm64", nil)
	m.index.add("simple", file, content)
	m.index.wheel("comfy-kitchen", "0.2.1", nil)
	m.index.wheel("small", "1.0", nil)
	result := m.mustBuild(OutcomeBuilt, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
	if got := installed(t, result, "comfy-aimdo", "comfy-kitchen", "small"); len(got) != 2 || got["comfy-kitchen"] != "0.2.1" {
		t.Errorf("installed %v", got)
	}
	if !strings.Contains(strings.Join(result.Lines, "\n"), "comfy-aimdo==0.4.11 left out: it has no wheel for this platform") {
		t.Errorf("lines %q", result.Lines)
	}
	m.mustBuild(OutcomeUnchanged, filepath.Join(m.comfyui, "custom_nodes", "one"))
}

func TestAPinThatTheIndexDoesNotHaveFailsTheBuild(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "comfy-aimdo", "0.4.11")
	m.index.wheel("comfy-aimdo", "0.4.10", nil)
	result := m.mustBuild(OutcomeFailed, m.pack("one", ""))
	if !strings.Contains(result.Error, "comfy-aimdo==0.4.11") {
		t.Errorf("error %q", result.Error)
	}
}

func TestPackagesComeFromPathsRepositoriesAndIndexesOfTheirOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	git := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-C", filepath.Join(m.folder, "cloned repo")}, arguments...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", arguments, err, output)
		}
	}
	project := func(folder, name string) {
		m.write(folder+"/pyproject.toml", fmt.Sprintf("[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = %q\nversion = \"1.0\"\n", name))
		m.write(folder+"/backend.py", ownBackend(name))
		m.write(folder+"/"+name+"/__init__.py", "WHERE = __file__\n")
	}
	project("cloned repo", "cloned")
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "one")
	git("tag", "v1")
	project("ComfyUI/custom_nodes/one/vendored", "vendored")
	project("ComfyUI/custom_nodes/one/edited", "edited")
	m.index.wheel("shared", "1.0", nil)
	file, content := makeWheel("shared", "2.0", "py3-none-any", nil)
	m.index.add("other", file, content)
	pack := m.pack("one", `
[pypi-dependencies]
cloned = { git = "file://`+filepath.ToSlash(filepath.Join(m.folder, "cloned repo"))+`", tag = "v1" }
vendored = { path = "../vendored" }
edited = { path = "../edited", editable = true }
shared = { version = "*", index = "`+m.index.URL+`/other" }
`)
	result := m.mustBuild(OutcomeBuilt, pack)
	output, err := exec.Command(prefixPython(result.Prefix), "-c",
		"import cloned, vendored, edited, shared; print(cloned.WHERE, vendored.WHERE, edited.WHERE, shared.__version__, sep='\\n')").CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, output)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	for i, want := range []string{result.Prefix, result.Prefix, filepath.Join(pack, "edited"), "2.0"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("%q, want it below %q", lines[i], want)
		}
	}
}

// ownBackend is a build backend without requirements, for a project of one package.
func ownBackend(name string) string {
	return fmt.Sprintf(`
import base64, os, zipfile
NAME = %q
def write(directory, files):
    info = NAME + "-1.0.dist-info"
    files = dict(files)
    files[info + "/METADATA"] = "Metadata-Version: 2.1\nName: " + NAME + "\nVersion: 1.0\n"
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[info + "/RECORD"] = "".join(path + ",,\n" for path in files) + info + "/RECORD,,\n"
    target = NAME + "-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, target), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return target
def build_wheel(directory, config_settings=None, metadata_directory=None):
    with open(os.path.join(NAME, "__init__.py")) as source:
        return write(directory, {NAME + "/__init__.py": source.read()})
def build_editable(directory, config_settings=None, metadata_directory=None):
    return write(directory, {"_editable_" + NAME + ".pth": os.getcwd() + "\n"})
`, name)
}

func TestPypiOptionsReachTheInstaller(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", []string{"dependency>=1"})
	m.index.wheel("dependency", "1.0", nil)
	m.index.wheel("dependency", "2.0", nil)
	links := filepath.Join(m.folder, "links")
	file, content := makeWheel("linked", "1.0", "py3-none-any", nil)
	writeFile(t, filepath.Join(links, file), string(content))
	file, content = makeWheel("extra", "3.0", "py3-none-any", nil)
	m.index.add("extras", file, content)
	file, content = makeSource("unbuilt", "1.0", "raise SystemExit('it was built')\n")
	m.index.add("simple", file, content)
	pack := m.pack("one", `
[pypi-dependencies]
small = "*"
linked = "*"
extra = "*"
[pypi-options]
extra-index-urls = ["`+m.index.URL+`/extras"]
find-links = [{ path = "`+filepath.ToSlash(links)+`" }]
dependency-overrides = { dependency = "==1.0" }
`)
	result := m.mustBuild(OutcomeBuilt, pack)
	got := installed(t, result, "small", "dependency", "linked", "extra")
	if got["dependency"] != "1.0" || got["linked"] != "1.0" || got["extra"] != "3.0" {
		t.Errorf("installed %v", got)
	}
	m.pack("one", "[pypi-dependencies]\nunbuilt = \"*\"\n[pypi-options]\nno-build = true\n")
	failed := m.mustBuild(OutcomeFailed, pack)
	if strings.Contains(failed.Error, "it was built") || !strings.Contains(failed.Error, "unbuilt") {
		t.Errorf("error %q", failed.Error)
	}
}

func TestPathsMayHoldSpacesQuotesAndLetters(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Root = filepath.Join(m.folder, `a "root" – 'здесь' $HOME`)
	m.index.wheel("small", "1.0", nil)
	pack := filepath.Join(m.folder, "custom_nodes", "ComfyUI Sample's — пак", "nodes")
	writeFile(t, filepath.Join(pack, "comfy-env.toml"), "[pypi-dependencies]\nsmall = \"*\"\n")
	result := m.mustBuild(OutcomeBuilt, filepath.Dir(pack))
	if output, err := exec.Command(prefixPython(result.Prefix), "-c", "import small").CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, output)
	}
}

func TestSettingsOfTheShellDoNotBendAnEnvironment(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	m.index.wheel("small", "2.0", nil)
	constraint := filepath.Join(m.folder, "constraint.txt")
	writeFile(t, constraint, "small<2\n")
	m.environ = append(m.environ, "UV_CONSTRAINT="+constraint, "UV_RESOLUTION=lowest", "UV_PROJECT_ENVIRONMENT="+filepath.Join(m.folder, "mine"),
		"VIRTUAL_ENV="+filepath.Join(m.folder, "host"), "UV_FROZEN=1", "UV_PYTHON=3.10", "PYTHONHOME=/nowhere", "PYTHONPATH=/nowhere")
	m.config.Environ = m.environ
	result := m.mustBuild(OutcomeBuilt, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
	if got := installed(t, result, "small"); got["small"] != "2.0" {
		t.Errorf("installed %v", got)
	}
	if _, err := os.Stat(filepath.Join(m.folder, "mine")); err == nil {
		t.Error("another environment was made")
	}
}

func TestVersionsAreKeptWhenARequirementIsAdded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	m.index.wheel("added", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	m.mustBuild(OutcomeBuilt, pack)
	m.index.wheel("small", "2.0", nil)
	m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nadded = \"*\"\n")
	if got := installed(t, m.mustBuild(OutcomeBuilt, pack), "small", "added"); got["small"] != "1.0" || got["added"] != "1.0" {
		t.Errorf("installed %v", got)
	}
}

func TestTwoStacksOfOnePackLiveSideBySide(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.torch("cpu", "2.11.0", "cpu")
	pack := m.pack("one", "")
	first := m.mustBuild(OutcomeBuilt, pack)
	m.install("torch", "2.11.0+cpu")
	second := m.mustBuild(OutcomeBuilt, pack)
	if first.Stack == second.Stack || filepath.Dir(first.Revision) == filepath.Dir(second.Revision) {
		t.Errorf("%s and %s", first.Revision, second.Revision)
	}
	for stack, result := range map[string]Result{first.Plan.HostStack: first, second.Plan.HostStack: second} {
		if found, err := m.store().Find("one-nodes", Query{ComfyUI: m.comfyui, Stack: stack}); err != nil || found.Prefix != result.Prefix {
			t.Errorf("%s: %+v %v", stack, found, err)
		}
	}
	// Of one host the stack that it has now is meant, and the other environment is nobody's.
	if found, err := m.store().Find("one-nodes", Query{AnyStack: true}); err != nil || found.Prefix != second.Prefix {
		t.Errorf("%+v %v", found, err)
	}
	if usage := m.usages(0); !usage[first.Revision].Collectable || usage[second.Revision].Collectable {
		t.Errorf("%+v", usage)
	}
	m.install("torch", "2.10.0+cpu")
	m.mustBuild(OutcomeUnchanged, pack)
	if found, err := m.store().Find("one-nodes", Query{AnyStack: true}); err != nil || found.Prefix != first.Prefix {
		t.Errorf("%+v %v", found, err)
	}
}

func BenchmarkUnchangedBuildOfFortyPacks(b *testing.B) {
	m := newMachine(b, "torch", "2.10.0+cpu", "comfy-aimdo", "0.4.11")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.wheel("comfy-aimdo", "0.4.11", nil)
	requirements := "[pypi-dependencies]\n"
	for i := range 20 {
		name := fmt.Sprintf("package-%d", i)
		m.index.wheel(name, "1.0", nil)
		requirements += name + " = \"*\"\n"
	}
	for i := range 40 {
		m.pack(fmt.Sprintf("pack-%d", i), requirements)
	}
	for _, result := range m.build(m.comfyui) {
		if result.Err != nil {
			b.Fatal(result.Err)
		}
	}
	for b.Loop() {
		for _, result := range m.build(m.comfyui) {
			if result.Outcome != OutcomeUnchanged {
				b.Fatal(result.Outcome)
			}
		}
	}
}

func TestEnvironmentsSideBySideDownloadTheirTorchOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu", "heavy")
	m.index.wheel("heavy", "1.0", nil)
	waits := make(chan struct{})
	report := m.config.Report
	m.config.Report = func(event Event) {
		report(event)
		if strings.HasPrefix(event.Text, "waiting for torch==2.10.0, which another environment downloads") {
			close(waits)
		}
	}
	var asked atomic.Int32
	m.index.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		// A resolution reads the end of the file.
		if !strings.Contains(r.URL.Path, "/files/heavy") || strings.HasSuffix(r.URL.Path, ".metadata") || r.Method != http.MethodGet || r.Header.Get("Range") != "" {
			return false
		}
		if asked.Add(1) == 1 {
			select {
			case <-waits:
			case <-r.Context().Done():
			}
		}
		return false
	})
	for _, result := range m.build(m.pack("one", ""), m.pack("two", "")) {
		if result.Outcome != OutcomeBuilt || installed(t, result, "heavy")["heavy"] != "1.0" {
			t.Errorf("%s %s", result.Outcome, result.Error)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("the package was downloaded %d times", asked.Load())
	}
}

func TestAnEnvironmentWhoseForerunnerFailsIsBuilt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu")
	var first firstDownload
	leave, err := first.enter(t.Context(), []string{"torch==2.10.0"}, func() { t.Error("there is nobody to wait for") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := first.enter(ctx, []string{"torch==2.10.0"}, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits can not be cancelled: %v", err)
	}
	leave()
	leave()
	if _, err := first.enter(t.Context(), []string{"torch==2.10.0"}, func() { t.Error("it has left") }); err != nil {
		t.Error(err)
	}
	if _, err := first.enter(t.Context(), nil, func() { t.Error("nothing is shared") }); err != nil {
		t.Error(err)
	}
	m.config.Jobs = 1
	m.index.wheel("small", "1.0", nil)
	m.index.hashes["small-1.0-py3-none-any.whl"] = strings.Repeat("0", 64)
	results := m.build(m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"), m.pack("two", ""))
	if results[0].Outcome != OutcomeFailed || results[1].Outcome != OutcomeBuilt {
		t.Errorf("%s %s, %s %s", results[0].Outcome, results[0].Error, results[1].Outcome, results[1].Error)
	}
}
