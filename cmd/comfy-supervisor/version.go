package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/memory/probe"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// versionReport is what this binary is made of.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	CGO      bool   `json:"cgo"`
	Protocol int    `json:"protocol"`
	Cards    string `json:"cards"` // how this build reads graphics cards, or why it does not
}

func newVersionReport() versionReport {
	report := versionReport{
		Version:  "(development)",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Protocol: wire.ProtocolVersion,
		Cards:    probe.CardSupport,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return report
	}
	if build.Main.Version != "" && build.Main.Version != "(devel)" {
		report.Version = build.Main.Version
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			report.Revision = setting.Value
		case "vcs.modified":
			report.Modified = setting.Value == "true"
		case "CGO_ENABLED":
			report.CGO = setting.Value == "1"
		}
	}
	return report
}

func newVersionCommand(app *application) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and what is compiled in",
		Example: "  comfy-supervisor version\n  comfy-supervisor version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			report := newVersionReport()
			if asJSON {
				return app.printJSON(report)
			}
			table := tabwriter.NewWriter(app.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(table, "comfy-supervisor\t%s\n", report.Version)
			if report.Revision != "" {
				changed := ""
				if report.Modified {
					changed = " (changed)"
				}
				fmt.Fprintf(table, "revision\t%s%s\n", report.Revision, changed)
			}
			fmt.Fprintf(table, "go\t%s\n", report.Go)
			fmt.Fprintf(table, "platform\t%s\n", report.Platform)
			fmt.Fprintf(table, "cgo\t%t\n", report.CGO)
			fmt.Fprintf(table, "protocol\t%d\n", report.Protocol)
			fmt.Fprintf(table, "cards\t%s\n", report.Cards)
			return table.Flush()
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}
