package spawn

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// child is the Python process as its launcher has it.
type child struct {
	process Process
	watch   *Watch
	command *exec.Cmd
	frames  frameConn // the launcher's end of the connection that carries frames; nil where it is lent
	lent    lentEnd   // the same where it is lent to the supervisor
	stdout  *os.File
	stderr  *os.File
	reaped  chan struct{} // closed by reap: the thread that started Python may end
}

// frameConn is the launcher's end of the connection to Python.
type frameConn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// startChild starts Python with standard input from nowhere, its output into pipes and one more descriptor or pair of
// handles for frames, whose numbers it finds in its arguments.
func startChild(request *launcherpb.StartRequest, worker, cgroup string, lends bool) (*child, error) {
	c := &child{reaped: make(chan struct{})}
	inherited, err := c.connect(lends)
	if err != nil {
		return nil, fmt.Errorf("making the connection to Python: %w", err)
	}
	defer inherited.close()
	fail := func(err error) (*child, error) {
		c.closePipes()
		c.disconnect()
		return nil, err
	}
	c.command = &exec.Cmd{
		Path: request.GetPython(),
		Args: slices.Concat([]string{request.GetPython()}, request.GetOptions(), []string{request.GetProgram()},
			request.GetArguments(), inherited.arguments()),
		Env: childEnvironment(request.GetVariables(), worker),
		Dir: request.GetDirectory(),
	}
	var outputs [2]*os.File
	for index, ourEnd := range []**os.File{&c.stdout, &c.stderr} {
		reader, writer, err := os.Pipe()
		if err != nil {
			return fail(fmt.Errorf("making a pipe for Python's output: %w", err))
		}
		defer writer.Close()
		*ourEnd, outputs[index] = reader, writer
	}
	c.command.Stdout, c.command.Stderr = outputs[0], outputs[1]
	release, err := c.prepare(inherited, cgroup)
	if err != nil {
		return fail(err)
	}
	defer release()
	if err := c.startOnOwnThread(); err != nil {
		return fail(fmt.Errorf("starting the interpreter %s: %w", request.GetPython(), explainFork(err)))
	}
	// Python is not reaped before reap is called, so its PID is its own.
	c.watch, err = watchChild(c.command.Process.Pid)
	if err != nil {
		_ = c.command.Process.Kill()
		c.reap()
		return fail(fmt.Errorf("the interpreter %s ended at once: %w", request.GetPython(), err))
	}
	c.process = c.watch.Process()
	return c, nil
}

// connect makes the connection that carries frames and returns Python's end.
func (c *child) connect(lends bool) (inherited inheritedEnds, err error) {
	if lends {
		c.lent, inherited, err = lentConnection()
	} else {
		c.frames, inherited, err = frameConnection()
	}
	return inherited, err
}

// disconnect closes this process's end of it.
func (c *child) disconnect() {
	if c.frames != nil {
		_ = c.frames.Close()
	}
	c.lent.close()
}

// startOnOwnThread starts Python from a thread that lives until Python has been reaped: the parent-death signal is sent
// when the thread that started the process ends, not when the process does.
func (c *child) startOnOwnThread() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.command.Start()
		started <- err
		if err == nil {
			<-c.reaped
		}
	}()
	return <-started
}

// reap takes Python's exit status; to be called once, after its end.
func (c *child) reap() *os.ProcessState {
	_ = c.command.Wait() // the state says it all
	close(c.reaped)
	if c.watch != nil {
		c.watch.Close()
	}
	return c.command.ProcessState
}

// closePipes closes the launcher's ends of Python's output.
func (c *child) closePipes() {
	for _, pipe := range []*os.File{c.stdout, c.stderr} {
		if pipe != nil {
			_ = pipe.Close()
		}
	}
}

// childEnvironment is Python's environment: what the caller planned, without anything that is between go-plugin, a
// supervisor and its launcher, and with the worker's ID.
func childEnvironment(variables []string, worker string) []string {
	environment := make([]string, 0, len(variables)+1)
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		if name != WorkerVariable && !slices.Contains(pluginVariables, name) {
			environment = append(environment, variable)
		}
	}
	return append(environment, WorkerVariable+"="+worker)
}
