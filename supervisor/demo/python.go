package demo

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/hostadapter"
)

//go:embed host_script.py
var hostScript string

// failureInPython makes the same call from a Python process, which is what a ComfyUI is: there the exception has to be
// the real class.
func (r *run) failureInPython(ctx context.Context, step *Step, missing string) error {
	path, err := hostadapter.Layout(r.options.Build.Cache)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, r.host.python.Executable, "-c", hostScript, r.host.comfyui, environmentName, missing)
	command.Env = append(append([]string(nil), r.options.Environ...),
		"PYTHONPATH="+path, "COMFY_SUPERVISOR_SOCKET="+r.instance.socket, "PYTHONDONTWRITEBYTECODE=1")
	command.Dir = r.instance.folder
	var errors bytes.Buffer
	command.Stderr = &errors
	answer, err := command.Output()
	if err != nil {
		return fmt.Errorf("calling from Python: %w: %s", err, strings.TrimSpace(errors.String()))
	}
	var seen struct {
		Caught    bool     `json:"caught"`
		Class     string   `json:"class"`
		Message   string   `json:"message,omitempty"`
		Filename  string   `json:"filename"`
		Errno     int      `json:"errno"`
		Traceback string   `json:"traceback"`
		Workers   []string `json:"workers"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(answer), &seen); err != nil {
		return fmt.Errorf("decoding what the Python caller said, %q: %w", answer, err)
	}
	step.Seen["in_python"] = seen
	for _, id := range seen.Workers {
		r.remember([]api.Worker{{ID: id}})
	}
	switch {
	case !seen.Caught:
		return fmt.Errorf("`except FileNotFoundError` did not catch %s: %s", seen.Class, seen.Message)
	case seen.Filename != missing || seen.Errno == 0:
		return fmt.Errorf("the exception lost its attributes: file %q, errno %d", seen.Filename, seen.Errno)
	case !strings.Contains(seen.Traceback, "reporting.py"):
		return fmt.Errorf("the caller's traceback does not show the node: %q", seen.Traceback)
	}
	r.say(step, "in a Python host, `except FileNotFoundError` caught it, errno %d, with the worker's frames", seen.Errno)
	return nil
}
