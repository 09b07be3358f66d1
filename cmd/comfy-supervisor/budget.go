package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func newBudgetCommand(app *application) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "budget",
		Short: "Show who holds, was promised and waits for memory",
		Long: `Shows every card with what is free, what leases hold back for loads under way, what waits for room and who holds what,
and how the pinned RAM is split among all processes. "unknown" is held by nobody the supervisor knows.`,
		Example: `  comfy-supervisor budget
  comfy-supervisor budget --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := app.connect(command.Context(), command, false)
			if err != nil {
				return notRunning(err)
			}
			defer client.Close()
			budget, err := client.Budget(command.Context())
			if err != nil {
				return explain(err)
			}
			if asJSON {
				return app.printJSON(budget)
			}
			return app.printBudget(budget)
		},
	}
	addSocketFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// printBudget prints the tables.
func (app *application) printBudget(budget *api.Budget) error {
	table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
	if budget.CardsError != "" {
		fmt.Fprintf(table, "the driver does not show the cards: %s\n\n", budget.CardsError)
	}
	if len(budget.Cards) == 0 {
		fmt.Fprintln(table, "no cards")
	} else {
		fmt.Fprintln(table, "CARD\tTOTAL\tFREE\tPROMISED\tAVAILABLE\tUNKNOWN\tREAD FROM\tDEVICE")
	}
	for i := range budget.Cards {
		card := &budget.Cards[i]
		if card.Error != "" && card.Total == 0 {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t%s\t%s\n", dash(card.Name), card.Error, card.Device)
			continue
		}
		source := card.Source
		if card.ProcessLocal {
			source += ", processes see their own"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", dash(card.Name), size(card.Total), size(card.Free), signedSize(card.Promised),
			signedSize(card.Available), size(card.Unattributed), source, card.Device)
	}
	printHolders(table, budget)
	printPins(table, budget)
	return table.Flush()
}

// printHolders prints who holds, was promised and waits for what on the cards.
func printHolders(table *tabwriter.Writer, budget *api.Budget) {
	rows := 0
	row := func(card *api.BudgetCard, session, environment string, generation uint64, what string, bytes int64, notes ...string) {
		if rows == 0 {
			fmt.Fprintln(table, "\nWHO\tSESSION\tWHAT\tBYTES\tNOTES\tCARD")
		}
		rows++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", who(environment, generation), session, what, size(bytes), dash(strings.Join(notes, ", ")), card.Device)
	}
	for i := range budget.Cards {
		card := &budget.Cards[i]
		for _, holder := range card.Holders {
			var notes []string
			for _, note := range []struct {
				holds bool
				text  string
			}{
				{holder.Models > 0, fmt.Sprintf("%d models", holder.Models)},
				{holder.Contradicted, "says " + size(holder.Reported)},
				{holder.Unresponsive, "did not answer the last release"},
				{holder.Dry, "has no more to give"},
				{holder.Asked > 0, "asked for " + size(holder.Asked)},
			} {
				if note.holds {
					notes = append(notes, note.text)
				}
			}
			row(card, holder.Session, holder.Environment, holder.Generation, "holds", holder.Charge, notes...)
		}
		for _, lease := range card.Leases {
			var notes []string
			if lease.Forced {
				notes = append(notes, "may not fit")
			}
			if lease.Working {
				notes = append(notes, "its weights are there")
			}
			row(card, lease.Session, lease.Environment, lease.Generation, "was promised", lease.Bytes, notes...)
		}
		for _, ask := range card.Waiting {
			row(card, ask.Session, ask.Environment, ask.Generation, "waits for", ask.Weights, strings.Join(ask.Models, " "))
		}
	}
}

// printPins prints how RAM is split.
func printPins(table *tabwriter.Writer, budget *api.Budget) {
	fmt.Fprintf(table, "\nRAM\t%s of %s available", size(budget.RAM.Available), size(budget.RAM.Total))
	if budget.RAM.LimitedBy != "" {
		fmt.Fprintf(table, ", limited by %s", budget.RAM.LimitedBy)
	}
	fmt.Fprintln(table)
	if budget.Pins.Budget == 0 {
		fmt.Fprintln(table, "pinned RAM\tnobody pins")
		return
	}
	fmt.Fprintf(table, "pinned RAM\t%s of %s\n\nWHO\tSESSION\tPINNED\tCAP\tOPERATOR'S CAP\n", size(budget.Pins.Pinned), size(budget.Pins.Budget))
	for _, party := range budget.Parties {
		if party.Memory.PinCap > 0 || party.Memory.Pinned > 0 {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", who(party.Environment, party.Generation), party.Session, size(party.Memory.Pinned),
				sizeOrDash(party.Memory.PinCap), sizeOrDash(party.Memory.PinnedCap))
		}
	}
}

// who names a worker, or a session's host.
func who(environment string, generation uint64) string {
	if environment == "" {
		return "(host)"
	}
	return fmt.Sprintf("%s #%d", environment, generation)
}

func sizeOrDash(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return size(bytes)
}

// signedSize is a size that may be below zero.
func signedSize(bytes int64) string {
	if bytes < 0 {
		return "-" + size(-bytes)
	}
	return size(bytes)
}
