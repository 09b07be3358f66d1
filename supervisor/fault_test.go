//go:build unix

package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
)

func TestAWorkerKilledInMidCallNamesItsSignalAndTheNextCallStartsGeneration2(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
	failure := wireError(t, err, wire.KindWorkerDied)
	if failure.Data.Signal != "SIGKILL" || !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "about to die") ||
		failure.Data.Remedy == "" || failure.Data.Generation != 1 {
		t.Errorf("got %+v", failure)
	}
	if result := mustCall(t, client, "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d, expected 2", result.Generation)
	}
}

func TestAWorkerThatExitsInMidCallNamesItsCode(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Leave"})
	failure := wireError(t, err, wire.KindWorkerDied)
	if failure.Data.ExitCode == nil || *failure.Data.ExitCode != 3 || !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "leaving early") {
		t.Errorf("got %+v", failure.Data)
	}
}

func TestALauncherKilledInMidCallTakesTheWholeTreeWithIt(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	running, grandchild := beginOrphan(t, client)
	worker := daemon.worker()
	if err := syscall.Kill(worker.LauncherPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wireError(t, running.wait(t), wire.KindWorkerDied)
	awaitEnd(t, worker.PythonPID, waitLong)
	awaitEnd(t, grandchild, waitLong)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d, expected 2", result.Generation)
	}
}

func TestStopAnswersWhenTheTreeIsGone(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	running, grandchild := beginOrphan(t, client)
	worker := daemon.worker()
	begun := time.Now()
	stopped, err := daemon.connect().Stop(testContext(t), api.StopParams{Environment: "pack"})
	if err != nil {
		t.Fatal(err)
	}
	if len(stopped) != 1 || stopped[0].PythonPID != worker.PythonPID {
		t.Errorf("stop reports %+v", stopped)
	}
	for _, pid := range []int{worker.PythonPID, worker.LauncherPID, grandchild} {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d exists after stop: %v", pid, err)
		}
	}
	wireError(t, running.wait(t), wire.KindStopped)
	t.Logf("stopped within %s", time.Since(begun))
	stopped, err = client.Stop(testContext(t), api.StopParams{Environment: "pack"})
	if err != nil || len(stopped) != 0 {
		t.Errorf("stopping nothing: %v, %v", stopped, err)
	}
	mustCall(t, client, "Echo", nil)
}

func TestCrashesLeadToAPauseAndThenToQuarantineThatResetEnds(t *testing.T) {
	options := newTestOptions(t)
	options.CrashCount = 3
	options.Backoff = []time.Duration{0, 50 * time.Millisecond}
	daemon := startDaemon(t, options)
	client := daemon.connect()
	for range 3 {
		_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
		wireError(t, err, wire.KindWorkerDied)
	}
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Echo"})
	failure := wireError(t, err, wire.KindStartFailed)
	if !strings.Contains(failure.Message, "quarantined") || failure.Data.Signal != "SIGKILL" || !strings.Contains(failure.Data.Remedy, "reset") {
		t.Errorf("got %+v", failure)
	}
	worker := daemon.worker()
	if worker.State != string(Quarantined) || worker.Crashes != 3 || worker.Exit == nil || worker.Exit.Signal != "SIGKILL" {
		t.Errorf("status shows %+v", worker)
	}
	reset, err := client.Reset(testContext(t), api.StopParams{Environment: "pack"})
	if err != nil || len(reset) != 1 {
		t.Fatalf("reset: %v, %v", reset, err)
	}
	if result := mustCall(t, client, "Echo", nil); result.Generation != 4 {
		t.Errorf("got generation %d, expected 4", result.Generation)
	}
}

func TestRestartReplacesAWorkerWhichIsReadyThen(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	first := mustCall(t, client, "Echo", nil)
	restarted, err := client.Restart(testContext(t), api.StopParams{Environment: "pack"})
	if err != nil || len(restarted) != 1 || restarted[0].PythonPID != first.PythonPID {
		t.Fatalf("restart: %v, %v", restarted, err)
	}
	if worker := daemon.worker(); worker.State != string(Ready) || worker.Generation != 2 {
		t.Errorf("status shows %+v", worker)
	}
}

func TestAnIdleWorkerIsReaped(t *testing.T) {
	options := newTestOptions(t)
	options.Reap = 100 * time.Millisecond
	daemon := startDaemon(t, options)
	first := mustCall(t, daemon.connect(), "Echo", nil)
	awaitEnd(t, first.PythonPID, waitLong)
	if result := mustCall(t, daemon.connect(), "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d, expected 2", result.Generation)
	}
}

func TestAWorkerThatIsNotReadyInTimeIsEndedAndSaysWhereItWas(t *testing.T) {
	options := newTestOptions(t)
	options.Start = 5 * time.Second
	slow := options.Environments[0]
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "__init__.py"), []byte("import time\n\n\ndef dawdle():\n    time.sleep(600)\n\n\ndawdle()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	slow.Name, slow.PackDirectory, slow.NodesDirectory = "slow", folder, folder
	options.Environments = append(options.Environments, slow)
	client := startDaemon(t, options).connect()
	_, err := client.Call(testContext(t), api.Call{Environment: "slow", Node: "Any"})
	failure := wireError(t, err, wire.KindStartFailed)
	if !strings.Contains(failure.Message, "pack") || !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "in dawdle") {
		t.Errorf("got %+v", failure)
	}
}

// startHost starts a client process of the host's role.
func startHost(t *testing.T, options testOptions, arguments ...string) (*exec.Cmd, *bufio.Reader, io.Closer) {
	t.Helper()
	host := exec.Command(os.Args[0], append([]string{"test-client", options.config().Socket}, arguments...)...)
	input, output := processtest.Start(t, host)
	t.Cleanup(func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	})
	return host, bufio.NewReader(output), input
}

func TestTheDeathOfAHostEndsItsWorkersWithoutWaitingForItsReturn(t *testing.T) {
	options := newTestOptions(t)
	options.Reconnect, options.Orphan, options.StopGrace = time.Hour, time.Hour, time.Hour
	daemon := startDaemon(t, options)
	path := marker(t)
	host, _, _ := startHost(t, options, "Orphan", fmt.Sprintf(`{"marker": %q}`, path))
	grandchild := atoi(t, awaitFile(t, path))
	worker := daemon.worker()
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{worker.PythonPID, grandchild} {
		awaitEnd(t, pid, waitLong)
	}
	awaitEnd(t, worker.LauncherPID, waitLong) // a launcher built with -race sleeps for a second at its exit
	eventually(t, "the end of the session", func() bool {
		status, err := daemon.connect().Status(testContext(t), api.StatusParams{})
		return err == nil && len(status.Sessions) == 1
	})
}

func TestAClientThatVanishesInMidCallCancelsIt(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	path := marker(t)
	running := begin(testContext(t), client, api.Call{Node: "Wait", Inputs: map[string]any{"marker": path}})
	awaitFile(t, path)
	client.Close()
	if err := running.wait(t); err == nil {
		t.Error("the call of a closed connection succeeded")
	}
	eventually(t, "the end of the call", func() bool { return daemon.worker().State == string(Ready) })
	if result := mustCall(t, daemon.connect(), "Echo", nil); result.Generation != 1 {
		t.Errorf("the worker was replaced: generation %d", result.Generation)
	}
}

func TestASupervisorThatIsKilledIsFollowedByOneThatAdoptsItsWorkers(t *testing.T) {
	options := newTestOptions(t)
	first := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	before := mustCall(t, client, "Echo", map[string]any{"x": 1})
	large := mustCall(t, client, "Fill", map[string]any{"byte": 66, "count": 2 << 20})
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	<-client.Ended()
	large.Close()

	second := startDaemon(t, options)
	worker := second.worker()
	if worker.PythonPID != before.PythonPID || !worker.Adopted || worker.State != string(Ready) || worker.Generation != 1 || len(worker.Nodes) == 0 {
		t.Errorf("status shows %+v", worker)
	}
	after := mustCall(t, second.connect(), "Echo", map[string]any{"x": 2})
	if after.PythonPID != before.PythonPID || after.Worker != before.Worker || after.Generation != 1 {
		t.Errorf("the call went to %+v, before to %+v", after.CallResult, before.CallResult)
	}
	again := mustCall(t, second.connect(), "Fill", map[string]any{"byte": 67, "count": 2 << 20})
	if !strings.HasPrefix(string(again.Value), `[{"$bytes":"Q0ND`) {
		t.Errorf("got %.40s", again.Value)
	}
	again.Close()
	eventually(t, "the return of all memory files", func() bool { return second.daemon.files.Usage().Files == 0 })
}

func TestASupervisorThatIsKilledInMidCallIsFollowedByOneThatServesTheSameWorker(t *testing.T) {
	options := newTestOptions(t)
	first := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	path := marker(t)
	running := begin(testContext(t), client, api.Call{Node: "Block", Inputs: map[string]any{"marker": path, "seconds": 1}})
	python := atoi(t, awaitFile(t, path))
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	if err := running.wait(t); err == nil {
		t.Error("the call of a supervisor that was killed succeeded")
	}
	second := startDaemon(t, options)
	for i := range 5 { // the first answers may meet the one that the worker still owes to the first supervisor
		result := mustCall(t, second.connect(), "Echo", map[string]any{"i": i})
		if result.PythonPID != python || string(result.Value) != fmt.Sprintf(`[{"i":%d}]`, i) {
			t.Fatalf("call %d: got %s from process %d, expected process %d", i, result.Value, result.PythonPID, python)
		}
	}
}

func TestAWorkerWhoseSupervisorIsKilledWhileItLoadsIsReadyUnderTheNextOne(t *testing.T) {
	options := newTestOptions(t)
	pack, path := t.TempDir(), marker(t)
	source := fmt.Sprintf(`import os, sys, time
with open(%[1]q, "w") as file:
    file.write(str(os.getpid()))
while os.path.exists(%[1]q):
    time.sleep(0.005)
sys.path.insert(0, %[2]q)
from pack import NODE_CLASS_MAPPINGS
`, path, filepath.Dir(options.Environments[0].PackDirectory))
	if err := os.WriteFile(filepath.Join(pack, "__init__.py"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	slow := options.Environments[0]
	slow.Name, slow.PackDirectory, slow.NodesDirectory = "slow", pack, pack
	options.Environments = append(options.Environments, slow)
	first := startSeparateDaemon(t, options)
	lost := begin(testContext(t), connectOperator(t, options), api.Call{Environment: "slow", Node: "Echo"})
	python := atoi(t, awaitFile(t, path))
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	if err := lost.wait(t); err == nil {
		t.Error("the call of a supervisor that was killed succeeded")
	}
	second := startDaemon(t, options)
	client := second.connect()
	if worker := onlyWorker(t, client, "slow"); worker.State != string(Starting) || worker.PythonPID != python {
		t.Errorf("status shows %+v", worker)
	}
	running := begin(testContext(t), client, api.Call{Environment: "slow", Node: "Echo"})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := running.wait(t); err != nil || running.result.PythonPID != python {
		t.Errorf("got %+v, %v", running.result, err)
	}
	if worker := onlyWorker(t, client, "slow"); worker.Generation != 1 || len(worker.Nodes) == 0 {
		t.Errorf("status shows %+v", worker)
	}
}

func TestWorkersOfASupervisorThatDoesNotReturnEndByThemselves(t *testing.T) {
	options := newTestOptions(t)
	options.Orphan = 300 * time.Millisecond
	daemon := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	_, grandchild := beginOrphan(t, client)
	worker := onlyWorker(t, connectOperator(t, options), "pack")
	if err := daemon.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{worker.PythonPID, grandchild, worker.LauncherPID} {
		awaitEnd(t, pid, waitLong)
	}
	startDaemon(t, options) // clears away what is left on disk, which its end checks
}

func TestWhatALauncherAndASupervisorLeaveWhenBothAreKilledIsRemovedAtTheNextStart(t *testing.T) {
	options := newTestOptions(t)
	daemon := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	_, grandchild := beginOrphan(t, client)
	worker := onlyWorker(t, connectOperator(t, options), "pack")
	if err := daemon.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(worker.LauncherPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = daemon.command.Wait()
	startDaemon(t, options)
	for _, pid := range []int{worker.PythonPID, grandchild, worker.LauncherPID} {
		awaitEnd(t, pid, waitLong)
	}
}

func TestASuspendedWorkerHoldsUpNobodyElseAndItsCallsAreRefusedBeforeTheyPileUp(t *testing.T) {
	options := newTestOptions(t)
	options.addEnvironment("other")
	daemon := startDaemon(t, options)
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(python, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCancel(t)
	text := strings.Repeat("x", 900<<10)
	failures := make(chan error, 200)
	flooding := connectOperator(t, options)
	for range 60 { // 54 MiB
		go func() {
			_, err := flooding.Call(ctx, api.Call{Environment: "pack", Node: "Echo", Inputs: map[string]any{"text": text}})
			failures <- err
		}()
	}
	failure := wireError(t, <-failures, wire.KindSilent)
	if !strings.Contains(failure.Message, "does not read") || failure.Data.Remedy == "" {
		t.Errorf("got %v", failure)
	}
	for range 20 {
		if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(python, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 59 {
		if err := <-failures; err != nil {
			wireError(t, err, wire.KindSilent)
		}
	}
	cancel()
	if result := mustCall(t, client, "Echo", nil); result.PythonPID != python {
		t.Errorf("the worker was replaced")
	}
}

func TestASuspendedLauncherHoldsUpNobodyElse(t *testing.T) {
	options := newTestOptions(t)
	options.addEnvironment("other")
	daemon := startDaemon(t, options)
	client := daemon.connect()
	mustCall(t, client, "Echo", nil)
	if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
		t.Fatal(err)
	}
	launcher := daemon.worker().LauncherPID
	if err := syscall.Kill(launcher, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waiting := begin(testContext(t), client, api.Call{Node: "Echo"})
	for range 20 {
		if _, err := client.Call(testContext(t), api.Call{Environment: "other", Node: "Echo"}); err != nil {
			t.Fatal(err)
		}
	}
	if status, err := client.Status(testContext(t), api.StatusParams{}); err != nil || len(status.Workers) != 2 {
		t.Errorf("status: %+v, %v", status, err)
	}
	if err := syscall.Kill(launcher, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := waiting.wait(t); err != nil {
		t.Errorf("the call that met the suspended launcher: %v", err)
	}
}

func TestASuspendedSupervisorGoesOnWhereItWas(t *testing.T) {
	options := newTestOptions(t)
	supervisor := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	path := marker(t)
	running := begin(testContext(t), client, api.Call{Node: "Block", Inputs: map[string]any{"marker": path, "seconds": 0.1}})
	awaitFile(t, path)
	if err := supervisor.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waiting := begin(testContext(t), client, api.Call{Node: "Echo"})
	conn := dialRaw(t, options) // the kernel takes it
	sendRaw(t, conn, wire.Message{ID: 1, Method: "no hello"})
	if err := supervisor.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(running.wait(t), waiting.wait(t)); err != nil {
		t.Error(err)
	}
	if reply := readMessage(t, conn); reply.Error == nil {
		t.Errorf("got %+v", reply)
	}
}

func TestASuspendedHostHoldsUpNobodyAndGetsItsAnswer(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	path := marker(t)
	host, output, _ := startHost(t, options, "Block", fmt.Sprintf(`{"marker": %q, "seconds": 0.1}`, path))
	awaitFile(t, path)
	if err := host.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of its call", func() bool { return daemon.worker().State == string(Ready) })
	mustCall(t, daemon.connect(), "Echo", nil)
	if err := host.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(output)
	if err != nil || !strings.Contains(string(said), "value [\"done\"]") {
		t.Errorf("it said %q, %v", said, err)
	}
}

func TestAStopEndsASuspendedWorker(t *testing.T) {
	options := newTestOptions(t)
	options.StopGrace = 300 * time.Millisecond
	daemon := startDaemon(t, options)
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	if err := syscall.Kill(python, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if stopped, err := client.Stop(testContext(t), api.StopParams{Environment: "pack"}); err != nil || len(stopped) != 1 {
		t.Fatalf("stop: %v, %v", stopped, err)
	}
	awaitEnd(t, python, waitLong)
	mustCall(t, client, "Echo", nil)
}

func TestAStopEndsAWorkerWhoseLauncherIsSuspended(t *testing.T) {
	options := newTestOptions(t)
	options.StopGrace = 300 * time.Millisecond
	daemon := startDaemon(t, options)
	client := daemon.connect()
	python := mustCall(t, client, "Echo", nil).PythonPID
	if err := syscall.Kill(daemon.worker().LauncherPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if stopped, err := client.Stop(testContext(t), api.StopParams{Environment: "pack"}); err != nil || len(stopped) != 1 {
		t.Fatalf("stop: %v, %v", stopped, err)
	}
	t.Logf("it took %s", time.Since(begun))
	awaitEnd(t, python, waitLong)
	mustCall(t, client, "Echo", nil)
}
