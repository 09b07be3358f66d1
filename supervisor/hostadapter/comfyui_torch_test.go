//go:build torch

package hostadapter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/upstream"
)

// installation is a copy of ComfyUI with folders of the product of its own.
type installation struct {
	folder, python, binary string
	environ                []string
}

var built struct {
	sync.Mutex
	folder string
}

// product is the product's binary, built once for all tests of this package.
func product(t testing.TB) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.folder == "" {
		folder, err := os.MkdirTemp("", "comfy-supervisor-product-")
		if err != nil {
			t.Fatal(err)
		}
		built.folder = folder
		must(t, exec.CommandContext(t.Context(), "go", "build", "-o", folder, "../../cmd/comfy-supervisor"))
	}
	return filepath.Join(built.folder, "comfy-supervisor")
}

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.folder)
	os.Exit(status)
}

// install copies ComfyUI, for a product with folders of its own.
func install(t testing.TB) *installation {
	t.Helper()
	root := t.TempDir()
	made := &installation{folder: filepath.Join(root, "ComfyUI"), python: upstream.Host(t), binary: product(t)}
	if err := os.CopyFS(made.folder, os.DirFS(upstream.ComfyUI(t))); err != nil {
		t.Fatal(err)
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !strings.HasPrefix(name, "COMFY_") && name != "PYTHONPATH" && name != "XDG_RUNTIME_DIR" {
			made.environ = append(made.environ, variable)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	made.environ = append(made.environ,
		"COMFY_SUPERVISOR_RUNTIME_DIR="+filepath.Join(root, "run"), "COMFY_SUPERVISOR_STATE_DIR="+filepath.Join(root, "state"),
		"COMFY_SUPERVISOR_CACHE_DIR="+filepath.Join(root, "cache"),
		// Environments are gigabytes; those of tests are kept between runs, as the test interpreters are.
		"COMFY_ENV_ROOT="+filepath.Join(cache, "comfy-supervisor-tests", "environments"),
		"PYTHONHASHSEED=0", // ComfyUI runs some nodes in the order of a set
	)
	t.Cleanup(func() {
		stop := made.command(context.Background(), "stop", "--all")
		if said, err := stop.CombinedOutput(); err != nil {
			t.Logf("stopping the supervisor: %v\n%s", err, said)
		}
	})
	return made
}

func must(t testing.TB, command *exec.Cmd) string {
	t.Helper()
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command.Args, " "), err, said)
	}
	return string(said)
}

// command is a command of the product.
func (i *installation) command(ctx context.Context, words ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, i.binary, words...)
	command.Env = i.environ
	return command
}

// use builds the packs' environments and returns the variables that ComfyUI needs.
func (i *installation) use(t testing.TB) []string {
	t.Helper()
	t.Log(must(t, i.command(t.Context(), "build", "--comfyui", i.folder, "--python", i.python)))
	return i.variables(t)
}

// variables are the environment of a ComfyUI that uses the supervisor.
func (i *installation) variables(t testing.TB) []string {
	t.Helper()
	var variables map[string]string
	listing := must(t, i.command(t.Context(), "env", "--json", "--comfyui", i.folder, "--python", i.python))
	if err := json.Unmarshal([]byte(listing), &variables); err != nil {
		t.Fatalf("env printed %q: %v", listing, err)
	}
	environ := slices.Clone(i.environ)
	for name, value := range variables {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// server is a running ComfyUI.
type server struct {
	command *exec.Cmd
	port    int
	log     string
	over    chan struct{}
}

// start starts ComfyUI and returns when it listens. It is ended with the test, or before by stop.
func (i *installation) start(t testing.TB, environ []string, arguments ...string) *server {
	t.Helper()
	return i.startBy(t, environ, []string{i.python, "main.py"}, arguments...)
}

// startBy starts ComfyUI by another command.
func (i *installation) startBy(t testing.TB, environ, words []string, arguments ...string) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	made := &server{port: port, log: filepath.Join(t.TempDir(), "comfyui.log"), over: make(chan struct{})}
	words = slices.Concat(words, []string{"--cpu", "--port", strconv.Itoa(port)}, arguments)
	made.command = exec.Command(words[0], words[1:]...)
	made.command.Dir, made.command.Env = i.folder, environ
	output, err := made.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	made.command.Stderr = made.command.Stdout
	log, err := os.Create(made.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.command.Start(); err != nil {
		t.Fatal(err)
	}
	listens := make(chan struct{})
	go func() {
		defer close(made.over)
		defer log.Close()
		lines := bufio.NewReader(io.TeeReader(output, log))
		announced := false
		for {
			line, err := lines.ReadString('\n')
			if !announced && strings.Contains(line, "To see the GUI go to") {
				announced = true
				close(listens)
			}
			if err != nil {
				_ = made.command.Wait()
				return
			}
		}
	}()
	t.Cleanup(func() { made.stop(t) })
	select {
	case <-listens:
	case <-made.over:
		t.Fatalf("ComfyUI ended at its start:\n%s", made.said(t))
	case <-time.After(5 * time.Minute):
		t.Fatalf("ComfyUI did not listen within five minutes:\n%s", made.said(t))
	}
	return made
}

func (s *server) said(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *server) stop(t testing.TB) {
	t.Helper()
	_ = s.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.over:
	case <-time.After(30 * time.Second):
		_ = s.command.Process.Kill()
		<-s.over
	}
}

// scenario runs the scenario against a server and returns what was seen of each case.
func (i *installation) scenario(t *testing.T, server *server) map[string]any {
	t.Helper()
	script, err := filepath.Abs("tests/comfyui/scenario.py")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), i.python, script, strconv.Itoa(server.port))
	command.Dir = i.folder
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("the scenario: %v\n%s\n%s", err, printed, server.said(t))
	}
	var seen map[string]any
	if err := json.Unmarshal(printed, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// addContractPack puts the contract pack into a ComfyUI, as a pack of the host's or as an isolated one.
func (i *installation) addContractPack(t *testing.T, native bool) {
	t.Helper()
	pack := filepath.Join(i.folder, "custom_nodes", "contract")
	if err := os.CopyFS(pack, os.DirFS("../../testdata/packs/contract")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(i.folder, "extra", "a.safetensors"), "")
	write(t, filepath.Join(i.folder, "models", "contract", "b.pt"), "")
	write(t, filepath.Join(i.folder, "extra_model_paths.yaml"), fmt.Sprintf("contract:\n  base_path: %s\n  contract_extra: extra\n", i.folder))
	extension, err := txtar.ParseFile("../../testdata/packs/extension.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range extension.Files {
		write(t, filepath.Join(i.folder, "custom_nodes", file.Name), string(file.Data))
	}
	manifest, err := os.ReadFile(filepath.Join(pack, "nodes", "comfy-env.toml")) // comfy_api needs as much
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(i.folder, "custom_nodes", "extension", "nodes", "comfy-env.toml"), string(manifest))
	if native {
		if err := os.Remove(filepath.Join(i.folder, "custom_nodes", "extension", "nodes", "comfy-env.toml")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(i.folder, "custom_nodes", "extension", "__init__.py"), "from .nodes import comfy_entrypoint\n")
		if err := os.Remove(filepath.Join(pack, "nodes", "comfy-env.toml")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(pack, "__init__.py"), "from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS\n")
	}
}

func write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// bothSides are a real ComfyUI tree of the test's own, and the Python of a worker and of a host.
func bothSides(t *testing.T) (tree, program, adapter string) {
	t.Helper()
	program, err := pyworker.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	adapter, err = hostadapter.Layout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree = filepath.Join(t.TempDir(), "ComfyUI")
	if err := os.CopyFS(tree, os.DirFS(upstream.ComfyUI(t))); err != nil {
		t.Fatal(err)
	}
	return tree, program, adapter
}

func TestEveryCoreNodeLooksTheSameThroughItsContract(t *testing.T) {
	t.Parallel()
	tree, program, adapter := bothSides(t)
	said, err := exec.CommandContext(t.Context(), upstream.Host(t), "tests/comfyui/core_nodes.py", tree, program, adapter).Output()
	if err != nil {
		t.Fatalf("comparing: %v\n%s", err, said)
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	counted := regexp.MustCompile(`^(\d+) nodes compared$`).FindStringSubmatch(lines[len(lines)-1])
	if counted == nil || len(counted[1]) < 3 {
		t.Errorf("the comparison ended with %q, want hundreds of nodes", lines[len(lines)-1])
	}
	for _, line := range lines[:len(lines)-1] {
		t.Error(line)
	}
}

func TestTheContractPackBehavesInAWorkerAsItDoesNatively(t *testing.T) {
	t.Parallel()
	native, isolated := install(t), install(t)
	native.addContractPack(t, true)
	isolated.addContractPack(t, false)
	flags := []string{"--preview-size", "300", "--default-hashing-function", "sha1", "--reserve-vram", "1.5", "--disable-mmap", "--deterministic"}
	running := native.start(t, native.environ, flags...)
	expected := native.scenario(t, running)
	running.stop(t)
	running = isolated.start(t, isolated.use(t), flags...)
	seen := isolated.scenario(t, running)
	if len(expected) < 84 {
		t.Fatalf("%d cases, want all", len(expected))
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		t.Run(name, func(t *testing.T) {
			if failed, ok := expected[name].(map[string]any); ok && failed["failed"] != nil {
				t.Fatalf("natively: %v", failed["failed"])
			}
			if difference := cmp.Diff(expected[name], seen[name]); difference != "" {
				t.Errorf("(-natively +isolated):\n%s", difference)
			}
		})
	}
	t.Run("logging: the lines of each descriptor in order, under the pack's name, at the host's level", func(t *testing.T) {
		said := running.said(t)
		for _, lines := range [][]string{{"info 3", "warning 3"}, {"printed 3", "written 3", "half a line 3"}} {
			pattern := `\[contract\] contract: (` + strings.Join(lines, "|") + `)\n`
			var seen []string
			for _, line := range regexp.MustCompile(pattern).FindAllStringSubmatch(said, -1) {
				seen = append(seen, line[1])
			}
			if difference := cmp.Diff(lines, seen); difference != "" {
				t.Errorf("(-want +got):\n%s", difference)
			}
		}
		if strings.Contains(said, "contract: debug") {
			t.Error("a line below the host's level")
		}
	})
	if t.Failed() {
		t.Log(running.said(t))
	}
}

func TestUpstreamsExecutionTestsPassAcrossTheBoundary(t *testing.T) {
	t.Parallel()
	made := install(t)
	testing := filepath.Join(made.folder, "tests", "execution", "testing_nodes", "testing-pack")
	pack := filepath.Join(made.folder, "custom_nodes", "testing-pack")
	if err := os.MkdirAll(pack, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(testing, filepath.Join(pack, "nodes")); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../testdata/packs/contract/nodes/comfy-env.toml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(pack, "nodes", "comfy-env.toml"), string(manifest))
	write(t, filepath.Join(pack, "__init__.py"), "from comfy_env import register_nodes\n\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n")
	tests, err := filepath.Glob(filepath.Join(made.folder, "tests", "execution", "test_*.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests { // their clients give up after twenty seconds, which a cold start may need longer than
		text, err := os.ReadFile(test)
		if err != nil {
			t.Fatal(err)
		}
		write(t, test, strings.ReplaceAll(string(text), "n_tries = 5", "n_tries = 60"))
	}
	environ := made.use(t)
	environ = append(environ, "PATH="+filepath.Dir(made.python)+string(os.PathListSeparator)+os.Getenv("PATH")) // they start `python main.py`
	command := exec.CommandContext(t.Context(), made.python, "-m", "pytest", "-q", "--no-header", "-W", "ignore", "-p", "no:cacheprovider",
		"--skip-timing-checks", "tests/execution/test_execution.py", "tests/execution/test_async_nodes.py")
	command.Dir, command.Env = made.folder, environ
	said, err := command.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^190 passed in `).Match(said) {
		t.Errorf("upstream's tests: %v\n%s", err, said)
	}
}

func TestTheLoanBooksHoldAgainstARealComfyUI(t *testing.T) {
	t.Parallel()
	tree, program, adapter := bothSides(t)
	for book, path := range map[string]string{"comfy_supervisor_worker.comfyui.loanbook": program, "comfyui_adapter.loanbook": adapter} {
		said, err := exec.CommandContext(t.Context(), upstream.Host(t), "tests/comfyui/loans.py", tree, book, path).Output()
		if err != nil {
			t.Fatalf("checking %s: %v\n%s", book, err, said)
		}
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		if !regexp.MustCompile(`^\d\d+ loans checked$`).MatchString(lines[len(lines)-1]) {
			t.Errorf("checking %s ended with %q", book, lines[len(lines)-1])
		}
		for _, line := range lines[:len(lines)-1] {
			t.Errorf("%s: %s", book, line)
		}
	}
}
