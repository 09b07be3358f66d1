package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/bench"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/demo"
)

type benchFlags struct {
	json   bool
	quick  bool
	python string
}

func newBenchCommand(app *application) *cobra.Command {
	var flags benchFlags
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure what this machine gives: calls, arrays, starts, memory, idleness",
		Long: `Measures on a private supervisor, with nodes that do next to nothing and hosts in Python that call them as
ComfyUI does: how long a call takes, what arrays cost on their way in, out and by reference, how long workers take to
start, alone and as many as there are cores at once, the memory of each process, and what idle workers cost. Needed are
Python 3.10 or newer and, the first time, a package index. It takes about a minute; what else the machine does shows in
the figures.

in: the node reads an array of the host's; out: it makes one; both: it makes one out of the host's; by reference: one
that came out of a worker goes into a worker and comes back. Private memory is what a process has written and shares
with nobody.`,
		Example: `  comfy-supervisor bench
  comfy-supervisor bench --quick --json
  comfy-supervisor bench --python python3.12`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return app.bench(command.Context(), flags)
		},
	}
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON")
	command.Flags().BoolVar(&flags.quick, "quick", false, "measure less, in seconds")
	command.Flags().StringVar(&flags.python, "python", "", "the interpreter to use (default: the first of PATH that is new enough)")
	return command
}

// bench carries the command out.
func (app *application) bench(ctx context.Context, flags benchFlags) error {
	stage, _, err := app.privateInstance(flags.python)
	if err != nil {
		return err
	}
	build := newProgress(app, false, flags.json)
	stage.Report = func(event demo.Event) {
		if event.Kind == demo.StepBuild {
			build.event(*event.Build)
		}
	}
	result, err := bench.Run(ctx, bench.Options{
		Stage: stage,
		Quick: flags.quick,
		Report: func(measuring string) {
			build.close()
			if !flags.json {
				fmt.Fprintf(app.stderr, "measuring %s\n", measuring)
			}
		},
	})
	build.close()
	if err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	if flags.json {
		return app.printJSON(result)
	}
	return app.printBench(result)
}

// printBench prints the table.
func (app *application) printBench(result *bench.Result) error {
	table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")) }
	fmt.Fprintf(table, "%s, %d cores, Python %s\n\n", result.System, result.Cores, result.Python)

	row("CALL", "P50", "P99")
	row(fmt.Sprintf("a small value, %d times", result.Calls.Count), duration(result.Calls.P50), duration(result.Calls.P99))
	fmt.Fprintln(table)

	row("ARRAY", "IN", "OUT", "BOTH", "BY REFERENCE")
	for _, arrays := range result.Arrays {
		row(size(arrays.Bytes), duration(arrays.In), duration(arrays.Out), duration(arrays.Both), duration(arrays.ByReference))
	}
	fmt.Fprintln(table)

	starts := result.Starts
	row("START, UNTIL THE FIRST ANSWER", "TIME")
	row("the supervisor's first worker", duration(starts.First))
	row("a fresh worker", duration(starts.Fresh))
	row(fmt.Sprintf("%d workers at once, until the last", starts.Workers), duration(starts.SideBySide),
		fmt.Sprintf("%.2f times the slowest alone, %s", starts.SideBySide/starts.Alone, duration(starts.Alone)))
	fmt.Fprintln(table)

	row("MEMORY", "PRIVATE", "RESIDENT")
	for _, process := range result.Memory {
		private := "-"
		if process.Private > 0 {
			private = size(process.Private)
		}
		row(process.Process, private, size(process.Resident))
	}
	fmt.Fprintln(table)

	idle := result.Idle
	row("IDLE", "OF A CORE")
	row(fmt.Sprintf("%d workers, with launchers and supervisor, for %.0f s", idle.Workers, idle.Seconds), fmt.Sprintf("%.2f %%", 100*idle.Share))
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// duration is a time in seconds with three digits or so.
func duration(seconds float64) string {
	took := time.Duration(seconds * float64(time.Second))
	switch {
	case took < time.Millisecond:
		return fmt.Sprintf("%.0f us", seconds*1e6)
	case took < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", seconds*1e3)
	case took < time.Second:
		return fmt.Sprintf("%.0f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.2f s", seconds)
}
