package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/demo"
)

//go:embed host_script.py
var hostScript string

// host is a Python process that calls nodes and measures. Each has a session, and so a worker, of its own.
type host struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	errors  bytes.Buffer
}

func startHost(ctx context.Context, stage *demo.Stage) (*host, error) {
	command, err := stage.Host(ctx, hostScript)
	if err != nil {
		return nil, err
	}
	h := &host{command: command}
	command.Stderr = &h.errors
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if h.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting a measuring host: %w", err)
	}
	h.answers = json.NewDecoder(stdout)
	return h, nil
}

// ask has the host carry a command out and decodes its answer.
func (h *host) ask(command map[string]any, answer any) error {
	line, err := json.Marshal(command)
	if err == nil {
		_, err = h.stdin.Write(append(line, '\n'))
	}
	if err == nil {
		err = h.answers.Decode(answer)
	}
	if err != nil { // it has ended, or what it says makes no sense: then it has to
		_ = h.command.Process.Kill()
		_ = h.command.Wait()
		return fmt.Errorf("measuring %v: %w: %s", command["do"], err, strings.TrimSpace(h.errors.String()))
	}
	return nil
}

// end ends the host, and with it its session and its worker.
func (h *host) end() error {
	err := h.stdin.Close()
	if waitErr := h.command.Wait(); waitErr != nil && h.command.ProcessState == nil {
		err = errors.Join(err, waitErr)
	} else if !h.command.ProcessState.Success() {
		err = errors.Join(err, fmt.Errorf("a measuring host ended with %v: %s", h.command.ProcessState, strings.TrimSpace(h.errors.String())))
	}
	return err
}
