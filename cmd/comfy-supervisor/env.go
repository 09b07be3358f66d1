package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

func newEnvCommand(app *application) *cobra.Command {
	var host hostFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that make a ComfyUI use the supervisor",
		Long: `Prints one export line for each variable that a ComfyUI needs to find the supervisor and its environments, for
shells, containers and service units. The values are literal, nothing in them is for the shell to expand; a
PYTHONPATH that is set already is kept behind ours.`,
		Example: `  eval "$(comfy-supervisor env --comfyui ~/ComfyUI)"; python ~/ComfyUI/main.py
  comfy-supervisor env --python .venv/bin/python --json`,
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
			variables, err := app.hostVariables(loaded, facts)
			if err != nil {
				return err
			}
			if asJSON {
				values := map[string]string{}
				for _, one := range variables {
					values[one.name] = one.value
				}
				return app.printJSON(values)
			}
			for _, one := range variables {
				if strings.ContainsAny(one.value, "\n\x00") {
					return fmt.Errorf("%s can not be printed for a shell: its value has a line break (%q)", one.name, one.value)
				}
				fmt.Fprintf(app.stdout, "export %s=%s\n", one.name, shellQuoted(one.value))
			}
			return nil
		},
	}
	host.register(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// variable is one variable of a process's environment.
type variable struct{ name, value string }

// hostVariables are the variables that a ComfyUI process needs. What they point at is laid out.
func (app *application) hostVariables(loaded *settings.Settings, facts envbuild.Facts) ([]variable, error) {
	adapter, err := hostadapter.Layout(loaded.CacheDirectory.Value)
	if err != nil {
		return nil, fmt.Errorf("laying out the host's Python: %w", err)
	}
	facts.Environ = nil // the process that gets these variables brings its own
	file, err := envbuild.SaveFacts(filepath.Join(loaded.StateDirectory.Value, "facts"), facts)
	if err != nil {
		return nil, err
	}
	binary := loaded.Binary.Value
	if binary == "" {
		if binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding this program's own file: %w", err)
		}
	}
	variables := []variable{
		{"COMFY_SUPERVISOR_BINARY", binary},
		{"COMFY_SUPERVISOR_CACHE_DIR", loaded.CacheDirectory.Value}, // the adapter keeps its scans of packs there
		{"COMFY_SUPERVISOR_HOST_FACTS", file},
		{"COMFY_SUPERVISOR_SOCKET", loaded.Socket.Value},
		{"PYTHONPATH", joinPythonPath(adapter, loaded.CacheDirectory.Value, environmentVariable(app.environ, "PYTHONPATH"))},
	}
	for _, one := range []struct {
		variable
		ordinary bool
	}{ // what the adapter itself goes by
		{variable{"COMFY_SUPERVISOR_FALLBACK", loaded.Fallback.Value}, loaded.Fallback.IsDefault()},
		{variable{"COMFY_SUPERVISOR_KEEP_SCANNED", loaded.KeepScanned.Value}, loaded.KeepScanned.IsDefault()},
		{variable{"COMFY_SUPERVISOR_SCAN", loaded.Scan.Value.String()}, loaded.Scan.IsDefault()},
	} {
		if !one.ordinary {
			variables = append(variables, one.variable)
		}
	}
	own, err := fallbacks(loaded, facts)
	if err != nil {
		return nil, err
	}
	if own != "" {
		variables = append(variables, variable{"COMFY_SUPERVISOR_FALLBACKS", own})
	}
	return variables, nil
}

// fallbacks are the manifests of the host's packs whose fallback is not the general one, by path, as JSON; "" for none.
func fallbacks(loaded *settings.Settings, facts envbuild.Facts) (string, error) {
	if facts.ComfyUI.Directory == "" {
		return "", nil
	}
	work, _ := envbuild.Discover([]string{facts.ComfyUI.Directory}, facts.Platform) // what is wrong is said when they are built
	own := map[string]string{}
	for _, one := range work {
		if one.Parsed == nil {
			continue
		}
		if fallback := loaded.Limits(one.Found.Name, one.Parsed.Options).Fallback; *fallback != loaded.Fallback.Value {
			own[one.Found.File] = *fallback
		}
	}
	if len(own) == 0 {
		return "", nil
	}
	content, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("encoding the packs' fallbacks: %w", err)
	}
	return string(content), nil
}

// joinPythonPath puts our folder before what the caller has, without folders that an earlier env put there.
func joinPythonPath(adapter, cache, existing string) string {
	ours := filepath.Join(cache, "python") + string(filepath.Separator)
	folders := slices.DeleteFunc(filepath.SplitList(existing), func(folder string) bool {
		return folder == "" || folder == adapter || strings.HasPrefix(folder, ours)
	})
	return strings.Join(append([]string{adapter}, folders...), string(os.PathListSeparator))
}

// environmentVariable is a variable's value in NAME=value lines.
func environmentVariable(environ []string, name string) string {
	for _, line := range slices.Backward(environ) {
		if value, found := strings.CutPrefix(line, name+"="); found {
			return value
		}
	}
	return ""
}

// shellQuoted is a word of a POSIX shell that stands for the text and nothing else.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
