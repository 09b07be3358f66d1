package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

func newFactsCommand(app *application) *cobra.Command {
	var host hostFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "facts",
		Short: "Print what environments depend on of a host",
		Long: `Prints the facts of the ComfyUI host that environments follow: its Python, torch and its build kind, the pager's
packages, ComfyUI's version, the GPU. They are read from files; torch is not imported and no driver is asked.

The JSON form can be given to build --host-facts on a machine that does not have the host.`,
		Example: `  comfy-supervisor facts --comfyui ~/ComfyUI
  comfy-supervisor facts --python ~/ComfyUI/.venv/bin/python --json > facts.json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			loaded, err := app.loadSettings(nil)
			if err != nil {
				return err
			}
			facts, err := host.read(command.Context(), app, loaded)
			if err != nil {
				return err
			}
			facts.Environ = nil // may hold secrets, and differs from shell to shell
			if asJSON {
				return app.printJSON(facts)
			}
			return app.printFacts(facts)
		},
	}
	host.register(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// printFacts prints facts as a table.
func (app *application) printFacts(facts envbuild.Facts) error {
	table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s\t%s\n", name, value) }
	row("stack", facts.Stack())
	row("python", strings.TrimSpace(facts.Python.Version+"  "+facts.Python.Executable))
	if facts.Python.BaseExecutable != facts.Python.Executable {
		row("made from", facts.Python.BaseExecutable)
	}
	if facts.ComfyUI.Directory != "" {
		row("comfyui", strings.TrimSpace(facts.ComfyUI.Version+"  "+facts.ComfyUI.Directory))
	}
	build, reason := facts.BuildKind()
	if build != "" {
		row("torch", fmt.Sprintf("%s, built for %s", facts.Torch.Version, facts.Torch.Build))
		row("torch here", fmt.Sprintf("%s: %s", build, reason))
	}
	for _, name := range slices.Concat(envbuild.HostPins, envbuild.TorchFamily[1:], []string{"numpy"}) {
		version := facts.Packages[name]
		if version == "" {
			version = "not installed"
		}
		row(name, version)
	}
	gpu := "none"
	if facts.GPU.Present {
		gpu = facts.GPU.Kind
		for _, device := range facts.GPU.Devices {
			gpu += fmt.Sprintf("  %s (%s)", device.Source, device.Kind)
		}
	}
	row("gpu", gpu)
	if facts.GPU.Driver != "" {
		row("gpu driver", facts.GPU.Driver)
	}
	row("platform", facts.Platform.OS+"/"+facts.Platform.Arch)
	return table.Flush()
}
