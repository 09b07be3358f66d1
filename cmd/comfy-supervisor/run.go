package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

func newRunCommand(app *application) *cobra.Command {
	var noBuild bool
	var comfyui string
	command := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARGUMENT...]",
		Short: "Start ComfyUI with its isolated packs in workers",
		Long: `Builds what environments of the packs are missing or stale, starts the supervisor if none runs, and then runs the
command that starts ComfyUI, as if it had been typed by itself: terminal, signals and exit code are ComfyUI's own.
Whatever goes wrong before that is said, and ComfyUI starts all the same.`,
		Example: `  comfy-supervisor run -- python main.py
  comfy-supervisor run --no-build -- .venv/bin/python main.py --cpu --port 8190`,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) == 0 {
				return usageErrorf("nothing to run: give the command that starts ComfyUI, as in comfy-supervisor run -- python main.py")
			}
			return nil
		},
		RunE: func(command *cobra.Command, words []string) error {
			return app.runHost(command.Context(), words, comfyui, !noBuild)
		},
	}
	command.Flags().SetInterspersed(false) // what follows the command is the command's own
	command.Flags().BoolVar(&noBuild, "no-build", false, "build nothing; packs whose environment is missing say so when used")
	command.Flags().StringVar(&comfyui, "comfyui", "", "ComfyUI's folder (default: that of the script in the command)")
	return command
}

// hostCommand is a command line that starts ComfyUI, taken apart.
type hostCommand struct {
	program string   // resolved
	options []string // the interpreter's own
	script  string   // "" when the command is not an interpreter with a script
	rest    []string
}

// parseHostCommand finds the interpreter, its options and the script in a command line.
func parseHostCommand(words []string) (hostCommand, error) {
	program, err := exec.LookPath(words[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return hostCommand{}, fmt.Errorf("starting ComfyUI: %w", err)
	}
	command := hostCommand{program: program, rest: words[1:]}
	if !strings.HasPrefix(strings.ToLower(filepath.Base(program)), "py") {
		return command, nil // a script of the user's own, say
	}
	for i := 0; i < len(command.rest); i++ {
		word := command.rest[i]
		switch {
		case word == "-c" || word == "-m" || word == "-":
			return command, nil // no script that could be run in another way
		case word == "-X" || word == "-W":
			i++
		case !strings.HasPrefix(word, "-"):
			command.options, command.script, command.rest = command.rest[:i:i], word, command.rest[i+1:]
			return command, nil
		}
	}
	return command, nil
}

// comfyuiFolder is the folder of the ComfyUI that a command starts; empty when it does not say.
func (c hostCommand) comfyuiFolder(given string) string {
	folder := given
	if folder == "" && c.script != "" {
		folder = filepath.Dir(c.script)
	}
	if folder == "" {
		folder = "."
	}
	if _, err := os.Stat(filepath.Join(folder, "folder_paths.py")); err != nil && given == "" {
		return ""
	}
	if absolute, err := filepath.Abs(folder); err == nil {
		return absolute
	}
	return folder
}

// baseDirectory is what follows --base-directory; its packs count as well.
func (c hostCommand) baseDirectory() string {
	for i, word := range c.rest {
		if value, found := strings.CutPrefix(word, "--base-directory="); found {
			return value
		}
		if word == "--base-directory" && i+1 < len(c.rest) {
			return c.rest[i+1]
		}
	}
	return ""
}

// runHost prepares what can be prepared and becomes the host.
func (app *application) runHost(ctx context.Context, words []string, comfyui string, build bool) error {
	command, err := parseHostCommand(words)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	loaded, err := app.loadSettings(nil)
	if err != nil {
		app.warn("%v; ComfyUI starts without the supervisor", err)
		return app.become(command.program, words, app.environ)
	}
	host := hostFlags{comfyui: command.comfyuiFolder(comfyui)}
	if command.script != "" {
		host.python = command.program
	}
	if host.comfyui == "" {
		app.warn("%s does not say where ComfyUI is; packs are built when --comfyui names its folder", strings.Join(words, " "))
	} else if build {
		app.buildBeforeRun(ctx, host, command)
	}
	environ := app.environ
	facts, err := host.read(ctx, app, loaded)
	if err != nil {
		app.warn("%v; ComfyUI starts without the supervisor", err)
		return app.become(command.program, words, environ)
	}
	variables, err := app.hostVariables(loaded, facts)
	if err != nil {
		app.warn("%v; ComfyUI starts without the supervisor", err)
		return app.become(command.program, words, environ)
	}
	for _, one := range variables {
		environ = append(environ, one.name+"="+one.value)
	}
	app.startSupervisor(ctx, loaded)
	if command.script != "" {
		words, environ = app.reachAdapter(ctx, command, words, environ, loaded)
	}
	return app.become(command.program, words, lastOfEach(environ))
}

// warn says what goes wrong without stopping.
func (app *application) warn(format string, arguments ...any) {
	fmt.Fprintf(app.stderr, "comfy-supervisor: "+format+"\n", arguments...)
}

// buildBeforeRun builds the environments of all packs; its output goes to standard error, which is not ComfyUI's.
func (app *application) buildBeforeRun(ctx context.Context, host hostFlags, command hostCommand) {
	aside := *app
	aside.stdout = app.stderr
	flags := buildFlags{host: host, beforeRun: true}
	var packs []string
	if base := command.baseDirectory(); base != "" {
		packs = []string{host.comfyui, base}
	}
	if err := aside.build(ctx, flags, packs); err != nil {
		var exit *exitError
		if errors.As(err, &exit) && exit.err == nil { // the build has said what failed
			err = errors.New("not every environment could be built")
		}
		app.warn("%v; ComfyUI starts all the same", err)
	}
}

// supervisorStart is how long a supervisor may take to come up before ComfyUI starts without waiting for it.
const supervisorStart = 15 * time.Second

// startSupervisor starts a supervisor if none runs, so that the adapter finds it at once.
func (app *application) startSupervisor(ctx context.Context, loaded *settings.Settings) {
	launch, err := app.daemonLaunch(loaded, nil)
	if err != nil {
		return // the adapter starts one, or says why not
	}
	ctx, cancel := context.WithTimeout(ctx, supervisorStart)
	defer cancel()
	client, err := api.Connect(ctx, api.Options{
		Socket: loaded.Socket.Value, Role: api.RoleOperator, Name: "comfy-supervisor run", Environ: app.environ, Start: launch,
	})
	if err != nil {
		app.warn("%v; ComfyUI starts all the same", err)
		return
	}
	_ = client.Close() // it was only asked to be there
}

// ignoresPath is what the probe prints where PYTHONPATH has no effect.
const ignoresPath = "ignored"

// reachAdapter makes sure that ComfyUI finds the adapter: through PYTHONPATH, or, where the interpreter ignores that
// (a ._pth file beside it, the options -E and -I), through a script that inserts the path and runs ComfyUI's.
func (app *application) reachAdapter(ctx context.Context, command hostCommand, words, environ []string, loaded *settings.Settings) ([]string, []string) {
	adapter, err := hostadapter.Layout(loaded.CacheDirectory.Value)
	if err != nil {
		return words, environ // it has been laid out a moment ago
	}
	const probe = "import os, sys; print('reached' if sys.argv[1] in sys.path else '" + ignoresPath + "')"
	asked := exec.CommandContext(ctx, command.program, append(append([]string{}, command.options...), "-c", probe, adapter)...)
	asked.Env = lastOfEach(environ)
	said, err := asked.Output()
	if err != nil || strings.TrimSpace(string(said)) != ignoresPath {
		return words, environ // an interpreter that can not even do this says so itself
	}
	script, err := filepath.Abs(command.script)
	if err != nil {
		return words, environ
	}
	launch := filepath.Join(adapter, "comfyui_adapter", "launch.py")
	// Not an argument: ComfyUI-Manager restarts with sys.argv, and ComfyUI knows no further argument.
	environ = append(environ, "COMFY_SUPERVISOR_MAIN="+script)
	words = append(append(append([]string{words[0]}, command.options...), launch), command.rest...)
	return words, environ
}

// lastOfEach keeps the last value of each variable.
func lastOfEach(environ []string) []string {
	at := map[string]int{}
	var kept []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if i, found := at[name]; found && name != "" {
			kept[i] = line
			continue
		}
		at[name] = len(kept)
		kept = append(kept, line)
	}
	return kept
}
