//go:build linux

package spawn

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

func TestAWorkerIsLaunchedAnswersAndStops(t *testing.T) {
	r := newRecorder()
	worker := launch(t, testSpec(t), r)
	body := bytes.Repeat([]byte{0, 1, 255}, 100_000)
	reply, got, err := worker.Peer().Request(testContext(t), &wire.Message{Method: "echo", Params: wire.Params(anything{"a": 1})}, body)
	if err != nil {
		t.Fatal(err)
	}
	if string(reply.Result) != `{"a": 1}` || !bytes.Equal(got, body) {
		t.Errorf("result %s and a body of %d bytes", reply.Result, len(got))
	}
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	exit := worker.Exit()
	if exit.Code == nil || *exit.Code != 0 || exit.Signal != "" || exit.Reason != "stopped" {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectNothingLeft(t, worker.Record())
	r.wait(t, "the phases of a polite stop", func() bool {
		var phases []string
		for _, phase := range r.phases {
			phases = append(phases, phase.Phase)
		}
		return cmp.Equal(phases, []string{PhaseStarted, PhaseShutdown, PhaseEmpty})
	})
}

func TestPythonGetsThePlannedEnvironmentAndNothingOfOurs(t *testing.T) {
	spec := testSpec(t)
	spec.Variables = append(spec.Variables, "PLANNED=yes", "PLUGIN_MIN_PORT=1", handshake.MagicCookieKey+"=x", WorkerVariable+"=other", "PLUGIN_OF_A_PACK=kept")
	worker := launch(t, spec, newRecorder())
	environ := ask[map[string]string](t, worker, "environ", nil)
	delete(environ, "LC_CTYPE") // Python's own
	want := map[string]string{
		"PATH": os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE": "1", "PLANNED": "yes", "PLUGIN_OF_A_PACK": "kept",
		WorkerVariable: spec.Worker,
	}
	if difference := cmp.Diff(want, environ); difference != "" {
		t.Error(difference)
	}
}

func TestPythonStartsWithCleanDescriptorsAndItsOwnGroup(t *testing.T) {
	spec := testSpec(t)
	worker := launch(t, spec, newRecorder())
	record := worker.Record()
	facts := ask[struct {
		PID, Parent, Group, Session int
		Directory, Stdin            string
		Argv                        []string
		Descriptors                 []int
	}](t, worker, "facts", nil)
	if facts.PID != record.Python.PID || facts.PID != worker.PythonPID() || facts.Parent != record.Launcher.PID {
		t.Errorf("Python is %d below %d; the record says %v below %v", facts.PID, facts.Parent, record.Python, record.Launcher)
	}
	if facts.Group != facts.PID || facts.Session != record.Launcher.PID {
		t.Errorf("group %d, session %d", facts.Group, facts.Session)
	}
	if facts.Stdin != "/dev/null" || facts.Directory != spec.Directory {
		t.Errorf("standard input is %s, the directory %s", facts.Stdin, facts.Directory)
	}
	// 3 is free again: the program moved its end to 1000. The one besides is the listing's own.
	if want := []int{0, 1, 2, 3, 1000}; !slices.Equal(facts.Descriptors, want) {
		t.Errorf("descriptors %v, expected %v", facts.Descriptors, want)
	}
}

func TestThePrivateFolderIsClosedToOthers(t *testing.T) {
	spec := testSpec(t)
	launch(t, spec, newRecorder())
	err := filepath.Walk(spec.Folder, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && info.Mode()&os.ModeSocket == 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestALongRuntimePathStillHoldsASocket(t *testing.T) {
	spec := testSpec(t)
	spec.Folder = filepath.Join(temporaryFolder(t), strings.Repeat("long-", 30), "workers", spec.Worker)
	worker := launch(t, spec, newRecorder())
	ask[anything](t, worker, "echo", anything{})
	record, err := LoadRecord(spec.Folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := attach(t, record, newRecorder()).Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}

func TestAFailedStartTellsExitCodeAndLastLines(t *testing.T) {
	spec := testSpec(t)
	spec.Arguments = []string{"--fail-early"}
	_, err := Launch(testContext(t), spec, newRecorder())
	var failure *StartError
	if !errors.As(err, &failure) {
		t.Fatalf("error %v", err)
	}
	if failure.Exit.Code == nil || *failure.Exit.Code != 3 || !slices.Equal(failure.Exit.Stderr, []string{"first line", "the last words"}) {
		t.Errorf("exit %v, stderr %q", failure.Exit, failure.Exit.Stderr)
	}
	if !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("message %q", err)
	}
	expectNothingLeft(t, Record{Worker: spec.Worker, Folder: spec.Folder})
}

func TestAMissingInterpreterIsNamed(t *testing.T) {
	spec := testSpec(t)
	spec.Python = "/nowhere/python"
	_, err := Launch(testContext(t), spec, newRecorder())
	if err == nil || !strings.Contains(err.Error(), "/nowhere/python") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
	expectNothingLeft(t, Record{Worker: spec.Worker, Folder: spec.Folder})
}

func TestALaunchThatNobodyWaitsForEndsAndSaysWhere(t *testing.T) {
	spec := testSpec(t)
	spec.Arguments = []string{"--no-hello"}
	ctx, cancel := context.WithCancel(testContext(t))
	r := newRecorder()
	spec.Phase = func(phase PhaseReport) {
		if phase.Phase == PhaseStarted {
			cancel()
		}
	}
	_, err := Launch(ctx, spec, r)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	expectNothingLeft(t, Record{Worker: spec.Worker, Folder: spec.Folder})
}

func TestALauncherThatIsNoneIsAnError(t *testing.T) {
	spec := testSpec(t)
	spec.Binary = "/bin/false"
	_, err := Launch(testContext(t), spec, newRecorder())
	if err == nil || !strings.Contains(err.Error(), "launcher") {
		t.Errorf("error %v", err)
	}
	expectNothingLeft(t, Record{Worker: spec.Worker, Folder: spec.Folder})
}

func TestASpecIsChecked(t *testing.T) {
	spec := testSpec(t)
	spec.Worker = "short"
	spec.Python = "python3"
	spec.Variables = []string{"NOVALUE"}
	_, err := Launch(testContext(t), spec, newRecorder())
	for _, part := range []string{"short", `"python3" is not absolute`, "NOVALUE"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not mention %s", err, part)
		}
	}
}

func TestStatisticsCountTheTree(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	ask[anything](t, worker, "grandchild", anything{"count": 3})
	statistics, err := worker.Statistics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if statistics.Processes != 4 || statistics.RSSBytes < 4<<20 || statistics.LauncherRSSBytes < 4<<20 {
		t.Errorf("%+v", statistics)
	}
}

func TestStatisticsWithoutAControlGroupCountTheSame(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	ask[anything](t, worker, "grandchild", anything{"count": 2, "cleared": true})
	record := worker.Record()
	tree := Tree{Worker: record.Worker, Python: record.Python, Launcher: record.Launcher}
	statistics, err := tree.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	if statistics.Processes != 3 {
		t.Errorf("%+v", statistics)
	}
}

func TestTheLastLinesArriveBeforeTheEnd(t *testing.T) {
	r := newRecorder()
	worker := launch(t, testSpec(t), r)
	ask[anything](t, worker, "exit", anything{"code": 1, "reply": true, "stderr": strings.Repeat("a line of a long traceback\n", 3000) + "the last one"})
	waitDone(t, worker)
	if count := len(r.lines); count != 3001 || r.lines[count-1].Text != "the last one" {
		t.Errorf("%d lines arrived", count)
	}
}

func TestATreeIsFoundWithoutAControlGroup(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	below := grandchildren(t, worker, anything{"count": 2, "cleared": true, "keep": true})
	record := worker.Record()
	tree := Tree{Worker: record.Worker, Python: record.Python, Launcher: record.Launcher}
	left, err := tree.Kill(testContext(t))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	expectDead(t, append(below, record.Python))
	if exit := waitDone(t, worker); exit.Signal != "SIGKILL" || strings.Contains(exit.Reason, "launcher") {
		t.Errorf("the launcher was taken for one of its tree: exit %v", exit)
	}
}
