package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// checkFlags are the flags of check.
type checkFlags struct {
	json     bool
	quiet    bool
	fix      bool
	diff     bool
	platform string
	schema   string
}

func newCheckCommand(app *application) *cobra.Command {
	var flags checkFlags
	command := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Say what is wrong with manifests, where, and what to write instead",
		Long: `Checks manifests without building anything. A PATH is a comfy-env.toml or comfy-env-root.toml, a pack, a
custom_nodes folder, a whole ComfyUI, or any folder that holds manifests; without one, the current folder.

Errors refuse a file, warnings mean that it works but not as written, notes tell what the host decides.

Exit code: 0 no errors, 1 errors, 2 wrong command line.`,
		Example: `  comfy-supervisor check ~/ComfyUI
  comfy-supervisor check --fix custom_nodes/ComfyUI-Sample
  comfy-supervisor check --json nodes/comfy-env.toml
  comfy-supervisor check --schema > comfy-env.schema.json`,
		RunE: func(_ *cobra.Command, paths []string) error {
			return app.check(flags, paths)
		},
	}
	command.Flags().BoolVar(&flags.json, "json", false, "print JSON: an array with one object a file")
	command.Flags().BoolVar(&flags.quiet, "quiet", false, "print errors only")
	command.Flags().BoolVar(&flags.fix, "fix", false, "show and make the changes that have exactly one right answer")
	command.Flags().BoolVar(&flags.diff, "diff", false, "show what --fix would change, and change nothing")
	command.Flags().StringVar(&flags.platform, "platform", manifest.HostPlatform(), "platform to check for, such as linux-64, win-64 or osx-arm64")
	command.Flags().StringVar(&flags.schema, "schema", "", "print the JSON schema of comfy-env.toml (--schema=root: of comfy-env-root.toml) and check nothing")
	command.Flags().Lookup("schema").NoOptDefVal = "environment"
	return command
}

// check carries the command out.
func (app *application) check(flags checkFlags, paths []string) error {
	if flags.schema != "" {
		return app.printSchema(flags.schema, paths)
	}
	if flags.fix && flags.diff {
		return usageErrorf("--fix changes files, --diff changes none: give one of them")
	}
	if !manifest.KnownPlatform(flags.platform) {
		return usageErrorf("--platform %s: there is no such platform; give one such as linux-64, win-64 or osx-arm64", flags.platform)
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	reports, err := manifest.Check(flags.platform, paths)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if flags.fix || flags.diff {
		if err := app.showChanges(manifest.Changes(flags.platform, reports), flags); err != nil {
			return err
		}
	}
	if flags.fix {
		if reports, err = manifest.Check(flags.platform, paths); err != nil {
			return err
		}
	}
	if flags.json {
		err = app.printJSON(manifest.JSON(reports))
	} else {
		err = app.printReports(reports, paths, flags.quiet)
	}
	if err != nil {
		return err
	}
	for _, report := range reports {
		if !report.OK() {
			return &exitError{code: exitFailed}
		}
	}
	return nil
}

func (app *application) printSchema(which string, paths []string) error {
	if len(paths) > 0 || which != "environment" && which != "root" {
		return usageErrorf("--schema prints the schema of comfy-env.toml, --schema=root that of comfy-env-root.toml; both take no paths")
	}
	schema, err := manifest.Schema(which == "root")
	if err != nil {
		return err
	}
	_, err = app.stdout.Write(schema)
	return err
}

// showChanges prints what changes, and with --fix writes it. JSON keeps standard output for itself.
func (app *application) showChanges(changes []manifest.Change, flags checkFlags) error {
	out := app.stdout
	if flags.json {
		out = app.stderr
	}
	for _, change := range changes {
		if _, err := out.Write(diff.Diff(change.File, change.Old, change.File+" (fixed)", change.New)); err != nil {
			return err
		}
		if !flags.fix {
			continue
		}
		if err := manifest.Rewrite(change.File, change.New); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s put right\n", change.File, count(len(change.Fixed), "mistake"))
	}
	return nil
}

// printReports prints diagnostics for people, and a line that sums up.
func (app *application) printReports(reports []manifest.Report, paths []string, quiet bool) error {
	if len(reports) == 0 {
		fmt.Fprintf(app.stderr, "no %s or %s in %s\n", manifest.EnvironmentFile, manifest.RootFile, strings.Join(paths, ", "))
		return nil
	}
	style := manifest.Style{Color: app.colorful(app.stdout)}
	refused := 0
	var found [manifest.Error + 1]int
	for _, report := range reports {
		if !report.OK() {
			refused++
		}
		for _, d := range report.Diagnostics {
			found[d.Severity]++
			if quiet && d.Severity < manifest.Error {
				continue
			}
			if err := style.Write(app.stdout, d); err != nil {
				return err
			}
			fmt.Fprintln(app.stdout)
		}
	}
	if quiet && refused == 0 {
		return nil
	}
	_, err := fmt.Fprintf(app.stdout, "%s checked, %d refused: %s, %s, %s\n", count(len(reports), "file"), refused,
		count(found[manifest.Error], "error"), count(found[manifest.Warning], "warning"), count(found[manifest.Note], "note"))
	return err
}

// count writes a number with its noun.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

// colorful reports whether an output is a terminal whose user wants colours.
func (app *application) colorful(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return false
	}
	for _, variable := range app.environ {
		if name, value, _ := strings.Cut(variable, "="); name == "NO_COLOR" && value != "" || variable == "TERM=dumb" {
			return false
		}
	}
	return true
}
