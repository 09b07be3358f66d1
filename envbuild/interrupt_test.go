//go:build linux

package envbuild

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// builder is a build in a process of its own.
type builder struct {
	command *exec.Cmd
	events  chan Event // closed at its end
}

// startBuilder starts a build in another process of this binary.
func (m *machine) startBuilder(packs ...string) *builder {
	m.t.Helper()
	return m.startBuilderWith(nil, packs...)
}

// startBuilderWith does so with more variables in its environment.
func (m *machine) startBuilderWith(variables []string, packs ...string) *builder {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	configuration := m.config
	configuration.Report = nil
	order, err := json.Marshal(builderOrder{Configuration: configuration, Facts: m.facts(), Folders: packs})
	if err != nil {
		m.t.Fatal(err)
	}
	b := &builder{command: exec.Command(self, builderCommand), events: make(chan Event, 1000)}
	b.command.Stdin = strings.NewReader(string(order))
	b.command.Stderr = os.Stderr
	b.command.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), variables...)
	output, err := b.command.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := b.command.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(b.events)
		scanner := bufio.NewScanner(output)
		for scanner.Scan() {
			var event Event
			if json.Unmarshal(scanner.Bytes(), &event) == nil {
				b.events <- event
			}
		}
	}()
	m.t.Cleanup(func() { _ = b.command.Process.Kill() })
	return b
}

// wait returns the events and the exit code.
func (b *builder) wait() ([]Event, int) {
	var events []Event
	for event := range b.events {
		events = append(events, event)
	}
	_ = b.command.Wait()
	return events, b.command.ProcessState.ExitCode()
}

// waitGone waits until the processes have ended, within a limit.
func waitGone(t *testing.T, descriptors []int, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for _, descriptor := range descriptors {
		left := max(0, int(time.Until(deadline).Milliseconds()))
		count, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, left)
		for errors.Is(err, unix.EINTR) {
			count, err = unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, max(0, int(time.Until(deadline).Milliseconds())))
		}
		if err != nil || count == 0 {
			t.Fatalf("a process of the build still lives %v after its end: %v", limit, err)
		}
		unix.Close(descriptor)
	}
}

// compiler is a build backend that starts a child in a session of its own, tells the index who they are, and
// then works for ever.
const compiler = `
import os, subprocess, sys, time, urllib.request
BASE = os.environ["TEST_INDEX"]
def tell(pid):
    urllib.request.urlopen(BASE + "/working/" + str(pid)).read()
def build_wheel(*arguments, **options):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    tell(child.pid)
    tell(os.getpid())
    time.sleep(600)
def build_sdist(*arguments, **options):
    raise SystemExit("not asked")
`

// slowPack makes a pack whose environment compiles for ever, and returns it with a function that waits until
// the compiler and its child work, and gives descriptors of them.
func (m *machine) slowPack(t *testing.T) (pack string, working func() []int) {
	t.Helper()
	file, content := makeSource("slow", "1.0", compiler)
	m.index.add("simple", file, content)
	told := make(chan int, 2)
	m.index.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		text, found := strings.CutPrefix(r.URL.Path, "/working/")
		if !found {
			return false
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Error(err)
		}
		descriptor, err := unix.PidfdOpen(pid, 0) // before the answer, while it certainly lives
		if err != nil {
			t.Errorf("opening process %d: %v", pid, err)
		}
		told <- descriptor
		return true
	})
	m.environ = append(m.environ, "TEST_INDEX="+m.index.URL)
	m.config.Environ = m.environ
	return m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nslow = \"*\"\n"), func() []int { return []int{<-told, <-told} }
}

func TestABuildThatIsKilledLeavesNoProcessNoLockAndTheEnvironmentOfBefore(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.index.wheel("small", "1.0", nil)
			before := m.mustBuild(OutcomeBuilt, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
			pack, working := m.slowPack(t)
			builder := m.startBuilder(pack)
			descriptors := working()
			sent := time.Now()
			if err := builder.command.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			waitGone(t, descriptors, time.Minute)
			t.Logf("every process of it was gone %s after the signal", time.Since(sent).Round(time.Millisecond))
			events, code := builder.wait()
			if signal == syscall.SIGKILL {
				if code != -1 {
					t.Errorf("exit code %d", code)
				}
			} else if last := events[len(events)-1]; code != 1 || last.Kind != EventFailed || !strings.Contains(last.Text, "cancelled") {
				t.Errorf("exit code %d, last event %+v", code, last)
			}

			found, err := m.store().Find("one-nodes", Query{AnyStack: true})
			if err != nil || found.Prefix != before.Prefix {
				t.Errorf("the environment of before: %+v %v", found, err)
			}
			if output, err := exec.Command(found.Python, "-c", "import small").CombinedOutput(); err != nil {
				t.Errorf("the environment of before is broken: %v %s", err, output)
			}
			// The next build waits for nothing, and removes what is half built.
			m.pack("one", "[pypi-dependencies]\nsmall = \"==1.0\"\n")
			after := m.mustBuild(OutcomeBuilt, pack)
			if m.said(EventWaiting, "") {
				t.Error("the lock was not free")
			}
			left, _, err := revisions(filepath.Dir(after.Revision), "")
			if err != nil || len(left) != 2 {
				t.Errorf("revisions %v %v; wanted the one of before and the new one", left, err)
			}
		})
	}
}

func TestACancelledBuildEndsItsProcessesBeforeItReturns(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack, working := m.slowPack(t)
	ctx, cancel := context.WithCancel(t.Context())
	var descriptors []int
	var watch sync.WaitGroup
	watch.Go(func() {
		descriptors = working()
		cancel()
	})
	results := m.buildWith(ctx, m.facts(), pack)
	watch.Wait()
	waitGone(t, descriptors, 0)
	if results[0].Outcome != OutcomeCancelled || !strings.Contains(results[0].Error, "cancelled") {
		t.Errorf("%+v", results[0])
	}
	if left, _, err := revisions(m.store().directory(results[0].Plan), ""); err != nil || len(left) != 0 {
		t.Errorf("left %v %v", left, err)
	}
}

func TestAnInstallerThatIsKilledFailsTheBuild(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack, working := m.slowPack(t)
	var watch sync.WaitGroup
	var descriptors []int
	watch.Go(func() {
		descriptors = working()
		for _, pid := range processesWith(t, "UV_PROJECT_ENVIRONMENT="+m.config.Root) {
			if name, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && strings.HasPrefix(filepath.Base(name), "uv") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	result := m.mustBuild(OutcomeFailed, pack)
	watch.Wait()
	waitGone(t, descriptors, 0)
	var failure *BuildError
	if !errors.As(result.Err, &failure) {
		t.Errorf("%v", result.Err)
	}
	m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	m.mustBuild(OutcomeBuilt, pack)
}

// processesWith lists processes with a variable that starts so.
func processesWith(t *testing.T, variable string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if content, err := os.ReadFile("/proc/" + entry.Name() + "/environ"); err == nil && strings.Contains("\x00"+string(content), "\x00"+variable) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestOfTwoBuildsAtOnceOneWaitsAndFindsItDone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	asked := make(chan struct{})
	release := make(chan struct{})
	var once sync.Once
	m.index.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/small") {
			once.Do(func() {
				close(asked)
				<-release
			})
		}
		return false
	})
	first := m.startBuilder(pack)
	<-asked
	second := m.startBuilder(pack)
	for event := range second.events {
		if event.Kind == EventWaiting {
			close(release)
			break
		}
	}
	secondEvents, secondCode := second.wait()
	firstEvents, firstCode := first.wait()
	if firstCode != 0 || firstEvents[len(firstEvents)-1].Kind != EventBuilt {
		t.Errorf("the first: %d %+v", firstCode, firstEvents)
	}
	if secondCode != 0 || len(secondEvents) != 1 || secondEvents[0].Kind != EventUnchanged {
		t.Errorf("the second: %d %+v", secondCode, secondEvents)
	}
	if found, err := m.store().List(Query{AnyStack: true}); err != nil || len(found) != 1 {
		t.Errorf("%+v %v", found, err)
	}
}

func TestAFullDiskFailsTheBuildWithItsReason(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a small file system can only be mounted by root")
	}
	m := newMachine(t)
	m.config.Root = filepath.Join(m.folder, "small-disk")
	if err := os.Mkdir(m.config.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", m.config.Root, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("this machine does not let file systems be mounted: %v", err)
	}
	t.Cleanup(func() {
		// Detached: a process that another test is just forking holds our descriptors until its exec.
		if err := unix.Unmount(m.config.Root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.index.wheel("small", "1.0", nil)
	m.index.wheel("large", "1.0", nil, "large/data.bin", strings.Repeat("0123456789abcdef", 256<<10))
	before := m.mustBuild(OutcomeBuilt, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nlarge = \"*\"\n")
	failed := m.mustBuild(OutcomeFailed, pack)
	if !strings.Contains(strings.ToLower(failed.Error), "no space left") || !strings.Contains(failed.Error, "`comfy-supervisor gc` lists what can go") {
		t.Errorf("error %q", failed.Error)
	}
	if found, err := m.store().Find("one-nodes", Query{AnyStack: true}); err != nil || found.Prefix != before.Prefix {
		t.Errorf("%+v %v", found, err)
	}
	m.pack("one", "[pypi-dependencies]\nsmall = \"==1.0\"\n")
	m.mustBuild(OutcomeBuilt, pack)
}

func TestWhatAnInterruptedSwitchLeftIsRemoved(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{".tmp-current1234", currentName, lockFileName, busyName} {
		if err := os.WriteFile(filepath.Join(directory, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeIncomplete(directory); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := []string{busyName, currentName, lockFileName}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, %v, want %v", left, err, want)
	}
}
