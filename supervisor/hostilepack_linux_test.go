package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// runPack is a pack that does something at its import, and has a node that does whatever it is told.
const runPack = `import ctypes, os, resource, signal, subprocess, sys, threading, time

%s


class Run:
    INPUT_TYPES = classmethod(lambda cls: {"required": {"code": ("STRING",)}, "optional": {}})
    RETURN_TYPES = ("*",)
    FUNCTION = "run"
    CATEGORY = "test"

    def run(self, code, marker=""):
        scope = {**globals(), "marker": marker, "answer": "done"}
        exec(code, scope)
        return (scope["answer"],)


NODE_CLASS_MAPPINGS = {"Run": Run}
`

// detached is Python that leaves a process in a session of its own, with its PID in the marker, which runs a command.
const detached = `
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(marker + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(marker + ".new", marker)
    %s
while not os.path.exists(marker):
    time.sleep(0.005)
`

// hostilePack is a daemon with one pack.
func hostilePack(t *testing.T, atImport string, change func(*testOptions)) (*testDaemon, *api.Client) {
	t.Helper()
	options := newTestOptions(t)
	options.CrashCount = 0
	options.StopGrace = 300 * time.Millisecond
	pack := t.TempDir()
	if err := os.WriteFile(filepath.Join(pack, "__init__.py"), fmt.Appendf(nil, runPack, atImport), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := options.Environments[0]
	environment.Name, environment.PackDirectory, environment.NodesDirectory = "hostile", pack, pack
	options.Environments = append(options.Environments, environment)
	if change != nil {
		change(&options)
	}
	daemon := startDaemon(t, options)
	return daemon, daemon.connect()
}

// run has a hostile pack's node do something.
func run(t *testing.T, client *api.Client, code, marker string) (string, error) {
	t.Helper()
	result, err := client.Call(testContext(t), api.Call{Environment: "hostile", Node: "Run", Inputs: map[string]any{"code": code, "marker": marker}})
	if err != nil {
		return "", err
	}
	defer result.Close()
	return string(result.Value), nil
}

func mustRun(t *testing.T, client *api.Client, code, marker string) string {
	t.Helper()
	value, err := run(t, client, code, marker)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestPacksThatDoHarmAtImportStart(t *testing.T) {
	for name, lines := range map[string][]string{
		"prints megabytes, replaces its streams, clears its environment and changes folder, umask and signals": {
			`print("x" * 5_000_000); [print("line", n) for n in range(50_000)]`,
			`os.chdir("/"); os.umask(0o777); [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15, 17)]`,
			`sys.stdout = sys.stderr = None; os.environ.clear()`,
		},
		"closes descriptors, starts threads that never end, forgets its parent": {
			`os.closerange(0, 1000); ctypes.CDLL(None).prctl(1, 0)`,
			`[threading.Thread(target=threading.Event().wait).start() for _ in range(20)]`,
		},
		"forks, and leaves a child that holds the pipes": {
			`subprocess.Popen(["sleep", "600"])`,
			"if os.fork() == 0:\n    signal.pause()",
		},
	} {
		t.Run(name, func(t *testing.T) {
			daemon, client := hostilePack(t, strings.Join(lines, "\n"), nil)
			if value := mustRun(t, client, `answer = "x" * 3_000_000`, ""); len(value) != 3_000_004 {
				t.Errorf("got %d bytes", len(value))
			}
			worker := onlyWorker(t, client, "hostile")
			if stopped, err := client.Stop(testContext(t), api.StopParams{Environment: "hostile"}); err != nil || len(stopped) != 1 {
				t.Errorf("stop: %v, %v", stopped, err)
			}
			for _, pid := range []int{worker.PythonPID, worker.LauncherPID} {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process %d exists after stop: %v", pid, err)
				}
			}
			for _, left := range processesMentioning(t, filepath.Dir(daemon.options.Runtime)) {
				t.Errorf("left: %s", left)
			}
		})
	}
}

func TestHowAHostilePackEndedIsTold(t *testing.T) {
	for name, test := range map[string]struct{ code, signal, said string }{
		"aborts in native code":  {`print("before", file=sys.stderr, flush=True); ctypes.CDLL(None).abort()`, "SIGABRT", "before"},
		"reads where nothing is": {`ctypes.string_at(0)`, "SIGSEGV", ""},
		"is ended from outside":  {`os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)`, "SIGTERM", ""},
		"is a fatal error":       {`ctypes.pythonapi.Py_FatalError(b"it is corrupted")`, "SIGABRT", "it is corrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := hostilePack(t, "", nil)
			_, err := run(t, client, test.code, "")
			failure := wireError(t, err, wire.KindWorkerDied)
			if failure.Data.Signal != test.signal || !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), test.said) || failure.Data.Remedy == "" {
				t.Errorf("got %+v", failure)
			}
			mustRun(t, client, "", "")
		})
	}
}

func TestWhatAHostilePackLeavesGoesWithIt(t *testing.T) {
	for name, child := range map[string]string{
		"a child that ignores SIGTERM and holds the pipes": `signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)`,
		"one that has cleared its environment":             `os.execve("/bin/sleep", ["sleep", "600"], {})`,
		"one that forks all the time":                      "while True:\n        time.sleep(0.001) if os.fork() == 0 else os._exit(0)",
	} {
		t.Run(name, func(t *testing.T) {
			_, client := hostilePack(t, "", nil)
			code := fmt.Sprintf(detached, child)
			for _, end := range []string{"stop", "kill"} {
				path := marker(t)
				mustRun(t, client, code, path)
				child := atoi(t, awaitFile(t, path))
				if end == "stop" {
					if _, err := client.Stop(testContext(t), api.StopParams{Environment: "hostile"}); err != nil {
						t.Fatal(err)
					}
				} else {
					_, err := run(t, client, `os.kill(os.getpid(), 9)`, "")
					wireError(t, err, wire.KindWorkerDied)
					mustRun(t, client, "", "") // the next one starts when nothing is left of this
				}
				if err := syscall.Kill(child, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("after a %s process %d is left: %v", end, child, err)
				}
			}
		})
	}
}

func TestAPackThatAllocatesTooMuchGetsAnErrorOrItsEndIsExplained(t *testing.T) {
	_, client := hostilePack(t, "", nil)
	python := onlyRun(t, client)
	_, err := run(t, client, `
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
try:
    kept = []
    while True:
        kept.append(bytearray(8 << 20))
finally:
    del kept
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
`, "")
	if failure := wireError(t, err, wire.KindNodeRaised); !strings.Contains(failure.Message, "MemoryError") {
		t.Errorf("got %v", failure)
	}
	if onlyRun(t, client) != python {
		t.Error("the worker was replaced")
	}
	memoryGroup(t, python, 96<<20)
	_, err = run(t, client, `
kept = []
while True:
    kept.append(bytearray(os.urandom(1 << 20)))
`, "")
	failure := wireError(t, err, wire.KindWorkerDied)
	if failure.Data.Signal != "SIGKILL" || !strings.Contains(failure.Message, "for lack of memory") {
		t.Errorf("got %v", failure)
	}
	if onlyRun(t, client) == python {
		t.Error("the worker lives")
	}
}

// onlyRun returns the worker's process.
func onlyRun(t *testing.T, client *api.Client) int {
	t.Helper()
	return atoi(t, strings.Trim(mustRun(t, client, "answer = os.getpid()", ""), "[]"))
}

// memoryGroup limits a process's memory.
func memoryGroup(t *testing.T, pid int, bytes int64) {
	t.Helper()
	name := fmt.Sprintf("comfy-supervisor-test-%d", pid)
	for _, group := range []struct{ parent, limit string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		folder := filepath.Join(group.parent, name)
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the end of the control group", func() bool { return os.Remove(folder) == nil })
		})
		if os.WriteFile(filepath.Join(folder, group.limit), []byte(strconv.FormatInt(bytes, 10)), 0) == nil &&
			os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil {
			return
		}
	}
	t.Skip("no control group with a limit of memory can be made here; it takes root, and the controller memory")
}

func TestAnInterpreterThatDoesNotComeUpSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		expect func(*wire.Error) bool
	}{
		"lacks a shared library": {
			"echo 'python: error while loading shared libraries: libneeded.so.1: cannot open shared object file' >&2; exit 127",
			func(failure *wire.Error) bool {
				return failure.Data.ExitCode != nil && *failure.Data.ExitCode == 127 && strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "libneeded.so.1")
			},
		},
		"never says a word": {
			"exec sleep 600",
			func(failure *wire.Error) bool {
				return strings.Contains(failure.Message, "was not ready after") && strings.Contains(failure.Message, "waiting for Python's first words")
			},
		},
		"talks first": {
			"echo much noise; echo to both >&2; exit 0",
			func(failure *wire.Error) bool {
				return failure.Data.ExitCode != nil && *failure.Data.ExitCode == 0 && strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "to both")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := hostilePack(t, "", func(options *testOptions) {
				script := filepath.Join(t.TempDir(), "python")
				if err := os.WriteFile(script, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				options.Environments[len(options.Environments)-1].Python = script
				options.Start = 2 * time.Second
			})
			_, err := run(t, client, "", "")
			if failure := wireError(t, err, wire.KindStartFailed); !test.expect(failure) {
				t.Errorf("got %+v", failure)
			}
		})
	}
	t.Run("a pack that lacks one", func(t *testing.T) {
		_, client := hostilePack(t, `ctypes.CDLL("libneeded.so.1")`, nil)
		_, err := run(t, client, "", "")
		if failure := wireError(t, err, wire.KindPackFailed); !strings.Contains(failure.Message, "libneeded.so.1") {
			t.Errorf("got %v", failure)
		}
	})
}
