package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func newReleaseCommand(app *application) *cobra.Command {
	var asJSON, pins, allSessions bool
	var amount string
	command := &cobra.Command{
		Use:   "release [ENVIRONMENT]",
		Short: "Have idle workers give their memory back",
		Long: `Asks the idle workers of an environment, or all, for everything that can be rebuilt: their models leave the card, caches
and pins are emptied, and what comes next is loaded anew. With --bytes only that much leaves the card, and the rest
stays; with --pins pinned RAM goes back and the card is left alone.

A worker that computes is left alone, and none is started for this. Workers of every session are asked; --all-sessions=false
keeps to those of the command line's own.`,
		Example: `  comfy-supervisor release
  comfy-supervisor release my-pack-nodes
  comfy-supervisor release my-pack-nodes --bytes 4GiB
  comfy-supervisor release --pins --bytes 2GiB --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			params := api.ReleaseParams{AllSessions: allSessions, Pins: pins}
			if len(arguments) == 1 {
				params.Environment = arguments[0]
			}
			if amount != "" {
				size, err := memory.ParseSize(amount)
				if err != nil {
					return usageErrorf("--bytes: %w", err)
				}
				if size.Percent > 0 {
					return usageErrorf("--bytes %s: a share of what is not said; write an amount such as 4GiB", amount)
				}
				params.Bytes = int64(size.Bytes)
			}
			client, err := app.connect(command.Context(), command, false)
			if errors.Is(err, api.ErrNotRunning) {
				return app.reportReleased(asJSON, nil, ofEnvironment(arguments))
			}
			if err != nil {
				return explain(err)
			}
			defer client.Close()
			released, err := client.Release(command.Context(), params)
			if err != nil {
				return explain(err)
			}
			return app.reportReleased(asJSON, released, ofEnvironment(arguments))
		},
	}
	addSocketFlags(command)
	command.Flags().StringVar(&amount, "bytes", "", "how much, such as 4GiB; otherwise everything")
	command.Flags().BoolVar(&pins, "pins", false, "give pinned RAM back instead of the card's")
	command.Flags().BoolVar(&allSessions, "all-sessions", true, "ask the workers of every session, not of the command line's own alone")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// reportReleased prints what every worker gave back. That one did not answer makes the command fail.
func (app *application) reportReleased(asJSON bool, released []api.Released, of string) error {
	failed := 0
	for _, one := range released {
		if one.Error != "" {
			failed++
		}
	}
	if asJSON {
		if released == nil {
			released = []api.Released{}
		}
		if err := app.printJSON(api.ReleaseResult{Released: released}); err != nil {
			return err
		}
	} else {
		for _, one := range released {
			fmt.Fprintln(app.stdout, releasedLine(one))
		}
		if len(released) == 0 {
			fmt.Fprintf(app.stdout, "no worker%s holds anything that could be released\n", of)
		}
	}
	if failed > 0 {
		return &exitError{code: exitFailed, err: fmt.Errorf("%d of %d workers gave nothing back; `comfy-supervisor logs ENVIRONMENT` may say why", failed, len(released))}
	}
	return nil
}

// releasedLine says what one worker gave back.
func releasedLine(one api.Released) string {
	who := fmt.Sprintf("%s, generation %d, session %s", one.Environment, one.Generation, one.Session)
	switch {
	case one.Busy:
		return who + ": it computes, and keeps what it has"
	case one.Nothing:
		return who + ": nothing in it can be given back"
	case one.Error != "":
		return who + ": " + one.Error
	}
	line := fmt.Sprintf("released %s: %s of the card, %s of pinned RAM", who, size(one.Freed), size(one.PinsFreed))
	var failed []string
	for _, step := range one.Steps {
		if step.Error != "" {
			failed = append(failed, step.Name+": "+step.Error)
		}
	}
	if len(failed) > 0 {
		line += "; what failed: " + strings.Join(failed, "; ")
	}
	return line
}
