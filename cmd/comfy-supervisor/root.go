package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitError is an error with an exit code of its own; err may be nil when everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageErrorf makes an error for a command line that can not be carried out as written.
func usageErrorf(format string, arguments ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, arguments...)}
}

// application is what commands need of the process they run in.
type application struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	environ []string
	flags   globalFlags

	started bool // the command line was understood and a command's own code runs
	warned  bool // what is wrong with the variables was said
}

// globalFlags are the flags that every command has.
type globalFlags struct {
	settingsFile     string
	runtimeDirectory string
}

func newApplication() *application {
	return &application{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
}

// run carries out one command line, reports its error on standard error and returns the exit code.
func (app *application) run(ctx context.Context, arguments []string) int {
	root := newRootCommand(app)
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	if !app.started { // cobra's own complaints: unknown commands, flags and argument counts
		code = exitUsage
	}
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		err = exit.err
	}
	if err != nil {
		fmt.Fprintf(app.stderr, "comfy-supervisor: %v\n", err)
	}
	return code
}

// newRootCommand makes the command tree. Each command is a file of this package.
func newRootCommand(app *application) *cobra.Command {
	root := &cobra.Command{
		Use:   "comfy-supervisor",
		Short: "Environments and workers for ComfyUI's isolated node packs",
		Long: `comfy-supervisor builds each node pack's environment from its comfy-env.toml, runs one worker per
environment, owns those processes for their whole life and shares the machine's memory among them.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			app.started = true
		},
	}
	root.SetIn(app.stdin)
	root.SetOut(app.stdout)
	root.SetErr(app.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&app.flags.settingsFile, "settings", "",
		"settings file (default: comfy-supervisor.toml in the configuration folder)")
	root.PersistentFlags().StringVar(&app.flags.runtimeDirectory, "runtime-dir", "",
		"folder of the socket, the lock and the worker records")
	root.AddCommand(
		newBuildCommand(app),
		newEnvCommand(app),
		newFactsCommand(app),
		newGCCommand(app),
		newPackCommand(app),
		newUnpackCommand(app),
		newBuildGuardCommand(app),
		newCheckCommand(app),
		newBenchCommand(app),
		newDemoCommand(app),
		newInitCommand(app),
		newServeCommand(app),
		newStatusCommand(app),
		newCallCommand(app),
		newLogsCommand(app),
		newStopCommand(app),
		newRestartCommand(app),
		newResetCommand(app),
		newReleaseCommand(app),
		newBudgetCommand(app),
		newWhyCommand(app),
		newRunCommand(app),
		newWorkerCommand(app),
		newVersionCommand(app),
	)
	return root
}

// printJSON writes one indented JSON document.
func (app *application) printJSON(value any) error {
	encoder := json.NewEncoder(app.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}
