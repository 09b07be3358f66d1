//go:build linux

package spawn

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// stray starts a process that carries a worker's ID without a launcher.
func stray(t *testing.T, variables ...string) Process {
	t.Helper()
	command := exec.Command("sleep", "600")
	command.Env = variables
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	// A process shows its environment once it has executed its program.
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for environmentValue(command.Process.Pid, "STRAY") == "" {
		<-ticker.C
	}
	return identify(t, command.Process.Pid)
}

func TestASweepKillsWhatADeadLauncherLeft(t *testing.T) {
	const workerMark, launcherMark = "COMFY_SUPERVISOR_TEST_WORKER", "COMFY_SUPERVISOR_TEST_LAUNCHER"
	id, live, owned := newID(), newID(), newID()
	victims := []Process{stray(t, "STRAY=1", workerMark+"="+id), stray(t, "STRAY=1", "A=b", workerMark+"="+id)}
	spared := []Process{
		stray(t, "STRAY=1", workerMark+"="+live),
		stray(t, "STRAY=1"),
		stray(t, "STRAY=1", workerMark+"=no-id"),
		stray(t, "STRAY=1", "X"+workerMark+"="+id),
		stray(t, "STRAY=1", workerMark+"="+owned), // the worker of another supervisor, with its launcher
		stray(t, "STRAY=1", launcherMark+"="+owned),
	}
	killed, err := sweep(testContext(t), workerMark, launcherMark, map[string]bool{live: true})
	if err != nil {
		t.Fatal(err)
	}
	byPID := cmpopts.SortSlices(func(a, b Process) bool { return a.PID < b.PID })
	if difference := cmp.Diff(victims, killed, byPID); difference != "" {
		t.Error(difference)
	}
	expectDead(t, victims)
	for _, process := range spared {
		if !process.Alive() {
			t.Errorf("%v was killed", process)
		}
	}
}

func TestASweepSparesWorkersThatHaveALauncher(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	if _, err := Sweep(testContext(t), nil); err != nil {
		t.Fatal(err)
	}
	ask[anything](t, worker, "echo", nil)
}

func TestAnAdoptedZombieIsReaped(t *testing.T) {
	supervisor, record := startTestSupervisor(t, testSpec(t)) // a subreaper
	worker := attach(t, record, newRecorder())
	below := grandchildren(t, worker, anything{"count": 3, "cleared": true})
	if err := worker.Detach(); err != nil {
		t.Fatal(err)
	}
	// Without their launcher the grandchildren, which have cleared their environment, are the supervisor's children.
	if err := syscall.Kill(record.Launcher.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitProcess(t, record.Python)
	for _, process := range below {
		if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(testLimit)
	for _, process := range append(below, record.Python) {
		for {
			stat, err := readStat(process.PID)
			if err != nil || stat.startTime != process.StartTime {
				break
			}
			select {
			case <-ticker.C:
			case <-limit:
				t.Fatalf("%v is a zombie of %d; the supervisor is %d", process, stat.parent, supervisor.command.Process.Pid)
			}
		}
	}
}

func TestStatLinesAreParsed(t *testing.T) {
	stat, err := parseStat([]byte("42 (a) b (c)) S 1 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 55 1844\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := procStat{pid: 42, parent: 1, group: 42, session: 41, state: 'S', startTime: "987654", residentPages: 55}
	if stat != want {
		t.Errorf("%+v", stat)
	}
	for _, bad := range []string{"", "42", "42 (a", "42 (a) S 1 2", "x (a) S 1 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 55"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestAWatchSeesTheEndAndOnlyTheRightProcess(t *testing.T) {
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process := identify(t, command.Process.Pid)
	if _, err := WatchProcess(Process{PID: process.PID, StartTime: "1"}); err == nil {
		t.Error("another start time was accepted")
	}
	watch, err := WatchProcess(process)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := WatchProcess(process)
	if err != nil {
		t.Fatal(err)
	}
	idle.Close() // ends its goroutine though the process lives
	select {
	case <-idle.Done():
		t.Error("closing a watch looks like the process's end")
	case <-watch.Done():
		t.Error("the process has not ended")
	default:
	}
	if err := watch.Kill(); err != nil {
		t.Fatal(err)
	}
	<-watch.Done()
	if process.Alive() {
		t.Error("a zombie counts as alive")
	}
	_ = command.Wait()
	if err := watch.Kill(); err != nil {
		t.Error(err)
	}
	watch.Close()
	watch.Close()
	if _, err := WatchProcess(process); err == nil {
		t.Error("a process that is over was watched")
	}
	if self := identify(t, os.Getpid()); !self.Alive() {
		t.Error("this process does not live")
	}
}
