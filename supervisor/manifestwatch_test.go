//go:build unix

package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// withManifest gives the test pack a manifest.
func withManifest(t *testing.T, options *testOptions) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "comfy-env.toml")
	if err := os.WriteFile(path, []byte("# first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	options.Environments[0].Manifest = path
	return path
}

// crash has the worker of the test pack die.
func crash(t *testing.T, client *api.Client) {
	t.Helper()
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
	wireError(t, err, wire.KindWorkerDied)
}

func TestAnEditOfItsManifestEndsAnEnvironmentsQuarantine(t *testing.T) {
	options := newTestOptions(t)
	options.CrashCount = 1
	path := withManifest(t, &options)
	daemon := startDaemon(t, options)
	client := daemon.connect()
	for name, edit := range map[string]func() error{
		"written in place": func() error { return os.WriteFile(path, []byte("# second one\n"), 0o600) },
		"replaced, as editors do": func() error {
			if err := os.WriteFile(path+"~", []byte("# the third one\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(path+"~", path)
		},
	} {
		crash(t, client)
		_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Echo"})
		wireError(t, err, wire.KindStartFailed)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "other"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		events := follow(t, daemon)
		if worker := daemon.worker(); worker.State != string(Quarantined) {
			t.Fatalf("%s: a file beside the manifest ended the quarantine: %+v", name, worker)
		}
		if err := edit(); err != nil {
			t.Fatal(err)
		}
		for event := range events {
			if event.Kind == "worker.gone" && strings.Contains(event.Cause, path) {
				break
			}
		}
		mustCall(t, client, "Echo", nil)
		if worker := daemon.worker(); worker.Crashes != 0 {
			t.Errorf("%s: %d crashes are remembered", name, worker.Crashes)
		}
	}
}

func TestARestartEndsAQuarantine(t *testing.T) {
	options := newTestOptions(t)
	options.CrashCount = 1
	daemon := startDaemon(t, options)
	client := daemon.connect()
	crash(t, client)
	if _, err := client.Restart(testContext(t), api.StopParams{Environment: "pack"}); err != nil {
		t.Fatal(err)
	}
	if worker := daemon.worker(); worker.State != string(Ready) || worker.Crashes != 0 {
		t.Errorf("status shows %+v", worker)
	}
}

func TestAnEditOfItsManifestEndsAPause(t *testing.T) {
	options := newTestOptions(t)
	options.Backoff = []time.Duration{time.Hour}
	path := withManifest(t, &options)
	daemon := startDaemon(t, options)
	client := daemon.connect()
	crash(t, client)
	waiting := begin(testContext(t), client, api.Call{Node: "Echo"})
	eventually(t, "the call to wait", func() bool { return daemon.worker().Queued == 1 })
	if err := os.WriteFile(path, []byte("# repaired\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := waiting.wait(t); err != nil {
		t.Error(err)
	}
}

// follow returns the events from now on, until the test ends.
func follow(t *testing.T, daemon *testDaemon) <-chan api.Event {
	t.Helper()
	events := make(chan api.Event, 1000)
	client := daemon.connect()
	result, err := client.Events(testContext(t), api.EventsParams{}, func(api.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	t.Cleanup(cancel)
	go func() {
		defer close(events)
		_, _ = client.Events(ctx, api.EventsParams{Since: result.Last, Follow: true}, func(event api.Event) { events <- event })
	}()
	return events
}
