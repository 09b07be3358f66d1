package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

func newInitCommand(app *application) *cobra.Command {
	var root, print bool
	command := &cobra.Command{
		Use:   "init [FOLDER]",
		Short: "Write a commented manifest to begin with",
		Long: `Writes a comfy-env.toml into a pack's nodes folder, or into FOLDER when that is one of the folders in which
manifests are looked for (<pack>/nodes and <pack>/nodes/<folder>). A manifest that is there is never replaced.`,
		Example: `  comfy-supervisor init custom_nodes/ComfyUI-Sample
  comfy-supervisor init nodes/gpu
  comfy-supervisor init --root`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if print {
				_, err := app.stdout.Write(manifest.StarterFor(root))
				return err
			}
			folder := "."
			if len(arguments) > 0 {
				folder = arguments[0]
			}
			file, err := manifest.WriteStarter(folder, root)
			if err != nil {
				return err
			}
			fmt.Fprintf(app.stdout, "%s written; check it with: comfy-supervisor check %s\n", file, file)
			return nil
		},
	}
	command.Flags().BoolVar(&root, "root", false, "write a comfy-env-root.toml, which describes the pack as a whole")
	command.Flags().BoolVar(&print, "print", false, "print the manifest and write nothing")
	return command
}
