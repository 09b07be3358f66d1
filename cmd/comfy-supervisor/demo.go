package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/demo"
)

// programStart is as early as this package can tell the time.
var programStart = time.Now()

type demoFlags struct {
	json   bool
	python string
	out    string
}

func newDemoCommand(app *application) *cobra.Command {
	var flags demoFlags
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole path on a pack of our own, and check every claim",
		Long: `Builds an environment from a manifest, starts a private supervisor, calls nodes that paint, count, fail, wait
and compute, cancels one, kills the worker of another, and stops everything. The host is a miniature ComfyUI without
torch; needed are Python 3.10 or newer and, the first time, a package index.

Exit code: 0 every claim held, 1 one did not.`,
		Example: `  comfy-supervisor demo
  comfy-supervisor demo --python python3.12 --out picture.png
  comfy-supervisor demo --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return app.demo(command.Context(), flags)
		},
	}
	command.Flags().BoolVar(&flags.json, "json", false, "print what was seen as JSON")
	command.Flags().StringVar(&flags.python, "python", "", "the interpreter to use (default: the first of PATH that is new enough)")
	command.Flags().StringVar(&flags.out, "out", "", "file for the picture (default: demo.png in the cache folder)")
	return command
}

// demo carries the command out.
func (app *application) demo(ctx context.Context, flags demoFlags) error {
	options, loaded, err := app.privateInstance(flags.python)
	if err != nil {
		return err
	}
	if flags.out == "" {
		flags.out = filepath.Join(loaded.CacheDirectory.Value, "demo.png")
	}
	display := newDemoDisplay(app, flags.json)
	options.Picture, options.Report = flags.out, display.event
	outcome, err := demo.Run(ctx, options)
	display.close()
	if flags.json {
		err = errors.Join(err, app.printJSON(outcome))
	} else {
		err = errors.Join(err, display.summary(app, outcome))
	}
	if err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	return nil
}

// privateInstance is what a private supervisor and its host start from, with an interpreter or, where that is empty, the
// first that fits; and the settings.
func (app *application) privateInstance(python string) (demo.Options, *settings.Settings, error) {
	loaded, err := app.loadSettings(nil)
	if err != nil {
		return demo.Options{}, nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return demo.Options{}, nil, fmt.Errorf("finding this program's file: %w", err)
	}
	// What the user's own supervisor and host are told is not for a private one.
	environ := slices.DeleteFunc(slices.Clone(app.environ), func(variable string) bool {
		return strings.HasPrefix(variable, "COMFY_SUPERVISOR_")
	})
	return demo.Options{
		Began: programStart, Python: python, Build: buildConfiguration(app, loaded, 0, nil), Binary: binary, Environ: environ,
	}, loaded, nil
}

// demoDisplay shows a demonstration while it runs.
type demoDisplay struct {
	mutex    sync.Mutex
	out      io.Writer
	quiet    bool
	terminal bool
	build    *progress
	bar      bool // a progress bar is on the last line
	count    int
}

func newDemoDisplay(app *application, quiet bool) *demoDisplay {
	display := &demoDisplay{out: app.stdout, quiet: quiet, build: newProgress(app, false, quiet)}
	if file, ok := app.stdout.(*os.File); ok && !quiet {
		display.terminal = term.IsTerminal(int(file.Fd()))
	}
	return display
}

// event shows one event. It may be called from several goroutines.
func (d *demoDisplay) event(event demo.Event) {
	if d.quiet {
		return
	}
	if event.Kind == demo.StepBuild {
		d.build.event(*event.Build) // it draws with a lock of its own
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch event.Kind {
	case demo.StepBegan:
		d.count++
		fmt.Fprintf(d.out, "%2d  %s: %s\n", d.count, event.Step, event.Text)
	case demo.StepLine:
		d.clearBar()
		fmt.Fprintf(d.out, "      %s\n", event.Text)
	case demo.StepProgress:
		d.showBar(api.Progress{Value: event.Value, Max: event.Max})
	case demo.StepEnded:
		d.clearBar()
		d.build.close()
		verdict := "holds"
		if !event.Ended.Holds {
			verdict = "DOES NOT HOLD"
		}
		fmt.Fprintf(d.out, "      %s (%.2f s)\n", verdict, event.Ended.Seconds)
	}
}

// showBar draws a call's progress: in place on a terminal, else a line for each report.
func (d *demoDisplay) showBar(progress api.Progress) {
	const width = 72
	line := "      " + drawBar(progress, width)
	if !d.terminal {
		fmt.Fprintln(d.out, line)
		return
	}
	fmt.Fprintf(d.out, "\r\x1b[K%s", line)
	d.bar = true
}

func (d *demoDisplay) clearBar() {
	if d.bar {
		fmt.Fprint(d.out, "\n")
		d.bar = false
	}
}

func (d *demoDisplay) close() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.clearBar()
	d.build.close()
}

// summary prints the status table and the verdict.
func (d *demoDisplay) summary(app *application, outcome *demo.Outcome) error {
	if outcome.Status != nil {
		fmt.Fprintln(d.out)
		if err := app.printStatus(outcome.Status, false, ""); err != nil {
			return err
		}
		fmt.Fprintln(d.out)
	}
	held := 0
	for _, step := range outcome.Steps {
		if step.Holds {
			held++
		}
	}
	fmt.Fprintf(d.out, "%d of %d claims held, %.2f s in all", held, len(outcome.Steps), outcome.Seconds)
	if outcome.FirstAnswerSeconds > 0 {
		fmt.Fprintf(d.out, "; the first call was answered %.2f s after the start", outcome.FirstAnswerSeconds)
	}
	fmt.Fprintln(d.out)
	if outcome.Picture != "" {
		fmt.Fprintf(d.out, "picture: %s\n", outcome.Picture)
	}
	return nil
}
