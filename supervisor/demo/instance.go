package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// stopLimit is how long the private supervisor may take to end with its workers.
const stopLimit = 30 * time.Second

// instance is a supervisor of our own in a folder of its own.
type instance struct {
	folder  string // removed at the end
	runtime string
	socket  string
	started *api.Started
}

// start starts the private supervisor and registers as a host.
func (r *run) start(ctx context.Context, step *Step) (err error) {
	// In the user's own cache: a shared folder for temporary files is no place for sockets.
	if err := os.MkdirAll(r.options.Build.Cache, 0o700); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	folder, err := os.MkdirTemp(r.options.Build.Cache, r.pack.Name+"-")
	if err != nil {
		return fmt.Errorf("making a folder for the private supervisor: %w", err)
	}
	r.instance = &instance{folder: folder, runtime: filepath.Join(folder, "run")}
	r.instance.socket = filepath.Join(r.instance.runtime, "supervisor.sock")
	launch := api.Launch{
		Binary:    r.options.Binary,
		Arguments: []string{"--private"},
		Environ: append(append([]string(nil), r.options.Environ...),
			"COMFY_SUPERVISOR_RUNTIME_DIR="+r.instance.runtime,
			"COMFY_SUPERVISOR_SOCKET="+r.instance.socket,
			"COMFY_SUPERVISOR_STATE_DIR="+filepath.Join(folder, "state"),
			"COMFY_SUPERVISOR_CACHE_DIR="+r.options.Build.Cache,
			"COMFY_ENV_ROOT="+r.options.Build.Root,
		),
		Log: filepath.Join(folder, "supervisor.log"),
	}
	if r.instance.started, err = launch.Run(ctx); err != nil {
		return err
	}
	r.client, err = api.Connect(ctx, api.Options{
		Socket: r.instance.socket, Role: api.RoleHost, Name: "comfy-supervisor " + r.pack.Name, Environ: r.options.Environ,
		HostFacts: r.host.report, ComfyUI: r.host.comfyui,
	})
	if err != nil {
		return err
	}
	step.Seen["pid"], step.Seen["socket"] = r.instance.started.PID, r.instance.socket
	r.say(step, "process %d, listening at %s", r.instance.started.PID, r.instance.socket)
	return nil
}

// end stops everything and looks for what is left.
func (r *run) end(ctx context.Context, step *Step) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	var problems []error
	if r.client != nil {
		if status, err := r.client.Status(ctx, api.StatusParams{}); err == nil {
			r.remember(status.Workers)
		}
		if err := r.client.Shutdown(ctx, true); err != nil {
			problems = append(problems, fmt.Errorf("stopping the private supervisor: %w", err))
		}
		_ = r.client.Close() // the supervisor has closed it before; it can lose nothing
	}
	if r.instance.started != nil {
		if err := waitFor(ctx, r.instance.started); err != nil {
			problems = append(problems, err)
		}
	}
	problems = append(problems, r.nothingLeft(step)...)
	if err := os.RemoveAll(r.instance.folder); err != nil {
		problems = append(problems, fmt.Errorf("removing the private supervisor's folder: %w", err))
	}
	if _, err := os.Lstat(r.instance.folder); !errors.Is(err, os.ErrNotExist) {
		problems = append(problems, fmt.Errorf("the folder %s is left", r.instance.folder))
	}
	return errors.Join(problems...)
}

// waitFor waits for the supervisor's end, and kills it when it takes too long: its launchers then end by themselves.
func waitFor(ctx context.Context, started *api.Started) error {
	ended := make(chan error, 1)
	go func() { ended <- started.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	process, err := os.FindProcess(started.PID)
	if err == nil {
		err = process.Kill()
	}
	return errors.Join(fmt.Errorf("the private supervisor %d did not end in time and was killed", started.PID), err, <-ended)
}

// remember keeps which workers there were. Calls that run side by side do so at once.
func (r *run) remember(workers []api.Worker) {
	r.remembering.Lock()
	defer r.remembering.Unlock()
	for _, worker := range workers {
		r.seen[worker.ID] = struct{}{}
		for _, pid := range []int{worker.PythonPID, worker.LauncherPID} {
			if pid > 0 {
				r.pids[pid] = struct{}{}
			}
		}
	}
}

// nothingLeft looks for what the supervisor and its workers should have taken with them.
func (r *run) nothingLeft(step *Step) []error {
	var problems []error
	for what, find := range map[string]func() ([]string, error){
		"processes": r.processesLeft, "sockets": r.socketsLeft, "memory_files": memoryFilesLeft, "files": r.filesLeft,
	} {
		left, err := find()
		if err != nil {
			problems = append(problems, fmt.Errorf("looking for %s that are left: %w", what, err))
			continue
		}
		step.Seen[what] = len(left)
		for _, one := range left {
			problems = append(problems, fmt.Errorf("%s left: %s", what, one))
		}
	}
	if len(problems) == 0 {
		r.say(step, "no process, socket, memory file or file of it is left")
	}
	return problems
}

// filesLeft lists what is in the runtime folder besides the lock, which nobody holds any more.
func (r *run) filesLeft() ([]string, error) {
	entries, err := os.ReadDir(r.instance.runtime)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var left []string
	for _, entry := range entries {
		if entry.Name() != "supervisor.lock" {
			left = append(left, filepath.Join(r.instance.runtime, entry.Name()))
		}
	}
	return left, err
}
