package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func newStatusCommand(app *application) *cobra.Command {
	var asJSON, variables bool
	command := &cobra.Command{
		Use:   "status [ENVIRONMENT]",
		Short: "Show the supervisor, its sessions and its workers",
		Long: `Shows who uses the supervisor, which workers it has, in what state they are and what they hold. It starts nothing:
without a supervisor it says so and exits with 1.`,
		Example: `  comfy-supervisor status
  comfy-supervisor status my-pack-nodes --variables
  comfy-supervisor status --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			client, err := app.connect(command.Context(), command, false)
			if err != nil {
				return notRunning(err)
			}
			defer client.Close()
			params := api.StatusParams{Variables: variables}
			if len(arguments) == 1 {
				params.Environment = arguments[0]
			}
			status, err := client.Status(command.Context(), params)
			if err != nil {
				return explain(err)
			}
			if asJSON {
				return app.printJSON(status)
			}
			return app.printStatus(status, variables, ofEnvironment(arguments))
		},
	}
	addSocketFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&variables, "variables", false, "print each worker's variables and mirrored flags with their sources, and what is kept back")
	return command
}

// notRunning words the error of a command that starts no supervisor.
func notRunning(err error) error {
	if errors.Is(err, api.ErrNotRunning) {
		return fmt.Errorf("%w; hosts start one when they need it, `comfy-supervisor serve` runs one", err)
	}
	return explain(err)
}

// printStatus prints the tables.
func (app *application) printStatus(status *api.Status, variables bool, of string) error {
	table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
	daemon := status.Supervisor
	files := status.MemoryFiles
	fmt.Fprintf(table, "supervisor\tprocess %d, up %s, %s\n", daemon.PID, age(time.Since(daemon.StartedAt)), size(daemon.RSSBytes))
	fmt.Fprintf(table, "socket\t%s\n", daemon.Socket)
	fmt.Fprintf(table, "memory files\t%s of %s reserved, %d open with %s\n", size(files.ReservedBytes), size(files.QuotaBytes), files.Open, size(files.OpenBytes))
	fmt.Fprintln(table)
	fmt.Fprintln(table, "SESSION\tHOST\tPROCESS\tSINCE\tCLIENTS")
	for _, session := range status.Sessions {
		clients := strconv.Itoa(session.Clients)
		if session.ReconnectUntil != nil {
			clients = fmt.Sprintf("lost, %s left to return", age(time.Until(*session.ReconnectUntil)))
		}
		if session.Ended {
			clients = "ending"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", session.ID, dash(session.Name), dash(strconv.Itoa(session.PID)), age(time.Since(session.Since)), clients)
	}
	fmt.Fprintln(table)
	if len(status.Workers) == 0 {
		fmt.Fprintf(table, "no workers%s\n", of)
		return table.Flush()
	}
	fmt.Fprintln(table, "ENVIRONMENT\tSESSION\tGEN\tSTATE\tFOR\tCALLS\tDEPTH\tRAM\tVRAM\tPINNED\tRESERVE\tPYTHON\tNOW")
	for _, worker := range status.Workers {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", worker.Environment, worker.Session, worker.Generation, worker.State,
			age(time.Since(worker.Since)), worker.Calls, worker.Depth+worker.Queued, memoryOf(worker),
			held(worker.Memory, func(m *api.WorkerMemory) (int64, int64) { return m.VRAM, m.VRAMCap }),
			held(worker.Memory, func(m *api.WorkerMemory) (int64, int64) { return m.Pinned, m.PinCap }),
			held(worker.Memory, func(m *api.WorkerMemory) (int64, int64) { return m.Reserve, 0 }), dash(strconv.Itoa(worker.PythonPID)), doing(worker))
	}
	for _, worker := range status.Workers {
		if worker.Memory == nil {
			continue
		}
		for _, remark := range worker.Memory.Remarks {
			fmt.Fprintf(table, "%s: %s\n", worker.Environment, remark)
		}
	}
	if variables {
		for _, worker := range status.Workers {
			fmt.Fprintf(table, "\nvariables of %s, session %s\n", worker.Environment, worker.Session)
			fmt.Fprintln(table, "NAME\tSOURCE\tNOTE\tVALUE")
			for _, variable := range worker.Variables {
				name, value := variable.Name, variable.Value
				if strings.HasSuffix(variable.Kind, "flag") {
					name = "--" + name
				}
				if strings.HasPrefix(variable.Kind, "withheld") {
					value = "(withheld)"
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, variable.Source, variable.Note, value)
			}
		}
	}
	return table.Flush()
}

func memoryOf(worker api.Worker) string {
	if worker.RSSBytes == 0 {
		return "-"
	}
	return size(worker.RSSBytes)
}

// held is what a worker holds of a kind of memory, and of how much, where that is limited.
func held(memory *api.WorkerMemory, amounts func(*api.WorkerMemory) (has, limit int64)) string {
	if memory == nil {
		return "-"
	}
	has, limit := amounts(memory)
	switch {
	case limit > 0:
		return size(has) + " of " + size(limit)
	case has == 0:
		return "-"
	}
	return size(has)
}

// doing says what a worker is at, or why it is not.
func doing(worker api.Worker) string {
	switch {
	case len(worker.Current) > 0:
		return fmt.Sprintf("%s for %s", worker.Current[0].Node, age(time.Duration(worker.Current[0].Seconds*float64(time.Second))))
	case worker.State == "starting" && worker.Phase != "":
		return worker.Phase
	case worker.BackoffUntil != nil:
		return fmt.Sprintf("again in %s; %s", age(time.Until(*worker.BackoffUntil)), worker.Cause)
	case worker.Cause != "":
		return worker.Cause
	}
	return "-"
}
