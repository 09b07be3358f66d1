package spawn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// errDetached is what go-plugin's wait for a launcher ends with when this process lets go of it.
var errDetached = errors.New("let go of the launcher")

// ownLaunchers are the PIDs of the children that a runner waits for: a subreaper must leave their status to it.
var ownLaunchers sync.Map

// launcherRunner starts a launcher for go-plugin. It implements runner.Runner; go-plugin's own would follow the PID
// and give the launcher our standard input.
type launcherRunner struct {
	command  *exec.Cmd
	folder   string
	stdout   io.ReadCloser
	detached chan struct{}
	watched  chan struct{} // closed when watch is set
	watch    *Watch
	once     sync.Once
	said     firstWords // on standard error
}

// firstWords keeps the begin of what a launcher says on standard error, for when it ends before it can be asked.
type firstWords struct {
	io.ReadCloser
	mu    sync.Mutex
	words []byte
}

// firstWordsBytes is room for a few lines.
const firstWordsBytes = 1 << 10

// Read implements io.Reader.
func (f *firstWords) Read(buffer []byte) (int, error) {
	count, err := f.ReadCloser.Read(buffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.words = append(f.words, buffer[:min(count, firstWordsBytes-len(f.words))]...)
	return count, err
}

// line is the first line.
func (f *firstWords) line() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(f.words)), "\n")
	return strings.ToValidUTF8(line, "?")
}

// explain adds to the error of a start what the launcher said, and what to do where that is known.
func (r *launcherRunner) explain(err error) error {
	line := r.said.line()
	switch {
	case line == "":
	case strings.Contains(err.Error(), "Failed to read any lines"): // go-plugin's words
		err = fmt.Errorf("it ended at once: %s (%s)", line, r.Diagnose(context.Background()))
	default:
		err = fmt.Errorf("%w: it said: %s", err, line)
	}
	// Go's own words for a thread that could not be made.
	if strings.Contains(line, "pthread_create failed") || strings.Contains(line, "failed to create new OS thread") {
		err = fmt.Errorf("%w: %s", err, raiseProcessLimit)
	}
	return err
}

// raiseProcessLimit is what to do when there can be no more processes.
const raiseProcessLimit = "the limit of processes and threads is reached: end some, or raise it (ulimit -u, or pids.max of the control group)"

// explainFork adds to the error of a process's start what to do.
func explainFork(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: %s", err, raiseProcessLimit)
	}
	return err
}

// startTurns are those of starting launchers: a thread waits until the new process runs its program, or its record is on
// the disk.
var startTurns = NewTurns(4)

// Start implements runner.Runner.
func (r *launcherRunner) Start(context.Context) error {
	var err error
	if r.stdout, err = r.command.StdoutPipe(); err != nil {
		return err
	}
	if r.said.ReadCloser, err = r.command.StderrPipe(); err != nil {
		return err
	}
	startTurns.Do(func() { err = r.command.Start() })
	if err != nil {
		return explainFork(err) // it names the program
	}
	ownLaunchers.Store(r.command.Process.Pid, struct{}{})
	r.watch, err = WatchProcess(Process{PID: r.command.Process.Pid})
	if err != nil { // it has ended already, and is a zombie of ours
		err = errors.Join(err, r.command.Wait())
		ownLaunchers.Delete(r.command.Process.Pid)
		return err
	}
	close(r.watched)
	return nil
}

// Wait implements runner.AttachedRunner.
func (r *launcherRunner) Wait(context.Context) error {
	select {
	case <-r.watch.Done():
		err := r.command.Wait()
		ownLaunchers.Delete(r.command.Process.Pid)
		return err
	case <-r.detached:
		return errDetached
	}
}

// Kill implements runner.AttachedRunner.
func (r *launcherRunner) Kill(context.Context) error {
	select {
	case <-r.watched:
		return r.watch.Kill()
	default:
		return nil
	}
}

// close ends the observation of the launcher, if it had begun.
func (r *launcherRunner) close() {
	if r.watch != nil {
		r.watch.Close()
	}
}

// detach ends Wait.
func (r *launcherRunner) detach() { r.once.Do(func() { close(r.detached) }) }

// Stdout implements runner.Runner.
func (r *launcherRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr implements runner.Runner.
func (r *launcherRunner) Stderr() io.ReadCloser {
	if r.said.ReadCloser == nil {
		return nil
	}
	return &r.said
}

// Name implements runner.Runner.
func (r *launcherRunner) Name() string { return "launcher" }

// ID implements runner.AttachedRunner.
func (r *launcherRunner) ID() string {
	if r.command.Process == nil {
		return ""
	}
	return strconv.Itoa(r.command.Process.Pid)
}

// Diagnose implements runner.Runner.
func (r *launcherRunner) Diagnose(context.Context) string {
	return "the launcher's log is " + filepath.Join(r.folder, launcherLogName)
}

// PluginToHost implements runner.AddrTranslator: a launcher names its socket relative to its folder, so that the path
// fits into a socket address.
func (r *launcherRunner) PluginToHost(network, address string) (string, string, error) {
	return network, hostAddress(r.folder, network, address), nil
}

// HostToPlugin implements runner.AddrTranslator.
func (r *launcherRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// attachedRunner follows a launcher that another process started. It implements runner.AttachedRunner with a handle,
// where go-plugin's own trusts the PID and polls.
type attachedRunner struct {
	launcherRunner
}

func newAttachedRunner(watch *Watch, folder string) *attachedRunner {
	return &attachedRunner{launcherRunner{folder: folder, watch: watch, detached: make(chan struct{})}}
}

// Wait implements runner.AttachedRunner.
func (r *attachedRunner) Wait(context.Context) error {
	select {
	case <-r.watch.Done():
		return nil
	case <-r.detached:
		return errDetached
	}
}

// Kill implements runner.AttachedRunner.
func (r *attachedRunner) Kill(context.Context) error { return r.watch.Kill() }

// ID implements runner.AttachedRunner.
func (r *attachedRunner) ID() string { return strconv.Itoa(r.watch.Process().PID) }

func hostAddress(folder, network, address string) string {
	if network == "unix" && !filepath.IsAbs(address) {
		return filepath.Join(folder, address)
	}
	return address
}
