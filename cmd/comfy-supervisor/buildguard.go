package main

import (
	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

// newBuildGuardCommand is the process that stands between a build and the installer it runs; see envbuild.ServeGuard.
func newBuildGuardCommand(app *application) *cobra.Command {
	return &cobra.Command{
		Use:    envbuild.GuardCommand,
		Short:  "End an installer's process tree with the build that started it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if code := envbuild.ServeGuard(app.stdin); code != exitOK {
				return &exitError{code: code}
			}
			return nil
		},
	}
}
