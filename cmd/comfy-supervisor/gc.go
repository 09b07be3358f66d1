package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

// gcFlags are the flags of gc.
type gcFlags struct {
	delete   bool
	keepDays int
	json     bool
}

func newGCCommand(app *application) *cobra.Command {
	var flags gcFlags
	command := &cobra.Command{
		Use:   "gc",
		Short: "List the environments on disk, and delete those that no pack wants",
		Long: `Lists every environment with its size, its last use and who uses it. With --delete it removes revisions that a
newer one replaced, what interrupted builds left, and environments whose pack is gone and that were not used for
--keep-days. Nothing that runs is deleted, nor anything of a pack that is there or only switched off.

FREED is what a deletion gives back: most of an environment is often shared with others and with uv's cache.`,
		Example: "  comfy-supervisor gc\n  comfy-supervisor gc --delete --keep-days 7",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return app.collectGarbage(command.Context(), flags)
		},
	}
	command.Flags().BoolVar(&flags.delete, "delete", false, "delete what the list calls garbage")
	command.Flags().IntVar(&flags.keepDays, "keep-days", 30, "days for which the environment of a pack that is gone is kept")
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON")
	return command
}

// collected is one line of gc's output.
type collected struct {
	envbuild.Usage
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

func (app *application) collectGarbage(ctx context.Context, flags gcFlags) error {
	if flags.keepDays < 0 {
		return usageErrorf("--keep-days %d: the number of days can not be negative", flags.keepDays)
	}
	loaded, err := app.loadSettings(nil)
	if err != nil {
		return err
	}
	store, err := envbuild.OpenStore(loaded.EnvironmentRoot.Value)
	if err != nil {
		return err
	}
	keep := time.Duration(flags.keepDays) * 24 * time.Hour
	usages, err := store.Usages(ctx, keep)
	if err != nil {
		return err
	}
	list := make([]collected, len(usages))
	failed := false
	for i, usage := range usages {
		list[i].Usage = usage
		if !flags.delete || !usage.Collectable {
			continue
		}
		var reason string
		list[i].Deleted, reason, err = store.Collect(ctx, usage, keep)
		if reason != "" {
			list[i].Reason = reason
		}
		if err != nil {
			list[i].Error, failed = err.Error(), true
		}
	}
	if flags.json {
		if err := app.printJSON(list); err != nil {
			return err
		}
	} else if err := app.printGarbage(list, flags.delete); err != nil {
		return err
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

// printGarbage prints gc's table and its sum.
func (app *application) printGarbage(list []collected, deleting bool) error {
	if len(list) == 0 {
		fmt.Fprintln(app.stdout, "no environments")
		return nil
	}
	table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENVIRONMENT\tSTACK\tREVISION\tSIZE\tFREED\tLAST USE\tSTATE\t")
	var garbage, count int64
	for _, one := range list {
		used := "never"
		if !one.LastUse.IsZero() {
			used = one.LastUse.Local().Format("2006-01-02")
		}
		state := one.Reason
		if one.State != envbuild.StateUsed { // "used by" says it
			state = one.State + ": " + state
		}
		switch {
		case one.Error != "":
			state = one.Error
		case one.Deleted:
			state = "deleted: " + one.Reason
		case one.Collectable:
			state = "garbage: " + one.Reason
		}
		if one.Deleted || one.Collectable && !deleting {
			garbage += one.Exclusive
			count++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", one.Environment, one.Stack, filepath.Base(one.Revision),
			size(one.Bytes), size(one.Exclusive), used, strings.ReplaceAll(state, "\n", " "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case deleting:
		fmt.Fprintf(app.stdout, "%d deleted, %s freed\n", count, size(garbage))
	case count > 0:
		fmt.Fprintf(app.stdout, "%d are garbage, %s would be freed; delete them with --delete\n", count, size(garbage))
	default:
		fmt.Fprintln(app.stdout, "nothing is garbage")
	}
	return nil
}
