package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// logsFlags are the flags of logs.
type logsFlags struct {
	follow bool
	lines  int
	since  string
	level  string
	json   bool
}

func newLogsCommand(app *application) *cobra.Command {
	var flags logsFlags
	command := &cobra.Command{
		Use:   "logs ENVIRONMENT",
		Short: "Print what an environment's workers wrote",
		Long: `Prints the last lines of an environment's log: what its workers wrote to standard output and standard error, and what
the supervisor has to say about them, of all sessions. A line has the level that it begins with, as records of Python's
logging do; a traceback is an error, other lines of standard error are warnings, and the rest is information.`,
		Example: `  comfy-supervisor logs my-pack-nodes
  comfy-supervisor logs my-pack-nodes -f
  comfy-supervisor logs my-pack-nodes -n 1000 --since 10m --level warning`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			since, err := sinceTime(flags.since, time.Now())
			if err != nil {
				return err
			}
			client, err := app.connect(command.Context(), command, false)
			if err != nil {
				return notRunning(err)
			}
			defer client.Close()
			params := api.LogsParams{Environment: arguments[0], Lines: flags.lines, Follow: flags.follow, Since: since, Level: flags.level}
			err = client.Logs(command.Context(), params, app.logPrinter(flags.json))
			var failure *wire.Error
			if command.Context().Err() != nil && (errors.Is(err, context.Canceled) || errors.As(err, &failure)) {
				return nil // following ends with Ctrl-C
			}
			return explain(err)
		},
	}
	addSocketFlags(command)
	command.Flags().BoolVarP(&flags.follow, "follow", "f", false, "go on with new lines until Ctrl-C")
	command.Flags().IntVarP(&flags.lines, "lines", "n", 100, "how many of the last lines; -1: all that are kept")
	command.Flags().StringVar(&flags.since, "since", "", "leave out what is older: a time like 2026-01-31T10:00:00Z, or an age like 10m")
	command.Flags().StringVar(&flags.level, "level", "", "leave out what is less important: debug, detail, info, warning, error or critical")
	command.Flags().BoolVar(&flags.json, "json", false, "print one JSON object a line")
	return command
}

// sinceTime turns a time or an age into a time as the supervisor takes it.
func sinceTime(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	if age, err := time.ParseDuration(text); err == nil {
		return now.Add(-age).UTC().Format(time.RFC3339), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "", usageErrorf("--since %q is neither a time like 2026-01-31T10:00:00Z nor an age like 10m", text)
	}
	return at.UTC().Format(time.RFC3339), nil
}

// logPrinter prints log lines as text or as JSON.
func (app *application) logPrinter(asJSON bool) func(api.LogLine) {
	if asJSON {
		encoder := json.NewEncoder(app.stdout)
		encoder.SetEscapeHTML(false)
		return func(line api.LogLine) { _ = encoder.Encode(line) } // an output that is gone ends the process by SIGPIPE
	}
	return func(line api.LogLine) {
		fmt.Fprintf(app.stdout, "%s %s %s\n", line.Time.Local().Format("15:04:05.000"), mark(line.Stream), line.Line)
	}
}

// mark tells the streams apart in one letter each.
func mark(stream string) string {
	switch stream {
	case "stdout":
		return "|"
	case "stderr":
		return "!"
	}
	return "*"
}
