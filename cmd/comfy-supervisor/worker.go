package main

import (
	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

func newWorkerCommand(*application) *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Serve as one worker's launcher (the supervisor starts it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { spawn.ServeLauncher() },
	}
}
