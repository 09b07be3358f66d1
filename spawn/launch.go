package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Launch starts a launcher and, through it, Python. It returns when Python's hello has arrived; the handler has seen it
// by then. When the launch fails, what it started is ended before Launch returns; a failure after Python's start is a
// *StartError.
func Launch(ctx context.Context, spec Spec, handler wire.Handler) (Worker, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if spec.OrphanWait <= 0 {
		spec.OrphanWait = DefaultOrphanWait
	}
	if spec.Options == nil {
		spec.Options = []string{"-I", "-X", "utf8"}
	}
	if spec.StopGrace <= 0 {
		spec.StopGrace = DefaultStopGrace
	}
	if err := createFolder(spec.Folder); err != nil {
		return nil, fmt.Errorf("launching a worker for %s: %w", spec.Environment, err)
	}
	w, err := startLauncher(ctx, &spec, handler)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("launching a worker for %s: %w", spec.Environment, err), removeFolder(spec.Folder))
	}
	if err := w.startPython(ctx, &spec); err != nil {
		return nil, fmt.Errorf("launching a worker for %s: %w", spec.Environment, err)
	}
	return w, nil
}

// startLauncher starts the launcher process and connects to it. On an error the process has ended.
func startLauncher(ctx context.Context, spec *Spec, handler wire.Handler) (*worker, error) {
	w := newWorker(handler, spec.Log, spec.Phase, spec.Logger)
	w.record = Record{
		Worker:          spec.Worker,
		Session:         spec.Session,
		Environment:     spec.Environment,
		Generation:      spec.Generation,
		Host:            spec.Host,
		ProtocolVersion: pluginProtocol,
		Key:             newKey(),
		BinaryVersion:   spec.Version,
		Load:            spec.Load,
		LauncherLog:     launcherLogName,
		OrphanWait:      spec.OrphanWait,
		StopGrace:       spec.StopGrace,
		Created:         time.Now().UTC(),
		Folder:          spec.Folder,
	}
	launcher := &launcherRunner{folder: spec.Folder, detached: make(chan struct{}), watched: make(chan struct{})}
	w.runner = launcher
	w.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: pluginSets(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclogTo(w.logger),
		StartTimeout:     launcherStartLimit,
		SkipHostEnv:      true,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: spec.Folder},
		GRPCDialOptions:  append(dialOptions(w.record.Key), dialerOption(func() (string, string) { return w.record.Network, w.address() })),
		RunnerFunc: func(_ hclog.Logger, command *exec.Cmd, socketFolder string) (runner.Runner, error) {
			var err error
			launcher.command, err = launcherCommand(spec, w.record.Key, command.Env, socketFolder)
			return launcher, err
		},
	})
	// go-plugin's start knows no context: it ends when its process does.
	stop := context.AfterFunc(ctx, func() { _ = launcher.Kill(ctx) })
	address, err := w.client.Start()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.client.Kill()
		launcher.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("starting the launcher: %w", launcher.explain(err))
	}
	w.launcher = launcher.watch
	w.record.Launcher = launcher.watch.Process()
	w.record.Network, w.record.Address = address.Network(), address.String()
	if relative, err := filepath.Rel(spec.Folder, address.String()); err == nil && address.Network() == "unix" {
		w.record.Address = relative
	}
	if err := w.connect(ctx); err != nil {
		w.client.Kill()
		w.launcher.Close()
		return nil, launcher.explain(err)
	}
	return w, nil
}

// launcherCommand makes the launcher's command line from what go-plugin wants in its environment.
func launcherCommand(spec *Spec, key string, environment []string, socketFolder string) (*exec.Cmd, error) {
	binary := spec.Binary
	if binary == "" {
		var err error
		if binary, err = ownBinary(); err != nil {
			return nil, fmt.Errorf("finding this program's file: %w", err)
		}
	}
	// The launcher runs in its folder: relative to it the socket's path is short enough for a socket address.
	relative, err := filepath.Rel(spec.Folder, socketFolder)
	if err != nil {
		return nil, err
	}
	command := &exec.Cmd{
		Path:        binary,
		Args:        []string{"comfy-supervisor", "worker"},
		Env:         slices.DeleteFunc(slices.Clone(environment), isSocketFolder),
		Dir:         launcherDirectory(spec.Folder),
		SysProcAttr: launcherAttributes(),
	}
	command.Env = append(command.Env,
		plugin.EnvUnixSocketDir+"="+relative,
		launcherVariable+"="+spec.Worker,
		keyVariable+"="+key,
		folderVariable+"="+spec.Folder,
		versionVariable+"="+spec.Version,
	)
	if spec.Relay {
		command.Env = append(command.Env, relayVariable+"=1")
	}
	for _, name := range []string{"GODEBUG", "GORACE", "GOTRACEBACK"} { // settings of Go's runtime, for developers
		if value, set := os.LookupEnv(name); set {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	return command, nil
}

func isSocketFolder(variable string) bool {
	return len(variable) > len(plugin.EnvUnixSocketDir) && variable[:len(plugin.EnvUnixSocketDir)+1] == plugin.EnvUnixSocketDir+"="
}

// startPython has the launcher start Python, writes the record while Python comes up, and waits for its hello. On an
// error everything has ended.
func (w *worker) startPython(ctx context.Context, spec *Spec) error {
	phase := "starting the interpreter"
	description, err := w.api.Start(ctx, &launcherpb.StartRequest{
		Python:       spec.Python,
		Options:      spec.Options,
		Program:      spec.Program,
		Arguments:    spec.Arguments,
		Directory:    spec.Directory,
		Variables:    spec.Variables,
		Host:         identityOut(spec.Host),
		OrphanWaitNs: int64(spec.OrphanWait),
		StopGraceNs:  int64(spec.StopGrace),
	})
	if err == nil {
		w.record.Python = identityIn(description.GetPython())
		w.record.Cgroup, w.record.CgroupNote = description.GetCgroup(), description.GetCgroupNote()
		phase = "taking over the connection to Python"
		err = w.takeLine(ctx)
	} else {
		err = plainError(err)
	}
	if err == nil {
		phase = "writing its record"
		err = w.record.write()
	}
	w.run()
	if err == nil {
		phase = "waiting for Python's hello"
		select {
		case <-w.hello:
			return nil
		case <-w.pythonEnded:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	w.endNow("the launch failed")
	exit := w.Exit()
	if err != nil { // the end was ours
		exit = Exit{Stderr: exit.Stderr}
	}
	return &StartError{Phase: phase, Exit: exit, Err: err}
}
