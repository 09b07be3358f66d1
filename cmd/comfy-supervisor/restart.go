package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func newRestartCommand(app *application) *cobra.Command {
	return newWorkersCommand(app, workersCommand{
		command: &cobra.Command{
			Use:   "restart [ENVIRONMENT]",
			Short: "Stop an environment's workers and start their replacements",
			Long: `Stops the workers of an environment in every session, or all workers, forgets their crashes and starts their
replacements, which are ready when the command returns.`,
			Example: `  comfy-supervisor restart my-pack-nodes`,
		},
		act:  (*api.Client).Restart,
		verb: "restarted",
		none: "no worker%s to restart",
	})
}

func newResetCommand(app *application) *cobra.Command {
	return newWorkersCommand(app, workersCommand{
		command: &cobra.Command{
			Use:   "reset [ENVIRONMENT]",
			Short: "Let environments start again whose workers crashed too often",
			Long: `Forgets the crashes of an environment's workers, or of all: what is quarantined, or waits before it may start again,
starts with the next call. It starts nothing itself.`,
			Example: `  comfy-supervisor reset my-pack-nodes`,
		},
		act:  (*api.Client).Reset,
		verb: "reset",
		none: "no worker%s is quarantined or waits after a crash",
	})
}

// workersCommand is a command that acts on the workers of one environment, or on all.
type workersCommand struct {
	command    *cobra.Command
	act        func(*api.Client, context.Context, api.StopParams) ([]api.Worker, error)
	verb, none string // in none, %s is for whose
}

func newWorkersCommand(app *application, parts workersCommand) *cobra.Command {
	var asJSON bool
	command := parts.command
	command.Args = cobra.MaximumNArgs(1)
	command.RunE = func(command *cobra.Command, arguments []string) error {
		ctx := command.Context()
		client, err := app.connect(ctx, command, false)
		if err != nil && !errors.Is(err, api.ErrNotRunning) {
			return explain(err)
		}
		report := stopReport{Workers: []api.Worker{}}
		if err == nil {
			defer client.Close()
			params := api.StopParams{AllSessions: true}
			if len(arguments) == 1 {
				params.Environment = arguments[0]
			}
			if report.Workers, err = parts.act(client, ctx, params); err != nil {
				return explain(err)
			}
		}
		if asJSON {
			return app.printJSON(report)
		}
		app.printWorkers(parts.verb, report.Workers)
		if len(report.Workers) == 0 {
			fmt.Fprintf(app.stdout, parts.none+"\n", ofEnvironment(arguments))
		}
		return nil
	}
	addSocketFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// ofEnvironment is " of NAME" where a command names an environment.
func ofEnvironment(arguments []string) string {
	if len(arguments) == 0 {
		return ""
	}
	return " of " + arguments[0]
}
