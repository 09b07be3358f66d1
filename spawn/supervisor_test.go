//go:build linux

package spawn

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
)

func init() {
	serveTestSupervisor = func() {
		if err := runTestSupervisor(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
}

// runTestSupervisor reads a Spec from standard input, launches it and prints the worker's folder.
func runTestSupervisor() error {
	var spec Spec
	decoder := json.NewDecoder(os.Stdin)
	if err := decoder.Decode(&spec); err != nil {
		return err
	}
	stop, err := BecomeSubreaper()
	if err != nil {
		return err
	}
	defer stop()
	worker, err := Launch(context.Background(), spec, newRecorder())
	if err != nil {
		return err
	}
	fmt.Println(worker.Record().Folder)
	_, err = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), os.Stdin)) // until it is closed
	if err != nil {
		return err
	}
	return worker.Detach()
}

// testSupervisor is that process.
type testSupervisor struct {
	command *exec.Cmd
	stdin   io.WriteCloser
}

// startTestSupervisor launches a worker from a process of its own and returns the worker's record.
func startTestSupervisor(t *testing.T, spec Spec) (*testSupervisor, Record) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startTestSupervisorFrom(t, self, spec, func() {})
}

// startTestSupervisorFrom is startTestSupervisor with a binary, and something to do between the supervisor's start and
// the launch.
func startTestSupervisorFrom(t *testing.T, binary string, spec Spec, before func()) (*testSupervisor, Record) {
	t.Helper()
	spec.Log, spec.Phase = nil, nil
	s := &testSupervisor{command: exec.Command(binary, supervisorArgument)}
	stdin, stdout := processtest.Start(t, s.command)
	s.stdin = stdin
	t.Cleanup(s.kill)
	before()
	encoded := struct {
		Spec
		Log, Phase, Logger any
	}{Spec: spec}
	if err := json.NewEncoder(s.stdin).Encode(encoded); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != spec.Folder+"\n" {
		t.Fatalf("the supervisor said %q: %v", line, err)
	}
	records, failures := LoadRecords(filepath.Dir(spec.Folder))
	if len(failures) > 0 || len(records) != 1 {
		t.Fatalf("%d records, errors %v", len(records), failures)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(spec.Folder); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), testLimit)
			defer cancel()
			if err := RemoveStale(ctx, spec.Folder); err != nil {
				t.Error(err)
			}
		}
	})
	return s, records[0]
}

// kill ends the supervisor with SIGKILL.
func (s *testSupervisor) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// leave ends it politely: it detaches.
func (s *testSupervisor) leave(t *testing.T) {
	t.Helper()
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.command.Wait(); err != nil {
		t.Fatal(err)
	}
}

// waitProcess waits for a process's end.
func waitProcess(t *testing.T, process Process) {
	t.Helper()
	watch, err := WatchProcess(process)
	if err != nil {
		return // over already
	}
	defer watch.Close()
	select {
	case <-watch.Done():
	case <-time.After(testLimit):
		t.Fatalf("%v lives after %v", process, testLimit)
	}
}

func identify(t *testing.T, pid int) Process {
	t.Helper()
	process, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func attach(t *testing.T, record Record, r *recorder) Worker {
	t.Helper()
	worker, err := Attach(testContext(t), record, r, AttachOptions{Log: r, Phase: r.Phase})
	if err != nil {
		t.Fatal(err)
	}
	killAfter(t, worker)
	return worker
}
