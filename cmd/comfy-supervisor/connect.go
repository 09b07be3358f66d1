package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/comfy-supervisor/comfy-supervisor/manifest/settings"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// connect reaches the supervisor of the settings, and starts one when none runs if start is set.
func (app *application) connect(ctx context.Context, command *cobra.Command, start bool) (*api.Client, error) {
	loaded, err := app.loadSettings(givenSettings(command))
	if err != nil {
		return nil, err
	}
	options := api.Options{
		Socket:  loaded.Socket.Value,
		Role:    api.RoleOperator,
		Name:    "comfy-supervisor " + command.Name(),
		Environ: app.environ,
	}
	if start {
		launch, err := app.daemonLaunch(loaded, settingArguments(command))
		if err != nil {
			return nil, err
		}
		options.Start = launch
	}
	return api.Connect(ctx, options)
}

// daemonLaunch says how to start a supervisor with this program.
func (app *application) daemonLaunch(loaded *settings.Settings, arguments []string) (*api.Launch, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &api.Launch{
		Binary:    binary,
		Arguments: arguments,
		Environ:   app.environ,
		Log:       filepath.Join(loaded.StateDirectory.Value, "supervisor.log"),
	}, nil
}

// explain turns an error of the supervisor into what a person should read: the message and its remedy, then a
// traceback or the last output, where there is one.
func explain(err error) error {
	var failure *wire.Error
	if !errors.As(err, &failure) {
		return err
	}
	return &explainedError{failure}
}

// explainedError is a supervisor's error with everything that helps.
type explainedError struct{ failure *wire.Error }

func (e *explainedError) Unwrap() error { return e.failure }

func (e *explainedError) Error() string {
	text := e.failure.Message
	data := e.failure.Data
	if data.Nearest != "" && !containsWord(text, data.Nearest) {
		text += "; did you mean " + data.Nearest + "?"
	}
	if data.Remedy != "" {
		text += "\n" + data.Remedy
	}
	if exception := data.Exception; exception != nil && exception.Traceback != "" {
		text += "\n\n" + trimmed(exception.Traceback)
	} else if len(data.Stderr) > 0 {
		text += "\n\nits last output:"
		for _, line := range data.Stderr {
			text += "\n  " + line
		}
	}
	return text
}
