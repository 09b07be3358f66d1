package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

// Stage is what a demonstration works on, for whoever has another use for it: a Python, a miniature ComfyUI with one
// pack, the pack's environment, and a private supervisor.
type Stage struct{ run *run }

// Prepare sets a stage up. Options.Picture is not used. On an error nothing is left.
func Prepare(ctx context.Context, options Options, pack Pack) (*Stage, error) {
	s := &Stage{newRun(options, pack)}
	for _, step := range []struct {
		name, claim string
		do          func(context.Context, *Step) error
	}{
		{"python", "an interpreter that ComfyUI could run on", s.run.findPython},
		{"environment", "a manifest becomes an environment", s.run.build},
		{"supervisor", "a private supervisor starts", s.run.start},
	} {
		if err := s.run.step(ctx, step.name, step.claim, step.do); err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
	}
	return s, nil
}

// Close stops everything and checks that nothing is left. It finishes when the context has ended, too.
func (s *Stage) Close(ctx context.Context) error {
	if s.run.instance == nil {
		return nil
	}
	return s.run.step(context.WithoutCancel(ctx), "end", "everything is stopped and nothing is left", s.run.end)
}

// PythonVersion is the version of the interpreter.
func (s *Stage) PythonVersion() string { return s.run.host.python.Version }

// SupervisorPID is the private supervisor's process.
func (s *Stage) SupervisorPID() int { return s.run.instance.started.PID }

// Status asks the supervisor, and notes its workers for the search for what is left.
func (s *Stage) Status(ctx context.Context) (*api.Status, error) {
	status, err := s.run.client.Status(ctx, api.StatusParams{})
	if err == nil {
		s.run.remember(status.Workers)
	}
	return status, err
}

// Host is a Python program with the client at hand, which finds the supervisor by itself. Its arguments are the
// ComfyUI's folder and the environment's name. It runs in the environment's own interpreter, so that it has the pack's
// packages.
func (s *Stage) Host(ctx context.Context, program string) (*exec.Cmd, error) {
	path, err := hostadapter.Layout(s.run.options.Build.Cache)
	if err != nil {
		return nil, err
	}
	environments, err := s.run.client.Environments(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(environments, func(e api.Environment) bool { return e.Prefix == s.run.environment.Prefix })
	if at < 0 {
		return nil, fmt.Errorf("the supervisor does not know the environment in %s", s.run.environment.Prefix)
	}
	command := exec.CommandContext(ctx, environments[at].Python, "-c", program, s.run.host.comfyui, s.run.pack.Environment())
	command.Env = append(append([]string(nil), s.run.options.Environ...),
		"PYTHONPATH="+path, "COMFY_SUPERVISOR_SOCKET="+s.run.instance.socket, "PYTHONDONTWRITEBYTECODE=1")
	command.Dir = s.run.instance.folder
	return command, nil
}
