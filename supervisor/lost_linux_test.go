package supervisor

import (
	"os"
	"syscall"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestAResultWhoseWorkerDiedBeforeItWasOpenedIsADeathAndSaysSo(t *testing.T) {
	options := newTestOptions(t)
	supervisor := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	mustCall(t, client, "Fill", map[string]any{"byte": 1, "count": 2 << 20}).Close()
	eventually(t, "the return of its memory file", func() bool {
		status, err := client.Status(testContext(t), api.StatusParams{})
		return err == nil && status.MemoryFiles.Open == 0
	})
	path := marker(t)
	running := begin(testContext(t), client, api.Call{Node: "FillAndDie", Inputs: map[string]any{"count": 2 << 20, "marker": path}})
	python := atoi(t, awaitFile(t, path))
	if err := syscall.Kill(supervisor.command.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, python, waitLong)
	if err := syscall.Kill(supervisor.command.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if failure := wireError(t, running.wait(t), wire.KindWorkerDied); failure.Data.Signal != "SIGKILL" {
		t.Errorf("got %+v", failure)
	}
	if result := mustCall(t, client, "Echo", nil); result.Generation != 2 {
		t.Errorf("got generation %d", result.Generation)
	}
	if status, err := client.Status(testContext(t), api.StatusParams{}); err != nil || status.MemoryFiles.Open != 0 || status.MemoryFiles.ReservedBytes != 0 {
		t.Errorf("status: %+v, %v", status.MemoryFiles, err)
	}
	endSeparateDaemon(t, options, supervisor)
}

// endSeparateDaemon stops a daemon and checks that it left nothing.
func endSeparateDaemon(t *testing.T, options testOptions, supervisor *separateDaemon) {
	t.Helper()
	if err := supervisor.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := supervisor.command.Wait(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, options)
}

func TestAResultForASupervisorThatIsGoneGivesItsMemoryBack(t *testing.T) {
	options := newTestOptions(t)
	first := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	path := marker(t)
	begin(testContext(t), client, api.Call{Node: "FillLater", Inputs: map[string]any{"count": 3 << 20, "marker": path}})
	python := atoi(t, awaitFile(t, path))
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	second := startDaemon(t, options)
	if err := os.Remove(path); err != nil { // now it reserves, fills and answers, and nobody waits for that
		t.Fatal(err)
	}
	poolIsSettled(t, second, python)
}

func TestAWorkerThatAskedASupervisorWhichDiedAsksTheNextOne(t *testing.T) {
	options := newTestOptions(t)
	first := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	path := marker(t)
	begin(testContext(t), client, api.Call{Node: "FillLater", Inputs: map[string]any{"count": 3 << 20, "marker": path}})
	python := atoi(t, awaitFile(t, path))
	if err := syscall.Kill(first.command.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the question", func() bool {
		_, err := os.Stat(path + ".asked")
		return err == nil
	})
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	poolIsSettled(t, startDaemon(t, options), python)
}

// poolIsSettled calls a worker and waits until it has lent nothing to anybody and the books agree.
func poolIsSettled(t *testing.T, daemon *testDaemon, python int) {
	t.Helper()
	client := daemon.connect()
	eventually(t, "the return of the memory files", func() bool {
		result := mustCall(t, client, "Pool", nil)
		if result.PythonPID != python {
			t.Fatalf("process %d answers instead of %d", result.PythonPID, python)
		}
		var pools []struct {
			Free    int64 `json:"free_bytes"`
			Lent    int64 `json:"lent_bytes"`
			Filling int64 `json:"filling_bytes"`
			Booked  int64 `json:"booked_bytes"`
		}
		if err := result.Decode(&pools); err != nil {
			t.Fatal(err)
		}
		usage := daemon.daemon.files.Usage()
		pool := pools[0]
		return pool.Free > 0 && pool.Lent == 0 && pool.Filling == 0 && pool.Booked == pool.Free && usage.Files == 0 && usage.ReservedBytes == pool.Free
	})
}
