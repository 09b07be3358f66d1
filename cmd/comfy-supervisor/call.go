package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// callFlags are the flags of call.
type callFlags struct {
	out      string
	function string
	stack    string
	silence  time.Duration
	deadline time.Duration
	json     bool
}

// callReport is what call prints with --json.
type callReport struct {
	api.CallResult
	Node    string          `json:"node"`
	Seconds float64         `json:"seconds"`
	Files   []string        `json:"files,omitempty"`
	Value   json.RawMessage `json:"value"`
}

func newCallCommand(app *application) *cobra.Command {
	var flags callFlags
	command := &cobra.Command{
		Use:   "call ENVIRONMENT NODE [KEY=VALUE...]",
		Short: "Call a node's function in its worker",
		Long: `Calls a node's function and prints what it returned, as JSON. A value is taken as JSON if it is JSON and as text
otherwise; KEY=@FILE takes the JSON in a file. Tuples come back as lists, arrays as {"$array": ...}.

The worker belongs to the operator's session: it is started when there is none, and stays warm until it has been idle
for long. Ctrl-C cancels the call.

--out writes the result to a file: .json all of it, .npy the first array, .png the first picture (of a batch, one file
each), .txt the first text.`,
		Example: `  comfy-supervisor call my-pack-nodes Blur radius=3 mode=gaussian
  comfy-supervisor call my-pack-nodes DrawCircle size=256 --out circle.png
  comfy-supervisor call my-pack-nodes Merge items=@items.json --json`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			inputs, err := parseInputs(arguments[2:])
			if err != nil {
				return err
			}
			if err := checkOutput(flags.out); err != nil {
				return err
			}
			environment := arguments[0]
			if flags.stack != "" {
				environment += "@" + flags.stack
			}
			return app.call(command, flags, api.Call{
				Environment: environment, Node: arguments[1], Function: flags.function, Inputs: inputs,
				Silence: flags.silence, Deadline: flags.deadline,
			})
		},
	}
	addSettingFlags(command)
	_ = command.Flags().MarkHidden("call-silence") // of the daemon that is started; --silence is this call's
	command.Flags().StringVar(&flags.out, "out", "", "file to write the result to: .json, .npy, .png or .txt")
	command.Flags().StringVar(&flags.function, "function", "", "method to call instead of the node's FUNCTION")
	command.Flags().StringVar(&flags.stack, "stack", "", "stack, when the environment is built for several")
	command.Flags().DurationVar(&flags.silence, "silence", 0, "give up after this time without progress (default: the environment's)")
	command.Flags().DurationVar(&flags.deadline, "deadline", 0, "give up after this time")
	command.Flags().BoolVar(&flags.json, "json", false, "print who computed it and how long it took as well")
	return command
}

// call carries the command out.
func (app *application) call(command *cobra.Command, flags callFlags, call api.Call) error {
	ctx := command.Context()
	client, err := app.connect(ctx, command, true)
	if err != nil {
		return explain(err)
	}
	defer client.Close()
	bar := newBar(app)
	call.Progress = bar.show
	result, err := client.Call(ctx, call)
	bar.clear()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("cancelled: %w", oneError(ctx, err))
		}
		return explain(err)
	}
	defer result.Close()
	var files []string
	if flags.out != "" {
		if files, err = writeOutput(result, flags.out); err != nil {
			return err
		}
	}
	switch {
	case flags.json:
		return app.printJSON(callReport{CallResult: result.CallResult, Node: call.Node, Seconds: result.Elapsed.Seconds(), Files: files, Value: result.Value})
	case flags.out != "":
		for _, file := range files {
			fmt.Fprintln(app.stdout, file)
		}
		return nil
	}
	return app.printJSON(result.Value)
}

// oneError prefers what the supervisor said about a cancelled call.
func oneError(ctx context.Context, err error) error {
	if err == ctx.Err() {
		return err
	}
	return explain(err)
}

// parseInputs reads KEY=VALUE words.
func parseInputs(words []string) (map[string]any, error) {
	inputs := make(map[string]any, len(words))
	for _, word := range words {
		key, text, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, usageErrorf("%q is not KEY=VALUE", word)
		}
		if _, doubled := inputs[key]; doubled {
			return nil, usageErrorf("the input %s is given twice", key)
		}
		if path, file := strings.CutPrefix(text, "@"); file {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, usageErrorf("reading the input %s: %w", key, err)
			}
			if !json.Valid(content) {
				return nil, usageErrorf("reading the input %s: %s is not JSON", key, path)
			}
			inputs[key] = json.RawMessage(content)
			continue
		}
		if json.Valid([]byte(text)) {
			inputs[key] = json.RawMessage(text)
		} else {
			inputs[key] = text
		}
	}
	return inputs, nil
}
