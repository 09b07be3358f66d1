package envbuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var zeroTime time.Time

// pythons are the interpreters that were found already.
var pythons = struct {
	sync.Mutex
	found map[string]string
}{found: map[string]string{}}

// needPython is a real interpreter of a version, or of any that is new enough for "".
func needPython(t testing.TB, version string) string {
	t.Helper()
	wanted := []string{version}
	if version == "" {
		wanted = []string{"3.12", "3.11", "3.13", "3.10", "3.14"}
	}
	pythons.Lock()
	defer pythons.Unlock()
	for _, one := range wanted {
		if path, known := pythons.found[one]; known {
			return path
		}
		if found, err := findPython(t.Context(), one, PythonFacts{}, os.Environ(), prober{}); err == nil {
			pythons.found[one] = found.Executable
			return found.Executable
		}
	}
	t.Fatalf("these tests need CPython %s, on PATH or under pyenv", strings.Join(wanted, " or "))
	return ""
}

var uvOnce = sync.OnceValues(func() (tool, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return tool{}, err
	}
	return findUV(context.Background(), toolSearch{environ: os.Environ(), cache: filepath.Join(cache, "comfy-supervisor"),
		say: func(string, ...any) {}})
})

// needUV is a real uv; where the machine has none, the product's own way of getting one is taken.
func needUV(t testing.TB) string {
	t.Helper()
	tool, err := uvOnce()
	if err != nil {
		t.Fatalf("these tests need uv: %v", err)
	}
	return tool.Path
}

// machine is a host with an index, for one test: nothing of the real machine's settings shows through.
type machine struct {
	t       testing.TB
	index   *packageIndex
	folder  string
	host    string // the host's interpreter, a virtual environment
	comfyui string
	environ []string
	config  Configuration

	mutex  sync.Mutex
	events []Event
}

// newMachine makes a host whose installed packages are name and version pairs. A torch version says its build
// behind a plus.
func newMachine(t testing.TB, packages ...string) *machine {
	t.Helper()
	folder := t.TempDir()
	m := &machine{t: t, index: newPackageIndex(t), folder: folder, comfyui: filepath.Join(folder, "ComfyUI")}
	m.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(folder, "home"), "TMPDIR=" + filepath.Join(folder, "tmp"), // uv leaves lock files there
		"UV_CACHE_DIR=" + filepath.Join(folder, "uv-cache"), "UV_DEFAULT_INDEX=" + m.index.defaultIndex(),
		"UV_HTTP_RETRIES=0", "PIP_CONFIG_FILE=" + os.DevNull,
		"GORACE=atexit_sleep_ms=0", // guards are this very binary, and the race detector waits a second at exit
		"PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "SYSTEMROOT=" + os.Getenv("SYSTEMROOT"),
	}
	if err := os.Mkdir(filepath.Join(folder, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.host = m.makeHost(needPython(t, ""), packages...)
	m.config = Configuration{
		Root: filepath.Join(folder, "root"), Cache: filepath.Join(folder, "cache"), UV: needUV(t), Environ: m.environ,
		Endpoints: Endpoints{TorchIndex: m.index.torchBase()}, Jobs: 2, Report: m.report,
	}
	m.write("ComfyUI/main.py", "")
	m.write("ComfyUI/comfyui_version.py", "__version__ = \"0.30.0\"\n")
	return m
}

func (m *machine) report(event Event) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.events = append(m.events, event)
}

// texts are the texts of the events of a kind so far.
func (m *machine) texts(kind string) []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var texts []string
	for _, event := range m.events {
		if event.Kind == kind {
			texts = append(texts, event.Text)
		}
	}
	return texts
}

func (m *machine) said(kind, text string) bool {
	return slices.ContainsFunc(m.texts(kind), func(one string) bool { return strings.Contains(one, text) })
}

// makeHost makes a virtual environment and puts metadata into it.
func (m *machine) makeHost(python string, packages ...string) string {
	m.t.Helper()
	prefix := filepath.Join(m.folder, "host")
	command := exec.Command(needUV(m.t), "venv", "--quiet", "--no-project", "--python", python, prefix)
	if output, err := command.CombinedOutput(); err != nil {
		m.t.Fatalf("making a virtual environment: %v\n%s", err, output)
	}
	host := prefixPython(prefix)
	for i := 0; i+1 < len(packages); i += 2 {
		m.install(packages[i], packages[i+1])
	}
	return host
}

// install puts the metadata of a package into the host, in place of another version.
func (m *machine) install(name, version string) {
	m.t.Helper()
	site := m.hostSite()
	module := strings.ReplaceAll(name, "-", "_")
	earlier, err := filepath.Glob(filepath.Join(site, module+"-*.dist-info"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, folder := range earlier {
		if err := os.RemoveAll(folder); err != nil {
			m.t.Fatal(err)
		}
	}
	public, build, _ := strings.Cut(version, "+")
	writeFile(m.t, filepath.Join(site, fmt.Sprintf("%s-%s.dist-info", module, public), "METADATA"),
		fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, public))
	if name == "torch" {
		cuda, hip := "None", "None"
		if number, found := strings.CutPrefix(build, "cu"); found {
			cuda = "'" + number[:len(number)-1] + "." + number[len(number)-1:] + "'"
		}
		if number, found := strings.CutPrefix(build, "rocm"); found {
			hip = "'" + number + ".43482-0f2d60242'"
		}
		writeFile(m.t, filepath.Join(site, "torch", "version.py"),
			fmt.Sprintf("__version__ = '%s'\ncuda: Optional[str] = %s\nhip: Optional[str] = %s\n", version, cuda, hip))
	}
}

func (m *machine) hostSite() string {
	m.t.Helper()
	pattern := filepath.Join(m.folder, "host", "lib", "python3*", "site-packages")
	if runtime.GOOS == "windows" {
		pattern = filepath.Join(m.folder, "host", "Lib", "site-packages")
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		m.t.Fatalf("site-packages of the host: %v %v", found, err)
	}
	return found[0]
}

// pack writes a pack with one manifest into ComfyUI and returns its folder.
func (m *machine) pack(name, manifest string) string {
	m.t.Helper()
	m.write("ComfyUI/custom_nodes/"+name+"/nodes/comfy-env.toml", manifest)
	m.write("ComfyUI/custom_nodes/"+name+"/nodes/__init__.py", "NODE_CLASS_MAPPINGS = {}\n")
	return filepath.Join(m.comfyui, "custom_nodes", name)
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	writeFile(m.t, filepath.Join(m.folder, filepath.FromSlash(path)), content)
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// facts reads the host's facts; the machine that runs the tests may have a GPU, this host has none.
func (m *machine) facts() Facts {
	m.t.Helper()
	facts, err := ReadFacts(m.t.Context(), FactsSource{Python: m.host, ComfyUI: m.comfyui, Environ: m.environ, Cache: m.config.Cache})
	if err != nil {
		m.t.Fatal(err)
	}
	facts.GPU = GPUFacts{}
	return facts
}

// build builds packs for the host as it is now.
func (m *machine) build(packs ...string) []Result {
	m.t.Helper()
	return m.buildWith(m.t.Context(), m.facts(), packs...)
}

func (m *machine) buildWith(ctx context.Context, facts Facts, packs ...string) []Result {
	m.t.Helper()
	m.mutex.Lock()
	m.events = nil
	m.mutex.Unlock()
	builder, err := NewBuilder(m.config, facts)
	if err != nil {
		m.t.Fatal(err)
	}
	defer builder.Close()
	work, problems := Discover(packs, facts.Platform)
	if len(problems) > 0 {
		m.t.Fatalf("discovering %v: %v", packs, problems)
	}
	return builder.Build(ctx, work)
}

// mustBuild builds one pack and expects an outcome.
func (m *machine) mustBuild(outcome string, pack string) Result {
	m.t.Helper()
	results := m.build(pack)
	if len(results) != 1 || results[0].Outcome != outcome {
		m.t.Fatalf("expected %s, got %+v", outcome, results)
	}
	return results[0]
}

// installed is what an environment's prefix holds.
func installed(t testing.TB, result Result, names ...string) map[string]string {
	t.Helper()
	sites, err := filepath.Glob(filepath.Join(result.Prefix, "lib", "python3*", "site-packages"))
	if runtime.GOOS == "windows" {
		sites, err = []string{filepath.Join(result.Prefix, "Lib", "site-packages")}, nil
	}
	if err != nil || len(sites) != 1 {
		t.Fatalf("site-packages of %s: %v %v", result.Prefix, sites, err)
	}
	versions, err := installedVersions(sites, names)
	if err != nil {
		t.Fatal(err)
	}
	return versions
}

// store opens the machine's store.
func (m *machine) store() *Store {
	m.t.Helper()
	store, err := OpenStore(m.config.Root)
	if err != nil {
		m.t.Fatal(err)
	}
	return store
}

// writeProgram writes a script that can be started. No process may be forked meanwhile: it would hold the file open
// for writing, and the script could not be started before that one executes something else.
func writeProgram(t testing.TB, path, content string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	writeFile(t, path, content)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}
