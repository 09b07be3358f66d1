//go:build unix

package supervisor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestASecondSupervisorSaysWhoRuns(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	daemon, err := New(options.config())
	if err != nil {
		t.Fatal(err)
	}
	err = daemon.Run(testContext(t))
	var running *AlreadyRunningError
	if !errors.As(err, &running) || running.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	other, line := launchSeparateDaemon(t, options)
	if err := other.command.Wait(); err == nil || !strings.HasPrefix(line, "error a supervisor is already running") {
		t.Errorf("the second one said %q and ended with %v", line, err)
	}
	mustCall(t, connectOperator(t, options), "Echo", nil)
}

func TestStaleSocketLockAndRecordsDoNotKeepASupervisorFromStarting(t *testing.T) {
	options := newTestOptions(t)
	if err := os.MkdirAll(filepath.Join(options.Runtime, "workers", "0123456789abcdef0123456789abcdef"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(options.Runtime, "sessions"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: options.config().Socket})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	for path, content := range map[string]string{
		"supervisor.lock": "1\n",
		"workers/0123456789abcdef0123456789abcdef/record.json": "{",
		"sessions/0123.json":     "not JSON",
		"sessions/0123.json.tmp": "",
		"sessions/4567.json":     `{"version":1,"id":"4567","role":"host","token":"x","pid":1,"start_time":"not that one"}`,
	} {
		if err := os.WriteFile(filepath.Join(options.Runtime, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	daemon := startDaemon(t, options)
	mustCall(t, daemon.connect(), "Echo", nil)
	info, err := os.Stat(options.Runtime)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the runtime folder has mode %v, %v", info.Mode(), err)
	}
	info, err = os.Stat(options.config().Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
}

func TestASocketWithALongPathIsServed(t *testing.T) {
	options := newTestOptions(t)
	options.Runtime = filepath.Join(options.Runtime, strings.Repeat("long", 30), "run")
	daemon := startDaemon(t, options)
	if _, err := daemon.connect().Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestShutdownIsRefusedWhileHostsLiveUnlessForced(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	_, output, _ := startHost(t, options)
	if _, err := output.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	client := daemon.connect()
	mustCall(t, client, "Echo", nil)
	if err := client.Shutdown(testContext(t), false); err == nil || !strings.Contains(err.Error(), "test host") {
		t.Errorf("got %v", err)
	}
	if err := client.Shutdown(testContext(t), true); err != nil {
		t.Error(err)
	}
	nothingLeft(t, options)
	<-daemon.ended
}

func TestSIGTERMEndsASupervisorWithItsWorkers(t *testing.T) {
	options := newTestOptions(t)
	daemon := startSeparateDaemon(t, options)
	client := connectOperator(t, options)
	_, grandchild := beginOrphan(t, client)
	if err := daemon.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.command.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	awaitEnd(t, grandchild, 0)
	nothingLeft(t, options)
}

func TestAClientWaitsForASupervisorThatAnotherHasJustStarted(t *testing.T) {
	options := newTestOptions(t)
	folder := t.TempDir()
	told := filepath.Join(folder, "told")
	script := "#!/bin/sh\neval \"echo 'error a supervisor is already running: process 1' >&$3\"\necho yes > " + told + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(folder, "binary"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	connected := make(chan error, 1)
	go func() {
		client, err := api.Connect(testContext(t), api.Options{Socket: options.config().Socket, Name: "test",
			Start: &api.Launch{Binary: filepath.Join(folder, "binary"), Log: filepath.Join(folder, "log")}})
		if err == nil {
			err = client.Close()
		}
		connected <- err
	}()
	awaitFile(t, told)
	startDaemon(t, options)
	if err := <-connected; err != nil {
		t.Error(err)
	}
}
