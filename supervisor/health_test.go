//go:build unix

package supervisor

import (
	"syscall"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestACallForAWorkerThatHangsAfterAnIdleTimeIsAnsweredByTheNext(t *testing.T) {
	options := newTestOptions(t)
	options.HealthCheck = time.Second // and every idle worker is asked
	daemon := startDaemon(t, options)
	client := daemon.connect()
	mustCall(t, client, "Echo", nil)
	if result := mustCall(t, client, "Echo", nil); result.Generation != 1 { // it answers
		t.Errorf("got generation %d, expected 1", result.Generation)
	}
	hanging := daemon.worker()
	if err := syscall.Kill(hanging.PythonPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	first := begin(testContext(t), client, api.Call{Node: "Echo"})
	second := begin(testContext(t), client, api.Call{Node: "Echo"})
	for _, running := range []*started{first, second} {
		if err := running.wait(t); err != nil {
			t.Errorf("the call was lost in a worker that hangs: %v", err)
		}
	}
	awaitEnd(t, hanging.PythonPID, waitLong)
	if now := daemon.worker(); now.Generation != 2 || now.PythonPID == hanging.PythonPID {
		t.Errorf("got %+v, expected the second generation", now)
	}
}

func TestCallsThatAreWithdrawnWhileAWorkerIsAskedLeaveNothing(t *testing.T) {
	options := newTestOptions(t)
	options.HealthCheck = time.Second
	daemon := startDaemon(t, options)
	client := daemon.connect()
	mustCall(t, client, "Echo", nil)
	hanging := daemon.worker()
	if err := syscall.Kill(hanging.PythonPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	leaving := daemon.connect()
	running := begin(testContext(t), leaving, api.Call{Node: "Echo"})
	kept := begin(testContext(t), client, api.Call{Node: "Echo"})
	leaving.Close()
	if err := running.wait(t); err == nil {
		t.Error("a client that has gone was answered")
	}
	if err := kept.wait(t); err != nil {
		t.Error(err)
	}
	if now := daemon.worker(); now.Generation != 2 || now.Depth != 0 {
		t.Errorf("got %+v", now)
	}
}
