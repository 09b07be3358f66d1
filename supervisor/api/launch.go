package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Launch says how to start a supervisor that outlives this process: its own session, working directory /, no input,
// its output in a log.
type Launch struct {
	Binary string
	// Arguments follow `serve`: flags for the runtime directory and the like.
	Arguments []string
	// Environ is the daemon's environment; workers never see it.
	Environ []string
	// Log is the file that the daemon's output is appended to.
	Log string
}

// Started is a supervisor that this process started.
type Started struct {
	PID     int
	process *os.Process
}

// Wait waits for the supervisor's end. Only the process that started it can.
func (s *Started) Wait() error {
	if s.process == nil {
		return errors.New("this supervisor was started by another process")
	}
	state, err := s.process.Wait()
	if err != nil {
		return fmt.Errorf("waiting for the supervisor %d: %w", s.PID, err)
	}
	if !state.Success() {
		return fmt.Errorf("the supervisor %d ended: %s", s.PID, state)
	}
	return nil
}

// Run starts the supervisor and returns when it accepts clients. An error says what the daemon said, and where its log
// is.
func (l Launch) Run(ctx context.Context) (*Started, error) {
	if err := os.MkdirAll(filepath.Dir(l.Log), 0o700); err != nil {
		return nil, fmt.Errorf("starting the supervisor: making its log's folder: %w", err)
	}
	log, err := os.OpenFile(l.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting the supervisor: opening its log: %w", err)
	}
	defer log.Close()
	ready, announce, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the supervisor: %w", err)
	}
	defer ready.Close()
	command := exec.Command(l.Binary)
	descriptor := inherit(command, announce)
	command.Args = append([]string{l.Binary, "serve", "--ready-fd", descriptor}, l.Arguments...)
	command.Env = l.Environ
	command.Dir = rootDirectory()
	command.Stdout, command.Stderr = log, log
	detach(command)
	err = command.Start()
	_ = announce.Close() // the daemon has its own copy
	if err != nil {
		return nil, fmt.Errorf("starting the supervisor %s: %w", l.Binary, err)
	}
	line, err := readLine(ctx, ready)
	var pid int
	if _, scanErr := fmt.Sscanf(line, "ready %d", &pid); scanErr == nil {
		return &Started{PID: pid, process: command.Process}, nil
	}
	if ctx.Err() != nil {
		_ = command.Process.Release() // it may still come up; it is nobody's to kill
		return nil, fmt.Errorf("starting the supervisor: %w; its log is %s", ctx.Err(), l.Log)
	}
	waitErr := command.Wait()
	if text, said := strings.CutPrefix(line, "error "); said {
		return nil, fmt.Errorf("starting the supervisor: %s", text)
	}
	return nil, fmt.Errorf("starting the supervisor: it ended before it was ready: %w; its log is %s", errors.Join(err, waitErr), l.Log)
}

// readLine reads one line; the context's end closes the reader.
func readLine(ctx context.Context, reader io.ReadCloser) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = reader.Close() })
	defer stop()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil // what it said, or that it said nothing, is the message
	}
	return strings.TrimSuffix(line, "\n"), err
}
