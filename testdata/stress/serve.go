//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor"
)

// configVariable names the file with the supervisor's configuration: hosts start supervisors with their own arguments.
const configVariable = "COMFY_SUPERVISOR_STRESS"

// config is what the supervisor of a stress run is told.
type config struct {
	Folder, Program, Python, Pack string
	Environments                  []string
	Quota                         int64
}

func (c config) runtime() string { return filepath.Join(c.Folder, "run") }
func (c config) state() string   { return filepath.Join(c.Folder, "state") }
func (c config) socket() string  { return filepath.Join(c.runtime(), "supervisor.sock") }

// Find and List make the configuration the environments of its supervisor.
func (c config) Find(name string, _ envbuild.Query) (envbuild.Environment, error) {
	for _, known := range c.Environments {
		if known == name {
			return envbuild.Environment{
				Name: name, Stack: "py-none", Revision: "1", Prefix: c.Folder, Python: c.Python, PackDirectory: c.Pack, NodesDirectory: c.Pack,
				Facts: envbuild.Facts{Environ: map[string]string{"PATH": os.Getenv("PATH"), "HOME": c.Folder}},
			}, nil
		}
	}
	return envbuild.Environment{}, &envbuild.NotFoundError{Name: name, Nearest: c.Environments}
}

// List implements supervisor.Environments.
func (c config) List(envbuild.Query) ([]envbuild.Listed, error) { return nil, nil }

// MarkUsed implements supervisor.Environments.
func (c config) MarkUsed(envbuild.Environment) error { return nil }

// serve is the supervisor's part. arguments are those that hosts give.
func serve(arguments string) error {
	var ready uintptr
	if _, err := fmt.Sscanf(arguments, "--ready-fd %d", &ready); err != nil {
		return fmt.Errorf("reading the arguments %q: %w", arguments, err)
	}
	announce := os.NewFile(ready, "ready")
	syscall.CloseOnExec(int(ready))
	content, err := os.ReadFile(os.Getenv(configVariable))
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(content, &c); err != nil {
		return err
	}
	release, err := spawn.BecomeSubreaper()
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say := func(line string) {
		fmt.Fprintln(announce, line)
		_ = announce.Close() // whoever does not listen any more does not need it
	}
	crash := supervisor.DefaultCrashLimits()
	crash.CrashCount = 0 // nothing is quarantined: every call has to work again
	crash.Backoff = []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond}
	daemon, err := supervisor.New(supervisor.Config{
		RuntimeDirectory: c.runtime(), StateDirectory: c.state(), Socket: c.socket(), Version: "stress", Private: true,
		Program: c.Program, Environments: c,
		CallSilence: 60 * time.Second, Reconnect: 10 * time.Second, LauncherOrphan: 10 * time.Second, StopGrace: 2 * time.Second,
		SweepInterval: time.Second, Crash: crash, Idle: memory.Limits{Reap: time.Hour},
		MemoryFileQuota: c.Quota, MemoryFilePool: 16 << 20,
		Log:   zerolog.New(os.Stderr).Level(zerolog.InfoLevel).With().Timestamp().Int("pid", os.Getpid()).Logger(),
		Ready: func() { say(fmt.Sprintf("ready %d", os.Getpid())) },
	})
	if err == nil {
		err = daemon.Run(ctx)
	}
	if err != nil {
		say("error " + err.Error())
	}
	return err
}
