//go:build linux

package spawn

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// pending starts a request that gets no answer and returns where its error arrives.
func pending(t *testing.T, worker Worker, method string) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	_, err := worker.Peer().Start(&wire.Message{Method: method, Params: wire.Params(anything{"seconds": 600})}, nil,
		func(_ *wire.Message, _ []byte, err error) { result <- err })
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func expectGone(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		if !errors.Is(err, wire.ErrPeerGone) {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(testLimit):
		t.Error("the call has not ended")
	}
}

// grandchildren starts double-forked processes in sessions of their own.
func grandchildren(t *testing.T, worker Worker, params anything) []Process {
	t.Helper()
	pids := ask[struct{ PIDs []int }](t, worker, "grandchild", params).PIDs
	processes := make([]Process, len(pids))
	for index, pid := range pids {
		processes[index] = identify(t, pid)
	}
	if len(processes) == 0 {
		t.Fatal("no grandchild")
	}
	return processes
}

func expectDead(t *testing.T, processes []Process) {
	t.Helper()
	for _, process := range processes {
		if process.Alive() {
			t.Errorf("%v lives", process)
		}
	}
}

func TestAKilledPythonEndsItsCallAndNamesItsSignal(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	below := grandchildren(t, worker, anything{"keep": true})
	ask[anything](t, worker, "print", anything{"stream": "stderr", "text": "the last words\n"})
	call := pending(t, worker, "sleep_unread")
	if err := syscall.Kill(worker.PythonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expectGone(t, call)
	exit := waitDone(t, worker)
	if exit.Signal != "SIGKILL" || exit.Code != nil || exit.Reason != "killed by another process" || len(exit.Stderr) != 1 || exit.Stderr[0] != "the last words" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectDead(t, below)
	expectNothingLeft(t, worker.Record())
}

func TestAPythonThatExitsTellsItsCodeAfterItsLastReply(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	reply := ask[anything](t, worker, "exit", anything{"code": 7, "reply": true, "stderr": "unfinished line"})
	if reply["last"] != true {
		t.Errorf("reply %v", reply)
	}
	exit := waitDone(t, worker)
	if exit.Code == nil || *exit.Code != 7 || len(exit.Stderr) != 1 || exit.Stderr[0] != "unfinished line" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectNothingLeft(t, worker.Record())
}

func TestANativeCrashNamesItsSignal(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	_, err := worker.Peer().Start(&wire.Message{Method: "signal", Params: wire.Params(anything{"signal": int(syscall.SIGSEGV)})}, nil,
		func(*wire.Message, []byte, error) {})
	if err != nil {
		t.Fatal(err)
	}
	if exit := waitDone(t, worker); exit.Signal != "SIGSEGV" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
}

func TestAKilledLauncherTakesItsTreeAlong(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	below := grandchildren(t, worker, anything{"count": 2, "ignore_term": true})
	call := pending(t, worker, "sleep_unread")
	record := worker.Record()
	if err := syscall.Kill(record.Launcher.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitProcess(t, record.Python) // the parent-death signal
	expectGone(t, call)
	if exit := waitDone(t, worker); exit.Reason != "its launcher died" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectDead(t, below)
	expectNothingLeft(t, record)
}

func TestADoubleForkedGrandchildEndsWithAStop(t *testing.T) {
	for _, test := range []struct {
		name   string
		params anything
	}{
		{"plain", anything{}},
		{"ignoring SIGTERM", anything{"ignore_term": true}},
		{"holding the pipes", anything{"keep": true, "ignore_term": true}},
		{"with a cleared environment", anything{"cleared": true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := testSpec(t)
			spec.StopGrace = time.Hour // which nobody waits for once Python has ended politely
			worker := launch(t, spec, newRecorder())
			below := grandchildren(t, worker, test.params)
			if err := worker.Stop(testContext(t)); err != nil {
				t.Fatal(err)
			}
			expectDead(t, below)
			expectNothingLeft(t, worker.Record())
			if exit := worker.Exit(); exit.Code == nil || *exit.Code != 0 {
				t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
			}
		})
	}
}

func TestAPythonThatIgnoresEverythingIsKilledAfterItsGrace(t *testing.T) {
	spec := testSpec(t)
	spec.StopGrace = 300 * time.Millisecond
	r := newRecorder()
	worker := launch(t, spec, r)
	ask[anything](t, worker, "ignore_term", nil)
	ask[anything](t, worker, "burn", nil)
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if exit := worker.Exit(); exit.Signal != "SIGKILL" || exit.Reason != "stopped" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	r.wait(t, "the phase of killing", func() bool {
		for _, phase := range r.phases {
			if phase.Phase == PhaseKill {
				return true
			}
		}
		return false
	})
	expectNothingLeft(t, worker.Record())
}

func TestAKillDoesNotWaitForAPoliteStop(t *testing.T) {
	spec := testSpec(t)
	spec.StopGrace = time.Hour
	worker := launch(t, spec, newRecorder())
	ask[anything](t, worker, "ignore_shutdown", nil)
	ctx, cancel := context.WithCancel(testContext(t))
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Stop(ctx) }()
	// Statistics are answered while it waits.
	if _, err := worker.Statistics(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := worker.Kill(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	cancel()
	expectNothingLeft(t, worker.Record())
}

func TestAStopWhoseCallerGivesUpGoesOn(t *testing.T) {
	spec := testSpec(t)
	spec.StopGrace = 500 * time.Millisecond
	r := newRecorder()
	worker := launch(t, spec, r)
	ask[anything](t, worker, "ignore_shutdown", nil)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		r.wait(t, "the phase of shutting down", func() bool { return len(r.phases) >= 2 })
		cancel()
	}()
	if err := worker.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if exit := waitDone(t, worker); exit.Signal != "SIGTERM" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectNothingLeft(t, worker.Record())
}

func TestTheDeathOfTheHostEndsAComputingWorkerAtOnce(t *testing.T) {
	host := exec.Command("sleep", "600")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t)
	spec.Host = identify(t, host.Process.Pid)
	spec.StopGrace = time.Hour // nothing here is polite
	r := newRecorder()
	worker := launch(t, spec, r)
	below := grandchildren(t, worker, anything{"keep": true, "ignore_term": true})
	ask[anything](t, worker, "burn", nil)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitProcess(t, worker.Record().Python)
	_ = host.Wait()
	if exit := waitDone(t, worker); exit.Signal != "SIGKILL" || exit.Reason != "its host died" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectDead(t, below)
	expectNothingLeft(t, worker.Record())
}

func TestAHostThatIsDeadAlreadyGetsNoWorker(t *testing.T) {
	host := exec.Command("true")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t)
	spec.Host = Process{PID: host.Process.Pid, StartTime: "1"}
	_ = host.Wait()
	_, err := Launch(testContext(t), spec, newRecorder())
	if err == nil || !strings.Contains(err.Error(), "host") {
		t.Errorf("error %v", err)
	}
	expectNothingLeft(t, Record{Worker: spec.Worker, Folder: spec.Folder})
}

func TestAWorkerWithoutItsDescriptorsIsEnded(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	// The program's own end lies at 1000, beyond what the pack closes; the reply arrives.
	ask[anything](t, worker, "close_descriptors", nil)
	ask[anything](t, worker, "echo", anything{})
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, worker.Record())
}

func TestAPythonThatClosesItsConnectionIsEnded(t *testing.T) {
	bothWays(t, testAPythonThatClosesItsConnectionIsEnded)
}

func testAPythonThatClosesItsConnectionIsEnded(t *testing.T, spec Spec) {
	spec.Arguments = []string{"--linger"}
	worker := launch(t, spec, newRecorder())
	// Half of a frame, then what is no frame at all.
	_, err := worker.Peer().Start(&wire.Message{Method: "send_raw", Params: wire.Params(anything{"hex": "ffffffffffffffff"})}, nil,
		func(*wire.Message, []byte, error) {})
	if err != nil {
		t.Fatal(err)
	}
	exit := waitDone(t, worker)
	if exit.Signal != "SIGKILL" || !strings.Contains(exit.Reason, "frame") {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectNothingLeft(t, worker.Record())
}

func TestAForkingChainIsCaught(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	ask[anything](t, worker, "fork_bomb", nil)
	if err := worker.Kill(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, worker.Record())
}

func TestAStoppedLauncherIsKilledWithItsTree(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	record := worker.Record()
	if err := syscall.Kill(record.Launcher.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := worker.Kill(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}

func TestAStoppedPythonCanBeStopped(t *testing.T) {
	spec := testSpec(t)
	spec.StopGrace = 200 * time.Millisecond
	worker := launch(t, spec, newRecorder())
	if err := syscall.Kill(worker.PythonPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, worker.Record())
}
