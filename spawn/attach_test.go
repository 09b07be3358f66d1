//go:build linux

package spawn

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestAWorkerSurvivesItsSupervisorAndIsAdopted(t *testing.T) {
	spec := testSpec(t)
	supervisor, record := startTestSupervisor(t, spec)
	supervisor.kill()
	r := newRecorder()
	worker := attach(t, record, r)
	facts := ask[struct{ PID int }](t, worker, "facts", nil)
	if facts.PID != record.Python.PID {
		t.Errorf("Python is %d, it was %d", facts.PID, record.Python.PID)
	}
	if string(worker.Record().Load) == "" || worker.Record().Generation != 1 {
		t.Errorf("record %+v", worker.Record())
	}
	// What it prints reaches its new supervisor, its end too.
	ask[anything](t, worker, "print", anything{"text": "after the adoption\n"})
	r.wait(t, "the line", func() bool { return len(r.lines) > 0 && r.lines[len(r.lines)-1].Text == "after the adoption" })
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}

func TestAWorkerIsDetachedAndAdoptedAgainAndAgain(t *testing.T) {
	bothWays(t, testAWorkerIsDetachedAndAdoptedAgainAndAgain)
}

func testAWorkerIsDetachedAndAdoptedAgainAndAgain(t *testing.T, spec Spec) {
	worker := launch(t, spec, newRecorder())
	pid := worker.PythonPID()
	for range 5 {
		if err := worker.Detach(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-worker.PythonEnded():
			t.Fatal("a detached worker says that Python has ended")
		default:
		}
		record, err := LoadRecord(worker.Record().Folder)
		if err != nil {
			t.Fatal(err)
		}
		worker = attach(t, record, newRecorder())
		if facts := ask[struct{ PID int }](t, worker, "facts", nil); facts.PID != pid {
			t.Errorf("Python is %d, it was %d", facts.PID, pid)
		}
	}
}

func TestFramesAndLinesWrittenWithoutASupervisorArriveLater(t *testing.T) {
	bothWays(t, testFramesAndLinesWrittenWithoutASupervisorArriveLater)
}

func testFramesAndLinesWrittenWithoutASupervisorArriveLater(t *testing.T, spec Spec) {
	worker := launch(t, spec, newRecorder())
	ask[anything](t, worker, "later", anything{"seconds": 0.3, "text": "first\nsecond\n"})
	record := worker.Record()
	if err := worker.Detach(); err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	attach(t, record, r)
	r.wait(t, "both lines and the notification", func() bool {
		return len(r.lines) == 2 && r.lines[0].Text == "first" && r.lines[1].Text == "second" && len(r.notifications) == 1
	})
}

func TestTwoSupervisorsCanNotHoldOneWorker(t *testing.T) {
	bothWays(t, testTwoSupervisorsCanNotHoldOneWorker)
}

func testTwoSupervisorsCanNotHoldOneWorker(t *testing.T, spec Spec) {
	worker := launch(t, spec, newRecorder())
	second := attach(t, worker.Record(), newRecorder())
	ask[anything](t, second, "echo", nil)
	// The later one wins; for the earlier one the worker is over, and it does not take it down.
	if exit := waitDone(t, worker); exit.Reason != errTakenOver.Error() {
		t.Errorf("exit %v", exit)
	}
	ask[anything](t, second, "echo", nil)
}

func TestAnOrphanedWorkerEndsItselfAndLeavesNothing(t *testing.T) {
	spec := testSpec(t)
	spec.OrphanWait = 300 * time.Millisecond
	supervisor, record := startTestSupervisor(t, spec)
	supervisor.kill()
	waitProcess(t, record.Launcher)
	expectNothingLeft(t, record)
}

func TestAnOrphanThatIgnoresEverythingEndsAfterItsWait(t *testing.T) {
	spec := testSpec(t)
	spec.OrphanWait = 200 * time.Millisecond
	worker := launch(t, spec, newRecorder())
	grandchildren(t, worker, anything{"keep": true, "ignore_term": true})
	ask[anything](t, worker, "ignore_term", nil)
	ask[anything](t, worker, "burn", nil)
	record := worker.Record()
	if err := worker.Detach(); err != nil {
		t.Fatal(err)
	}
	waitProcess(t, record.Launcher)
	expectNothingLeft(t, record)
}

func TestAttachRefusesADeadLauncher(t *testing.T) {
	supervisor, record := startTestSupervisor(t, testSpec(t))
	supervisor.kill()
	if err := syscall.Kill(record.Launcher.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitProcess(t, record.Launcher)
	_, err := Attach(testContext(t), record, newRecorder(), AttachOptions{})
	if !errors.Is(err, ErrLauncherGone) {
		t.Errorf("error %v", err)
	}
	if err := RemoveStale(testContext(t), record.Folder); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}

func TestAttachRefusesAProcessThatIsNotTheRecordedOne(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	good := worker.Record()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Record){
		"another start time":   func(r *Record) { r.Launcher.StartTime += "1" },
		"another process":      func(r *Record) { r.Launcher = self },
		"another worker":       func(r *Record) { r.Worker = newID() },
		"another Python":       func(r *Record) { r.Python.StartTime += "1" },
		"a wrong key":          func(r *Record) { r.Key = newKey() },
		"an unknown protocol":  func(r *Record) { r.ProtocolVersion = 99 },
		"a socket that is not": func(r *Record) { r.Address = "nowhere/socket" },
	} {
		t.Run(name, func(t *testing.T) {
			record := good
			change(&record)
			ctx, cancel := context.WithTimeout(testContext(t), 3*time.Second)
			defer cancel()
			adopted, err := Attach(ctx, record, newRecorder(), AttachOptions{})
			if err == nil {
				_ = adopted.Detach()
				t.Fatal("it was adopted")
			}
			t.Log(err)
		})
	}
	ask[anything](t, worker, "echo", nil) // nothing of it has disturbed the worker
}

func TestARecordRemembersEverything(t *testing.T) {
	spec := testSpec(t)
	spec.Host = identify(t, os.Getpid())
	worker := launch(t, spec, newRecorder())
	record, err := LoadRecord(spec.Folder)
	if err != nil {
		t.Fatal(err)
	}
	want := worker.Record()
	left, _ := json.Marshal(record)
	right, _ := json.Marshal(want)
	var compact struct{ Load json.RawMessage }
	if string(left) != string(right) || json.Unmarshal(left, &compact) != nil || string(compact.Load) != string(spec.Load) {
		t.Errorf("the record on disk is\n%s\nthe worker's\n%s", left, right)
	}
	if record.Host != spec.Host || record.Session != "session" || record.Key == "" || record.BinaryVersion != "test" {
		t.Errorf("record %+v", record)
	}
}

func TestAWorkerWithADamagedRecordIsFoundAndEnded(t *testing.T) {
	supervisor, record := startTestSupervisor(t, testSpec(t))
	supervisor.kill()
	if err := os.WriteFile(filepath.Join(record.Folder, recordName), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale(testContext(t), record.Folder); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}
