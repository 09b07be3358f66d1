package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// serveFlags are the flags of serve that are not settings.
type serveFlags struct {
	readyFD uint64
	private bool
}

func newServeCommand(app *application) *cobra.Command {
	var flags serveFlags
	command := &cobra.Command{
		Use:   "serve",
		Short: "Run the supervisor",
		Long: `Runs the supervisor in the foreground until SIGTERM, SIGINT or "comfy-supervisor stop"; then it stops every worker
and leaves nothing behind. There is one per user and runtime folder; a second one says who runs and ends.

It listens at supervisor.sock in the runtime folder. Hosts and commands that need a supervisor start one by themselves;
serve is for service managers (Type=notify is understood), containers and debugging.`,
		Example: `  comfy-supervisor serve
  comfy-supervisor serve --log-level debug --reap 10m

  # ~/.config/systemd/user/comfy-supervisor.service
  [Service]
  Type=notify
  ExecStart=/usr/local/bin/comfy-supervisor serve
  KillMode=mixed`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			announce, err := newAnnouncement(flags.readyFD)
			if err != nil {
				return err
			}
			err = app.serve(command.Context(), command, flags, announce)
			announce.failed(err)
			return err
		},
	}
	addSettingFlags(command)
	command.Flags().Uint64Var(&flags.readyFD, "ready-fd", 0, "descriptor to write \"ready PID\" or \"error TEXT\" to")
	command.Flags().BoolVar(&flags.private, "private", false, "the instance is its starter's own, not the user's, and ends with it")
	return command
}

// serve runs the daemon.
func (app *application) serve(ctx context.Context, command *cobra.Command, flags serveFlags, announce *announcement) error {
	app.warned = true // the log takes the warnings
	loaded, err := app.loadSettings(givenSettings(command))
	if err != nil {
		return err
	}
	output := supervisor.NewLogWriter(logOutput(app.stderr))
	defer output.Close(lastLinesWait)
	logger, err := newLogger(output, loaded.LogLevel.Value)
	if err != nil {
		return err
	}
	for _, warning := range loaded.Warnings {
		logger.Warn().Msg(warning)
	}
	config, err := daemonConfig(loaded)
	if err != nil {
		return err
	}
	config.Log = logger
	config.Private = flags.private
	if flags.private {
		starter, err := spawn.Identify(os.Getppid())
		if err != nil {
			return fmt.Errorf("looking at the process that started this one: %w", err)
		}
		var release func()
		if ctx, release, err = spawn.WithProcess(ctx, starter); err != nil {
			return err
		}
		defer release()
	}
	config.Ready = func() {
		announce.ready()
		if err := supervisor.NotifyServiceManager(app.environ, "READY=1"); err != nil {
			logger.Warn().Err(err).Msg("the service manager was not told")
		}
	}
	release, err := spawn.BecomeSubreaper()
	if err != nil {
		return err
	}
	defer release()
	ignoreBrokenPipes()
	daemon, err := supervisor.New(config)
	if err != nil {
		return err
	}
	return daemon.Run(ctx)
}

// daemonConfig turns settings into what a daemon is told.
func daemonConfig(loaded *settings.Settings) (supervisor.Config, error) {
	store, err := envbuild.OpenStore(loaded.EnvironmentRoot.Value)
	if err != nil {
		return supervisor.Config{}, err
	}
	program, err := pyworker.Layout(loaded.CacheDirectory.Value)
	if err != nil {
		return supervisor.Config{}, err
	}
	crash := supervisor.DefaultCrashLimits()
	crash.Start = loaded.Start.Value
	crash.CrashWindow = loaded.CrashWindow.Value
	crash.CrashCount = int(loaded.CrashCount.Value)
	idle := memory.DefaultLimits()
	idle.IdleRelease = loaded.IdleRelease.Value
	idle.Reap = loaded.Reap.Value
	idle.EndStuck = memory.EndStuck(loaded.EndStuck.Value)
	cards := probe.Options{Library: loaded.NVMLLibrary.Value, OwnPIDs: loaded.NVMLPIDs.Value == "ours"}
	quota := loaded.MemoryFileQuota.Value
	if quota == 0 {
		quota = spawn.DefaultMemoryFileQuota()
	}
	return supervisor.Config{
		RuntimeDirectory: loaded.RuntimeDirectory.Value,
		StateDirectory:   loaded.StateDirectory.Value,
		Socket:           loaded.Socket.Value,
		Version:          newVersionReport().Version,
		Program:          program,
		Environments:     store,
		CallSilence:      loaded.CallSilence.Value,
		Reconnect:        loaded.Reconnect.Value,
		LauncherOrphan:   loaded.LauncherOrphan.Value,
		StopGrace:        loaded.StopGrace.Value,
		HealthCheck:      loaded.HealthCheckTimeout.Value,
		Unheard:          supervisor.DefaultUnheard,
		SweepInterval:    loaded.Sweep.Value,
		Crash:            crash,
		Idle:             idle,
		Options:          loaded.Limits,
		OpenCards: func(ctx context.Context) (budget.Cards, error) {
			opened, err := probe.Open(ctx, cards)
			if err != nil {
				return nil, err // and no pointer in the interface
			}
			return opened, nil
		},
		MemoryFileQuota: quota,
		MemoryFilePool:  loaded.MemoryFilePool.Value,
	}, nil
}

// lastLinesWait is how long the end of the daemon waits for an output that takes no more of its log.
const lastLinesWait = 2 * time.Second

// logOutput is where the daemon's log goes: JSON lines, or text on a terminal.
func logOutput(output io.Writer) io.Writer {
	if file, ok := output.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return zerolog.ConsoleWriter{Out: output, TimeFormat: time.TimeOnly}
	}
	return output
}

// newLogger makes the daemon's log.
func newLogger(output io.Writer, level string) (zerolog.Logger, error) {
	parsed, err := zerolog.ParseLevel(level)
	if err != nil {
		return zerolog.Nop(), usageErrorf("log level %q: %w", level, err)
	}
	return zerolog.New(output).Level(parsed).With().Timestamp().Logger(), nil
}

// announcement tells whoever started the daemon, through an inherited descriptor, whether it accepts clients.
type announcement struct {
	file *os.File // nil when nobody wants to know, or when it has been said
}

func newAnnouncement(descriptor uint64) (*announcement, error) {
	if descriptor == 0 {
		return &announcement{}, nil
	}
	file := os.NewFile(uintptr(descriptor), "ready-fd")
	if file == nil {
		return nil, usageErrorf("--ready-fd %d is no open descriptor", descriptor)
	}
	if _, err := file.Stat(); err != nil {
		return nil, usageErrorf("--ready-fd %d is no open descriptor: %w", descriptor, err)
	}
	closeOnExec(file)
	return &announcement{file: file}, nil
}

func (a *announcement) ready() { a.say(fmt.Sprintf("ready %d\n", os.Getpid())) }

func (a *announcement) failed(err error) {
	if err != nil {
		a.say(fmt.Sprintf("error %v\n", oneLine(err)))
	}
}

// say writes the one line. Whoever does not listen any more does not need it.
func (a *announcement) say(line string) {
	if a.file == nil {
		return
	}
	_, _ = io.WriteString(a.file, line)
	_ = a.file.Close()
	a.file = nil
}

// oneLine is an error's text with its lines joined.
func oneLine(err error) string {
	var running *supervisor.AlreadyRunningError
	if errors.As(err, &running) {
		err = running
	}
	text := []byte(err.Error())
	for i, character := range text {
		if character == '\n' || character == '\r' {
			text[i] = ' '
		}
	}
	return string(text)
}
