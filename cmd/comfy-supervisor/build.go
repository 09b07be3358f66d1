package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest"
	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
)

// buildFlags are the flags of build that are not about the host.
type buildFlags struct {
	host    hostFlags
	json    bool
	dryRun  bool
	quiet   bool
	jobs    int
	backend string
	uv      string
	pixi    string
	frozen  bool
	upgrade []string
	// beforeRun: the caller goes on to something else. What can be told apart is built whatever else was found, and what
	// is as it should be gets no line.
	beforeRun bool
}

func newBuildCommand(app *application) *cobra.Command {
	var flags buildFlags
	command := &cobra.Command{
		Use:   "build [PACK_DIR...]",
		Short: "Build the environments that packs' manifests describe",
		Long: `Builds one environment for each comfy-env.toml of the packs named, or of every pack in the custom_nodes of
--comfyui. What has not changed is left alone; a build that fails leaves the environment of before usable.

Exit code: 0 built or unchanged, 1 something failed, 2 wrong command line or manifest.`,
		Example: `  comfy-supervisor build --comfyui ~/ComfyUI
  comfy-supervisor build custom_nodes/ComfyUI-Sample --python .venv/bin/python
  comfy-supervisor build --comfyui ~/ComfyUI --dry-run
  comfy-supervisor build --comfyui ~/ComfyUI --upgrade=numpy`,
		RunE: func(command *cobra.Command, packs []string) error {
			return app.build(command.Context(), flags, packs)
		},
	}
	flags.host.register(command)
	command.Flags().BoolVar(&flags.json, "json", false, "print one JSON object a line: events, then the results")
	command.Flags().BoolVar(&flags.dryRun, "dry-run", false, "print the plans and what would change; build nothing")
	command.Flags().BoolVar(&flags.quiet, "quiet", false, "print errors only")
	command.Flags().IntVar(&flags.jobs, "jobs", 0, "environments built side by side (default: one for each processor, at most 4)")
	command.Flags().BoolVar(&flags.frozen, "frozen", false, "build from lock files alone; a manifest without one fails")
	command.Flags().StringSliceVar(&flags.upgrade, "upgrade", nil, "take newer versions of all packages, or with --upgrade=NAME of those named")
	command.Flags().Lookup("upgrade").NoOptDefVal = "*"
	command.Flags().StringVar(&flags.backend, "backend", "", "auto, uv or pixi")
	command.Flags().StringVar(&flags.uv, "uv", "", "path of uv (default: looked for, and fetched where there is none)")
	command.Flags().StringVar(&flags.pixi, "pixi", "", "path of pixi (default: looked for, and fetched where there is none)")
	return command
}

// gcPercent lets a build's heap grow to about 32 MiB before the first collection.
const gcPercent = 800

// build carries the command out.
func (app *application) build(ctx context.Context, flags buildFlags, packs []string) error {
	if len(packs) == 0 && flags.host.comfyui == "" {
		return usageErrorf("nothing to build: name pack folders, or a ComfyUI whose packs are meant with --comfyui")
	}
	if flags.jobs < 0 {
		return usageErrorf("--jobs %d: at least one environment is built at a time", flags.jobs)
	}
	if flags.frozen && len(flags.upgrade) > 0 {
		return usageErrorf("--frozen keeps every version and --upgrade takes newer ones; give one of them")
	}
	// Of an unchanged tree many small files are read and nothing is kept for long: collecting a few megabytes of garbage
	// meanwhile takes longer than all the rest.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	loaded, err := app.loadSettings(map[string]string{"backend": flags.backend, "uv": flags.uv, "pixi": flags.pixi})
	if err != nil {
		return err
	}
	folders, err := packFolders(packs)
	if err != nil {
		return err
	}
	facts, err := flags.host.read(ctx, app, loaded)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		folders = []string{facts.ComfyUI.Directory}
	}
	work, problems := envbuild.Discover(folders, facts.Platform)
	printDiagnostics(app.stderr, problems)
	for _, one := range work {
		printDiagnostics(app.stderr, one.Diagnostics)
	}
	if manifest.HasErrors(problems) && !flags.beforeRun {
		return &exitError{code: exitUsage, err: fmt.Errorf("nothing was built: the packs can not be told apart or read")}
	}
	if len(work) == 0 {
		if len(packs) == 0 {
			return app.reportBuild(flags, nil, 0) // a ComfyUI without isolated packs is no mistake
		}
		return usageErrorf("no %s in %s; an isolated pack has one in its nodes folder", manifest.EnvironmentFile, strings.Join(packs, ", "))
	}
	progress := newProgress(app, flags.json, flags.quiet)
	configuration := buildConfiguration(app, loaded, flags.jobs, func(event envbuild.Event) {
		if !flags.beforeRun || event.Kind != envbuild.EventUnchanged {
			progress.event(event)
		}
	})
	configuration.Frozen, configuration.Upgrade = flags.frozen, flags.upgrade
	builder, err := envbuild.NewBuilder(configuration, facts)
	if err != nil {
		return err
	}
	defer builder.Close()
	if flags.dryRun {
		return app.dryRun(builder, flags, work)
	}
	begin := time.Now()
	results := builder.Build(ctx, work)
	progress.close()
	return app.reportBuild(flags, results, time.Since(begin))
}

// buildConfiguration maps the settings to what a build needs.
func buildConfiguration(app *application, loaded *settings.Settings, jobs int, report envbuild.Reporter) envbuild.Configuration {
	backend := loaded.Backend.Value
	if backend == "auto" {
		backend = ""
	}
	return envbuild.Configuration{
		Root:  loaded.EnvironmentRoot.Value,
		Cache: loaded.CacheDirectory.Value,
		UV:    loaded.UV.Value,
		Pixi:  loaded.Pixi.Value, PixiReleases: loaded.PixiReleases.Value,
		Endpoints: envbuild.Endpoints{TorchIndex: loaded.TorchIndex.Value, CUDAWheels: loaded.CUDAWheelsIndex.Value,
			Backend: backend},
		Environ: app.environ,
		Jobs:    jobs,
		Report:  report,
	}
}

// dryRun prints plans.
func (app *application) dryRun(builder *envbuild.Builder, flags buildFlags, work []envbuild.Work) error {
	type planned struct {
		Environment string `json:"environment"`
		Manifest    string `json:"manifest"`
		envbuild.Forecast
		Plan  *envbuild.Plan `json:"plan,omitempty"`
		Error string         `json:"error,omitempty"`
	}
	var plans []planned
	code := exitOK
	for _, one := range work {
		entry := planned{Environment: one.Found.Name, Manifest: one.Found.File}
		plan, err := builder.Plan(one)
		if err != nil {
			entry.Error = err.Error()
			code = exitFailed
			if manifest.HasErrors(one.Diagnostics) {
				code = exitUsage
			}
		} else {
			entry.Plan = plan
			entry.Forecast = builder.Check(plan)
		}
		plans = append(plans, entry)
	}
	if flags.json {
		if err := app.printJSON(plans); err != nil {
			return err
		}
	} else {
		for _, entry := range plans {
			printPlan(app.stdout, entry.Plan, entry.Environment, entry.Forecast, entry.Error)
		}
	}
	if code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// printPlan prints one plan for a person.
func printPlan(out io.Writer, plan *envbuild.Plan, name string, forecast envbuild.Forecast, failure string) {
	if plan == nil {
		fmt.Fprintf(out, "%s: %s\n", name, failure)
		return
	}
	state := "unchanged"
	switch {
	case forecast.Reuse != "":
		state = "to be used where it is, " + forecast.Reuse
	case !forecast.Unchanged:
		state = "to be built"
	}
	fmt.Fprintf(out, "%s (%s): %s\n", name, plan.Stack, state)
	for _, reason := range forecast.Why {
		fmt.Fprintf(out, "  because %s\n", reason)
	}
	for _, line := range slices.Concat(forecast.Lines, plan.Lines) {
		fmt.Fprintf(out, "  %s\n", line)
	}
	for _, requirement := range plan.Recipe.Requirements {
		from := ""
		if source, found := plan.Recipe.Sources[envbuild.RequirementName(requirement)]; found {
			from = "  from " + source.String()
		}
		fmt.Fprintf(out, "  %s%s\n", requirement, from)
	}
}

// reportBuild prints what became of a build and turns it into an exit code.
func (app *application) reportBuild(flags buildFlags, results []envbuild.Result, took time.Duration) error {
	counts := map[string]int{}
	for _, result := range results {
		counts[result.Outcome]++
	}
	if flags.json {
		for i := range results {
			results[i].Plan = nil
		}
		if results == nil {
			results = []envbuild.Result{}
		}
		line := struct {
			Event        string            `json:"event"`
			Environments []envbuild.Result `json:"environments"`
			Seconds      float64           `json:"seconds"`
		}{"done", results, took.Seconds()}
		if err := json.NewEncoder(app.stdout).Encode(line); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
	} else if settled := counts[envbuild.OutcomeReused] + counts[envbuild.OutcomeUnchanged]; !flags.quiet && (!flags.beforeRun || settled < len(results)) {
		var parts []string
		for _, outcome := range []string{envbuild.OutcomeBuilt, envbuild.OutcomeUnpacked, envbuild.OutcomeReused, envbuild.OutcomeUnchanged,
			envbuild.OutcomeFailed, envbuild.OutcomeInvalid, envbuild.OutcomeCancelled} {
			if counts[outcome] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", counts[outcome], outcome))
			}
		}
		if len(parts) == 0 {
			parts = []string{"no isolated packs, nothing to build"}
		}
		fmt.Fprintf(app.stdout, "%s (%s%s)\n", strings.Join(parts, ", "), took.Round(time.Millisecond), diskText(results))
	}
	switch {
	case counts[envbuild.OutcomeFailed]+counts[envbuild.OutcomeCancelled] > 0:
		return &exitError{code: exitFailed}
	case counts[envbuild.OutcomeInvalid] > 0:
		return &exitError{code: exitUsage}
	}
	return nil
}

// diskText says how much disk the environments that were built take.
func diskText(results []envbuild.Result) string {
	var built []string
	for _, result := range results {
		if result.Outcome == envbuild.OutcomeBuilt || result.Outcome == envbuild.OutcomeUnpacked {
			built = append(built, result.Revision)
		}
	}
	if len(built) == 0 {
		return ""
	}
	total, exclusive := envbuild.DiskUsage(built...)
	return fmt.Sprintf(", %s on disk, of these %s not shared with uv's cache or another environment",
		size(total), size(exclusive))
}

// printDiagnostics prints what is wrong with manifests. Notes are left to check: they are about what a plan's
// own lines say.
func printDiagnostics(out io.Writer, diagnostics []manifest.Diagnostic) {
	for _, one := range diagnostics {
		if one.Severity < manifest.Warning {
			continue
		}
		fmt.Fprintf(out, "%s:%d:%d: %s: %s", one.File, one.Line, one.Column, one.Severity, one.Message)
		if one.Fix != "" {
			fmt.Fprintf(out, "; %s", one.Fix)
		}
		fmt.Fprintln(out)
	}
}
