package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

func newWhyCommand(app *application) *cobra.Command {
	var asJSON bool
	var count int
	command := &cobra.Command{
		Use:   "why [ENVIRONMENT]",
		Short: "Show why memory was taken from workers",
		Long: `Shows what led to the last times that memory was taken from an environment's workers, or from anybody: which load lacked
how much and why, what was asked of whom, what each gave by its own measure, and how the load was answered. Every step
comes with the whole sum behind it.`,
		Example: `  comfy-supervisor why my-pack-nodes
  comfy-supervisor why --last 1 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if count < 1 {
				return usageErrorf("--last %d: it shows one at least", count)
			}
			client, err := app.connect(command.Context(), command, false)
			if err != nil {
				return notRunning(err)
			}
			defer client.Close()
			var events []api.Event
			if _, err := client.Events(command.Context(), api.EventsParams{}, func(event api.Event) { events = append(events, event) }); err != nil {
				return explain(err)
			}
			environment := strings.Join(arguments, "")
			chains := budget.Chains(events, environment)
			chains = chains[max(0, len(chains)-count):]
			if asJSON {
				if chains == nil {
					chains = [][]api.Event{}
				}
				return app.printJSON(chains)
			}
			app.printChains(chains, environment)
			return nil
		},
	}
	addSocketFlags(command)
	command.Flags().IntVar(&count, "last", 3, "how many times to show")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// printChains prints one step a line, with its sum below.
func (app *application) printChains(chains [][]api.Event, environment string) {
	if len(chains) == 0 {
		fmt.Fprintf(app.stdout, "nothing was taken from %s, as far as events are kept\n", cmp.Or(environment, "anybody"))
	}
	for i, chain := range chains {
		if i > 0 {
			fmt.Fprintln(app.stdout)
		}
		for j := range chain {
			event := &chain[j]
			of := "the host"
			if event.Environment != "" {
				of = fmt.Sprintf("%s #%d", event.Environment, event.Generation)
			}
			kind := strings.ReplaceAll(strings.TrimPrefix(event.Kind, "memory."), "_", " ")
			fmt.Fprintf(app.stdout, "%s  %s, session %s: %s, %s\n", event.Time.Local().Format("15:04:05.000"), of, event.Session, kind, event.Cause)
			if terms := budget.TermsOf(event); len(terms) > 0 {
				fmt.Fprintf(app.stdout, "              %s\n", terms)
			}
		}
	}
}
