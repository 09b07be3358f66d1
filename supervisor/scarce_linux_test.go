package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// smallDisk puts a file system of a number of kilobytes at a folder, until the test ends.
func smallDisk(t *testing.T, folder string, kilobytes int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small file system can only be mounted by root")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dk,mode=0700", kilobytes)); err != nil {
		t.Skipf("this machine does not let file systems be mounted: %v", err)
	}
	t.Cleanup(func() {
		// Detached: a process that another test is just forking holds our descriptors until its exec.
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill takes all the room of a file system, and returns the file that does.
func fill(t *testing.T, folder string) string {
	t.Helper()
	path := filepath.Join(folder, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			return path
		}
	}
}

func TestAFullDiskForLogsCostsLinesAndNothingElse(t *testing.T) {
	options := newTestOptions(t)
	smallDisk(t, options.State, 256)
	daemon := startDaemon(t, options)
	client := daemon.connect()
	mustCall(t, client, "Speak", map[string]any{"text": "at first"})
	filler := fill(t, options.State)
	mustCall(t, client, "Speak", map[string]any{"text": strings.Repeat("x", 1000), "times": 100}) // less than the file system has
	mustCall(t, client, "Echo", nil)
	eventually(t, "lines to be lost", func() (some bool) {
		log := daemon.daemon.logs.of("pack")
		return log.run(func() { some = log.lost > 0 }) && some
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	lost := false
	eventually(t, "the log to say that lines are lost", func() bool {
		mustCall(t, client, "Speak", map[string]any{"text": "later"})
		err := client.Logs(testContext(t), api.LogsParams{Environment: "pack", Lines: -1}, func(line api.LogLine) {
			lost = lost || strings.Contains(line.Line, "lines lost: the log could not be written")
		})
		if err != nil {
			t.Fatal(err)
		}
		return lost
	})
}

func TestWithoutSpaceForItsRecordAWorkerDoesNotStartAndSaysSo(t *testing.T) {
	options := newTestOptions(t)
	smallDisk(t, options.Runtime, 256)
	options.Backoff = nil
	daemon := startDaemon(t, options)
	client := daemon.connect()
	filler := fill(t, options.Runtime)
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Echo"})
	if failure := wireError(t, err, wire.KindStartFailed); !strings.Contains(failure.Message, "no space left") {
		t.Errorf("got %v", failure)
	}
	host, err := api.Connect(testContext(t), func() api.Options { // whose session can not be recorded
		options := host()
		options.Socket = daemon.options.config().Socket
		return options
	}())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if _, err := host.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustCall(t, client, "Echo", nil)
	mustCall(t, host, "Echo", nil)
}

func TestWithoutSpaceForItsSocketASupervisorSaysSo(t *testing.T) {
	options := newTestOptions(t)
	smallDisk(t, options.Runtime, 64)
	filler := fill(t, options.Runtime)
	defer os.Remove(filler)
	daemon, line := launchSeparateDaemon(t, options)
	if !strings.HasPrefix(line, "error ") || !strings.Contains(line, "no space left") || !strings.Contains(line, options.Runtime) {
		t.Errorf("it said %q\n%s", line, daemon.log)
	}
}

func TestMemoryFilesDoNotDependOnTheSizeOfDevShm(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small /dev/shm can only be mounted by root")
	}
	options := newTestOptions(t)
	options.Quota = 1 << 30
	shell := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=1m none /dev/shm && exec "$@"`, "sh", os.Args[0])
	if err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/dev/shm").Run(); err != nil {
		t.Skipf("this machine does not let file systems be mounted: %v", err)
	}
	daemon, line := launchDaemonWith(t, options, shell)
	if line != "ready" {
		t.Fatalf("the daemon said %q\n%s", line, daemon.log)
	}
	client := connectOperator(t, options)
	result := mustCall(t, client, "Fill", map[string]any{"byte": 65, "count": 4 << 20})
	var value []struct {
		Bytes []byte `json:"$bytes"`
	}
	if err := result.Decode(&value); err != nil || len(value[0].Bytes) != 4<<20 {
		t.Errorf("got %v", err)
	}
	result.Close()
	endSeparateDaemon(t, options, daemon)
}

func TestAWorkerThatCanNotMakeAMemoryFileSaysWhyAndGoesOn(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	for _, limit := range []struct {
		name, expected string
		count          int // a pooled file of one does not fit the other
	}{
		{"NOFILE", "Too many open files", 8 << 20}, // first: later the pool has a descriptor to give up
		{"FSIZE", "File too large", 2 << 20},
	} {
		name, expected, count := limit.name, limit.expected, limit.count
		mustCall(t, client, "Limit", map[string]any{"name": name, "soft": 0})
		_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Fill", Inputs: map[string]any{"byte": 1, "count": count}})
		if failure := wireError(t, err, wire.KindQuota); !strings.Contains(failure.Message, expected) || !strings.Contains(failure.Message, "memory file of") {
			t.Errorf("%s: got %v", name, failure)
		}
		if usage := daemon.daemon.files.Usage(); usage.Files != 0 {
			t.Errorf("%s: %+v", name, usage)
		}
		mustCall(t, client, "Limit", map[string]any{"name": name, "soft": -1})
		mustCall(t, client, "Fill", map[string]any{"byte": 1, "count": count}).Close()
	}
	if result := mustCall(t, client, "Echo", nil); result.PythonPID != python {
		t.Error("the worker was replaced")
	}
}

func TestASupervisorWithoutDescriptorsGoesOnAndServesThoseWhoWaited(t *testing.T) {
	options := newTestOptions(t)
	options.addEnvironment("other")
	options.Backoff = []time.Duration{0}
	daemon := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	python := mustCall(t, client, "Echo", nil).PythonPID
	pid := daemon.command.Process.Pid
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	scarce := before
	scarce.Cur = 3
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &scarce, nil); err != nil {
		t.Fatal(err)
	}
	if result := mustCall(t, client, "Echo", nil); result.PythonPID != python { // what needs no descriptor works
		t.Error("the worker was replaced")
	}
	_, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"})
	if failure := wireError(t, err, wire.KindStartFailed); !strings.Contains(failure.Message, "too many open files") {
		t.Errorf("got %v", failure)
	}
	_, err = client.Call(testContext(t), api.Call{Environment: "pack", Node: "Fill", Inputs: map[string]any{"byte": 1, "count": 2 << 20}})
	if failure := wireError(t, err, wire.KindValue); !strings.Contains(failure.Message, "ulimit -n") {
		t.Errorf("got %v", failure)
	}
	conn := dialRaw(t, options) // the kernel lets it wait
	sendRaw(t, conn, wire.Message{ID: 1, Method: "no hello"})
	eventually(t, "the supervisor to notice", func() bool { return strings.Contains(daemon.log.String(), "no client can be accepted now") })
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	if reply := readMessage(t, conn); reply.Error == nil {
		t.Errorf("got %+v", reply)
	}
	if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
		t.Error(err)
	}
	mustCall(t, client, "Fill", map[string]any{"byte": 1, "count": 2 << 20}).Close()
	eventually(t, "the return of all memory files", func() bool {
		status, err := client.Status(testContext(t), api.StatusParams{})
		return err == nil && status.MemoryFiles.Open == 0
	})
	endSeparateDaemon(t, options, daemon)
}

// processGroup moves a process into a control group of its own, in which so many more processes and threads may be than
// it has. It returns a function that changes that.
func processGroup(t *testing.T, pid, more int) (allow func(more int)) {
	t.Helper()
	name := fmt.Sprintf("comfy-supervisor-test-%d", pid)
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		folder := filepath.Join(parent, name)
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the end of the control group", func() bool { return os.Remove(folder) == nil })
		})
		limit := func(more int) error {
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(folder, "pids.max"), []byte(strconv.Itoa(len(tasks)+more)), 0)
		}
		if limit(more) == nil && os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil {
			return func(more int) {
				if err := limit(more); err != nil {
					t.Error(err)
				}
			}
		}
	}
	t.Skip("no control group with a limit of processes can be made here; it takes root, and the controller pids")
	return nil
}

func TestAPackThatForksUntilNoProcessIsLeftGoesWithAllOfThem(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	processGroup(t, python, 50)
	result := mustCall(t, client, "Forks", nil)
	var forked []any
	if err := result.Decode(&forked); err != nil || forked[0].(float64) < 40 || !strings.Contains(forked[1].(string), "unavailable") {
		t.Fatalf("got %v, %v", forked, err)
	}
	if result := mustCall(t, client, "Echo", nil); result.PythonPID != python {
		t.Error("the worker was replaced")
	}
	if stopped, err := client.Stop(testContext(t), api.StopParams{Environment: "pack"}); err != nil || len(stopped) != 1 {
		t.Errorf("stop: %v, %v", stopped, err)
	}
	mustCall(t, client, "Echo", nil)
}

// askFromMany has fifty clients at once ask for logs, states and answers of the pack's worker, the given Python process.
func askFromMany(t *testing.T, options testOptions, python int) {
	t.Helper()
	var others sync.WaitGroup
	for range 50 {
		others.Go(func() {
			other, err := api.Connect(testContext(t), api.Options{Socket: options.config().Socket, Name: "other", Environ: os.Environ()})
			if err != nil {
				t.Error(err)
				return
			}
			defer other.Close()
			for range 3 {
				err := other.Logs(testContext(t), api.LogsParams{Environment: "pack", Lines: -1}, func(api.LogLine) {})
				_, statusErr := other.Status(testContext(t), api.StatusParams{})
				result, callErr := other.Call(testContext(t), api.Call{Environment: "pack", Node: "Echo"})
				if err := errors.Join(err, statusErr, callErr); err != nil {
					t.Error(err)
				} else if result.PythonPID != python {
					t.Error("the worker was replaced")
				}
			}
		})
	}
	others.Wait()
}

func TestASupervisorThatCanMakeNoProcessSaysSoAndGoesOn(t *testing.T) {
	options := newTestOptions(t)
	options.addEnvironment("other")
	options.Backoff, options.CrashCount = []time.Duration{0}, 100
	daemon := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	python := mustCall(t, client, "Echo", nil).PythonPID
	allow := processGroup(t, daemon.command.Process.Pid, 0)
	askFromMany(t, options, python)
	for _, more := range []int{0, 2} { // no launcher; one that can make no threads
		allow(more)
		_, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"})
		if failure := wireError(t, err, wire.KindStartFailed); !strings.Contains(failure.Message, "raise it (ulimit -u, or pids.max") {
			t.Errorf("room for %d: got %v", more, failure)
		}
		if result := mustCall(t, client, "Echo", nil); result.PythonPID != python {
			t.Error("the worker was replaced")
		}
	}
	allow(1000)
	if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
		t.Error(err)
	}
	endSeparateDaemon(t, options, daemon)
}

func TestASupervisorWhoseLogNobodyReadsGoesOn(t *testing.T) {
	options := newTestOptions(t)
	options.addEnvironment("other")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size, err := unix.FcntlInt(writer.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Stderr = writer
	daemon, line := launchDaemonWith(t, options, command)
	if line != "ready" {
		t.Fatalf("the daemon said %q", line)
	}
	client := connectOperator(t, options)
	python := mustCall(t, client, "Echo", nil).PythonPID
	processGroup(t, command.Process.Pid, 0) // a thread per goroutine that waits would be too many
	if used, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCINQ); err != nil || used > size {
		t.Fatalf("%d bytes in a pipe of %d: %v", used, size, err)
	} else if _, err := writer.Write(bytes.Repeat([]byte("\n"), size-used)); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	askFromMany(t, options, python)
	if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err == nil {
		t.Error("a worker started where no process can be made")
	}
	var log bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, err = log.ReadFrom(reader) })
	endSeparateDaemon(t, options, daemon)
	reading.Wait()
	if gone := strings.Count(log.String(), "client gone"); err != nil || gone < 50 {
		t.Errorf("%d clients went, says the log (%v):\n%s", gone, err, log.String())
	}
}

func TestLogsOnAFileSystemThatHangsKeepFewThreads(t *testing.T) {
	l := openLogs(t)
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	before := threads()
	const count = 100
	for i := range count {
		name := fmt.Sprintf("env %d", i)
		if err := unix.Mkfifo(l.path(name), 0o600); err != nil { // to open one waits for a reader
			t.Fatal(err)
		}
		l.add(api.LogLine{Environment: name, Stream: "stdout", Time: time.Now(), Line: "hello"})
		log := l.of(name)
		eventually(t, "the line to be taken", func() bool {
			log.mu.Lock()
			defer log.mu.Unlock()
			return len(log.queue) == 0
		})
	}
	eventually(t, "logs to hang", func() bool { return len(logTurns) == min(cap(logTurns), count) })
	if more := threads() - before; more > count/4 {
		t.Errorf("%d threads more for %d logs", more, count)
	}
	for i := range count {
		file, err := os.Open(l.path(fmt.Sprintf("env %d", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if text, err := bufio.NewReader(file).ReadString('\n'); err != nil || !strings.HasSuffix(text, " hello\n") {
			t.Errorf("got %q, %v", text, err)
		}
	}
}

func TestHostFactsThatAreNoFileAreRefused(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	fifo := filepath.Join(t.TempDir(), "facts")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir()} {
		_, err := api.Connect(testContext(t), api.Options{Socket: daemon.options.config().Socket, Role: api.RoleHost, Name: "host", HostFactsFile: path, Environ: os.Environ()})
		if failure := wireError(t, err, wire.KindBadRequest); !strings.Contains(failure.Message, "is no file") {
			t.Errorf("%s: got %v", path, failure)
		}
	}
}

func TestALauncherThatCanMakeNoThreadGoesOn(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	status, err := client.Status(testContext(t), api.StatusParams{})
	if err != nil {
		t.Fatal(err)
	}
	processGroup(t, status.Workers[0].LauncherPID, 0)
	for range 20 {
		mustCall(t, client, "Speak", map[string]any{"text": strings.Repeat("x", 1000), "times": 1000})
		if _, err := client.Status(testContext(t), api.StatusParams{}); err != nil { // the launcher counts processes
			t.Error(err)
		}
	}
	if result := mustCall(t, client, "Echo", nil); result.PythonPID != python {
		t.Error("the worker was replaced")
	}
	if stopped, err := client.Stop(testContext(t), api.StopParams{Environment: "pack"}); err != nil || len(stopped) != 1 {
		t.Errorf("stop: %v, %v", stopped, err)
	}
}
