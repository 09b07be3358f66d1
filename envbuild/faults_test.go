//go:build unix

package envbuild

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTenPacksAtOnceOnAnEmptyCacheAreBuilt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Jobs = 10
	m.index.wheel("shared", "1.0", nil, "shared/data.bin", strings.Repeat("0123456789abcdef", 64<<10))
	file, content := makeSource("compiled", "1.0", wheelBackend)
	m.index.add("simple", file, content)
	var packs []string
	for i := range 10 {
		name := fmt.Sprintf("own%d", i)
		m.index.wheel(name, "1.0", []string{"shared"})
		packs = append(packs, m.pack(fmt.Sprintf("pack%d", i), fmt.Sprintf("[pypi-dependencies]\n%s = \"*\"\ncompiled = \"*\"\n", name)))
	}
	for i, result := range m.build(packs...) {
		if result.Outcome != OutcomeBuilt {
			t.Errorf("%s: %s", result.Outcome, result.Error)
			continue
		}
		program := fmt.Sprintf("import own%d, compiled, shared, os; print(os.path.getsize(os.path.join(os.path.dirname(shared.__file__), 'data.bin')))", i)
		if output, err := exec.Command(prefixPython(result.Prefix), "-c", program).CombinedOutput(); err != nil || strings.TrimSpace(string(output)) != "1048576" {
			t.Errorf("pack %d: %v %s", i, err, output)
		}
	}
	for _, result := range m.build(packs...) {
		if result.Outcome != OutcomeUnchanged {
			t.Errorf("%s: %q", result.Outcome, result.Why)
		}
	}
}

// wheelBackend builds the package "compiled".
const wheelBackend = `
import os, zipfile
def build_wheel(folder, *arguments):
    name = "compiled-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("compiled.py", "")
        wheel.writestr("compiled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: compiled\nVersion: 1.0\n")
        wheel.writestr("compiled-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("compiled-1.0.dist-info/RECORD", "compiled.py,,\ncompiled-1.0.dist-info/METADATA,,\ncompiled-1.0.dist-info/WHEEL,,\ncompiled-1.0.dist-info/RECORD,,\n")
    return name
`

func TestAnIndexWhosePagesFailIsReported(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the index waits for its handlers
	page := func(answer func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/small") {
				return false
			}
			answer(w, r)
			return true
		}
	}
	for name, one := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"not found":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "small was not found"},
		"forbidden":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "403"},
		"server error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		"nonsense":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\xff no page")) }, "small"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}, "small"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.config.Environ = append(m.environ, "UV_HTTP_TIMEOUT=1")
			m.index.wheel("small", "1.0", nil)
			m.index.intercept(page(one.answer))
			result := m.mustBuild(OutcomeFailed, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
			if !strings.Contains(result.Error, one.want) {
				t.Errorf("error %q, want %q in it", result.Error, one.want)
			}
			if left, _, err := revisions(m.store().directory(result.Plan), ""); err != nil || len(left) != 0 {
				t.Errorf("left %v: %v", left, err)
			}
		})
	}
}

func TestRequirementsThatCanNotGoTogetherAreNamedInFewWords(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i := range 40 {
		m.index.wheel("wide", fmt.Sprintf("1.%d", i), []string{"narrow<1"})
	}
	m.index.wheel("narrow", "2.0", nil)
	m.index.wheel("narrow", "0.5", nil)
	result := m.mustBuild(OutcomeFailed, m.pack("one", "[pypi-dependencies]\nwide = \"*\"\nnarrow = \">=2\"\n"))
	reason := result.Error
	if !strings.Contains(reason, "narrow<1") || !strings.Contains(reason, "narrow>=2") || len(reason) > reasonLimit+400 || strings.Contains(reason, "sys_platform") {
		t.Errorf("reason of %d characters: %s", len(reason), reason)
	}
	_, path, found := strings.Cut(reason, "full text: ")
	if log, err := os.ReadFile(path); !found || err != nil || !strings.Contains(string(log), "narrow") {
		t.Errorf("the full text: %q %v", path, err)
	}
}

func TestARootThatCanNotBeUsedIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	pack := m.pack("one", "")
	m.config.Root = filepath.Join(m.folder, "not", "there", "yet")
	m.mustBuild(OutcomeBuilt, pack)
	writeFile(t, filepath.Join(m.folder, "file"), "")
	m.config.Root = filepath.Join(m.folder, "file", "root")
	if failed := m.mustBuild(OutcomeFailed, pack); !strings.Contains(failed.Error, "not a directory; set COMFY_ENV_ROOT to a folder that can be written") {
		t.Error(failed.Error)
	}
}

func TestPathsMayBeVeryLong(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil, "small-1.0.dist-info/entry_points.txt", "[console_scripts]\nsmall-tool = small:main\n",
		"small/tool.py", "def main():\n    print('it runs')\n")
	long := strings.Repeat("/"+strings.Repeat("x", 50), 6)
	m.config.Root = m.folder + long
	pack := filepath.Join(m.folder+long, "custom_nodes", strings.Repeat("p", 60))
	writeFile(t, filepath.Join(pack, "nodes", "comfy-env.toml"), "[pypi-dependencies]\nsmall = \"*\"\n")
	result := m.mustBuild(OutcomeBuilt, pack)
	if len(result.Prefix) < 260 {
		t.Fatalf("the path has %d characters only", len(result.Prefix))
	}
	output, err := exec.Command(prefixPython(result.Prefix), "-c", "import small.tool; small.tool.main()").CombinedOutput()
	if err != nil || strings.TrimSpace(string(output)) != "it runs" {
		t.Errorf("%v %s", err, output)
	}
	m.mustBuild(OutcomeUnchanged, pack)
}
