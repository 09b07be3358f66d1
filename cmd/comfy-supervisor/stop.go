package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// stopReport is what stop, restart and reset print with --json.
type stopReport struct {
	Workers    []api.Worker `json:"workers"`
	Supervisor bool         `json:"supervisor,omitempty"` // it was stopped
}

func newStopCommand(app *application) *cobra.Command {
	var asJSON, all bool
	command := &cobra.Command{
		Use:   "stop [ENVIRONMENT]",
		Short: "Stop an environment's workers, or the supervisor with all of them",
		Long: `With a name: stops that environment's workers in every session; they are gone when the command returns, and the next
call starts a new one. Without: stops all workers and the supervisor. If hosts still use it, it asks first; --all is
the answer for scripts.`,
		Example: `  comfy-supervisor stop my-pack-nodes
  comfy-supervisor stop --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx := command.Context()
			client, err := app.connect(ctx, command, false)
			if errors.Is(err, api.ErrNotRunning) {
				return app.reportStopped(asJSON, stopReport{Workers: []api.Worker{}}, "no supervisor is running")
			}
			if err != nil {
				return explain(err)
			}
			defer client.Close()
			if len(arguments) == 1 {
				stopped, err := client.Stop(ctx, api.StopParams{Environment: arguments[0], AllSessions: true})
				if err != nil {
					return explain(err)
				}
				return app.reportStopped(asJSON, stopReport{Workers: stopped}, "no worker of "+arguments[0]+" is running")
			}
			return app.stopSupervisor(ctx, client, asJSON, all)
		},
	}
	addSocketFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&all, "all", false, "stop the supervisor although hosts use it")
	return command
}

// stopSupervisor ends the supervisor, after asking when hosts live.
func (app *application) stopSupervisor(ctx context.Context, client *api.Client, asJSON, all bool) error {
	status, err := client.Status(ctx, api.StatusParams{})
	if err != nil {
		return explain(err)
	}
	var hosts []string
	for _, session := range status.Sessions {
		if session.Role == api.RoleHost && !session.Ended {
			hosts = append(hosts, fmt.Sprintf("  %s, process %d", session.Name, session.PID))
		}
	}
	if len(hosts) > 0 && !all {
		question := "hosts still use this supervisor:\n" + strings.Join(hosts, "\n")
		if !app.interactive() {
			return &exitError{code: exitFailed, err: fmt.Errorf("%s\nstop them first, or say --all", question)}
		}
		agreed, err := app.confirm(question + "\nstop it with their workers? [y/N] ")
		if err != nil {
			return err
		}
		if !agreed {
			return &exitError{code: exitFailed, err: errors.New("nothing was stopped")}
		}
	}
	running := []api.Worker{}
	for _, worker := range status.Workers {
		if worker.PythonPID != 0 || worker.LauncherPID != 0 {
			running = append(running, worker)
		}
	}
	daemon := status.Supervisor
	watch, watchErr := spawn.WatchProcess(spawn.Process{PID: daemon.PID, StartTime: daemon.StartTime})
	if err := client.Shutdown(ctx, true); err != nil {
		return explain(err)
	}
	if watchErr == nil { // else it has ended already
		defer watch.Close()
		select {
		case <-watch.Done():
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of process %d: %w", daemon.PID, ctx.Err())
		}
	}
	return app.reportStopped(asJSON, stopReport{Workers: running, Supervisor: true}, "")
}

// interactive reports whether somebody can answer a question.
func (app *application) interactive() bool {
	file, ok := app.stdin.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks a question; everything but yes is no.
func (app *application) confirm(question string) (bool, error) {
	fmt.Fprint(app.stderr, question)
	answer, err := bufio.NewReader(app.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// reportStopped prints which workers were stopped, or what to say when there were none.
func (app *application) reportStopped(asJSON bool, report stopReport, none string) error {
	if asJSON {
		return app.printJSON(report)
	}
	app.printWorkers("stopped", report.Workers)
	if report.Supervisor {
		fmt.Fprintln(app.stdout, "stopped the supervisor")
	} else if len(report.Workers) == 0 {
		fmt.Fprintln(app.stdout, none)
	}
	return nil
}

// printWorkers prints one line a worker.
func (app *application) printWorkers(verb string, workers []api.Worker) {
	for _, worker := range workers {
		fmt.Fprintf(app.stdout, "%s %s, generation %d, session %s, which was %s\n", verb, worker.Environment, worker.Generation, worker.Session, worker.State)
	}
}
