package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// Sizes of the calls.
const (
	waitSeconds = 0.5
	// shortRounds take a good second on a small machine, endlessRounds hours: those are cancelled.
	shortRounds   = 400
	endlessRounds = 1_000_000
)

// call calls a node of the demonstration pack; the result must be closed.
func (r *run) call(ctx context.Context, node string, inputs map[string]any, progress func(api.Progress)) (*api.Result, error) {
	result, err := r.client.Call(ctx, api.Call{Environment: environmentName, Node: node, Inputs: inputs, Progress: progress})
	if err != nil {
		return nil, err
	}
	r.remember([]api.Worker{{ID: result.Worker, PythonPID: result.PythonPID}})
	return result, nil
}

// values calls a node and decodes its outputs.
func (r *run) values(ctx context.Context, node string, inputs map[string]any, progress func(api.Progress), outputs ...any) (*api.Result, error) {
	result, err := r.call(ctx, node, inputs, progress)
	if err != nil {
		return nil, err
	}
	defer result.Close()
	var values []json.RawMessage
	if err := result.Decode(&values); err != nil {
		return nil, err
	}
	if len(values) != len(outputs) {
		return nil, fmt.Errorf("%s returned %d outputs, want %d", node, len(values), len(outputs))
	}
	for i, value := range values {
		if err := json.Unmarshal(value, outputs[i]); err != nil {
			return nil, fmt.Errorf("decoding output %d of %s: %w", i, node, err)
		}
	}
	return result, nil
}

// report makes the first call: where does the node run?
func (r *run) report(ctx context.Context, step *Step) error {
	var seen struct {
		PID      int                `json:"pid"`
		Python   string             `json:"python"`
		Prefix   string             `json:"prefix"`
		Greeting string             `json:"greeting"`
		Threads  string             `json:"threads"`
		Packages map[string]*string `json:"packages"`
		Torch    bool               `json:"torch imported"`
	}
	result, err := r.values(ctx, "DemoReport", nil, nil, &seen)
	if err != nil {
		return err
	}
	r.outcome.FirstAnswerSeconds = time.Since(r.options.Began).Seconds()
	step.Seen["report"] = seen
	step.Seen["seconds_since_start"] = r.outcome.FirstAnswerSeconds
	r.say(step, "process %d, Python %s, %s", seen.PID, seen.Python, seen.Prefix)
	r.say(step, "answered %.2f s after the program's start", r.outcome.FirstAnswerSeconds)
	switch {
	case seen.PID != result.PythonPID || seen.PID == os.Getpid():
		return fmt.Errorf("the node ran in process %d, the supervisor's worker is %d", seen.PID, result.PythonPID)
	case !sameFolder(seen.Prefix, r.environment.Prefix):
		return fmt.Errorf("the node ran in %s, the environment is %s", seen.Prefix, r.environment.Prefix)
	case seen.Greeting != "set by the manifest" || seen.Threads != "1":
		return fmt.Errorf("the manifest's variables arrived as %q and %q", seen.Greeting, seen.Threads)
	case seen.Torch:
		return errors.New("torch was imported, which neither the pack nor the host has")
	}
	for _, name := range []string{"comfy-aimdo", "comfy-kitchen"} {
		version, want := seen.Packages[name], r.host.facts.Packages[name]
		if version == nil || *version != want {
			return fmt.Errorf("the environment has another %s than the host's %s: %v", name, want, version)
		}
		r.say(step, "%s %s, as the host has it", name, want)
	}
	return nil
}

func sameFolder(a, b string) bool {
	first, err := filepath.EvalSymlinks(a)
	if err != nil {
		return false
	}
	second, err := filepath.EvalSymlinks(b)
	return err == nil && first == second
}

// progress calls a node that counts and hears how far it is.
func (r *run) progress(ctx context.Context, step *Step) error {
	const steps = 8
	var mutex sync.Mutex
	var heard []float64
	var counted int
	_, err := r.values(ctx, "DemoProgress", map[string]any{"steps": steps, "pause": 0.12}, func(progress api.Progress) {
		mutex.Lock()
		defer mutex.Unlock()
		heard = append(heard, progress.Value)
		r.options.Report(Event{Kind: StepProgress, Step: step.Name, Value: progress.Value, Max: progress.Max})
	}, &counted)
	if err != nil {
		return err
	}
	mutex.Lock()
	defer mutex.Unlock()
	step.Seen["reports"] = heard
	r.say(step, "%d reports while it ran", len(heard))
	if counted != steps || len(heard) < 3 || heard[len(heard)-1] != steps {
		return fmt.Errorf("counted to %d, reports %v: want the last to be %d", counted, heard, steps)
	}
	return nil
}

// failure calls a node whose file is not there.
func (r *run) failure(ctx context.Context, step *Step) error {
	missing := filepath.Join(r.instance.folder, "no such file.txt")
	_, err := r.call(ctx, "DemoReadFile", map[string]any{"path": missing}, nil)
	failed, ok := errors.AsType[*wire.Error](err)
	if !ok || failed.Data.Kind != wire.KindNodeRaised || failed.Data.Exception == nil {
		return fmt.Errorf("reading a missing file ended otherwise than by the node's exception: %w", orNothing(err))
	}
	exception := failed.Data.Exception
	step.Seen["class"] = exception.Module + "." + exception.Qualname
	step.Seen["message"], step.Seen["traceback"] = exception.Message, exception.Traceback
	r.say(step, "%s.%s: %s", exception.Module, exception.Qualname, exception.Message)
	switch {
	case exception.Module != "builtins" || exception.Qualname != "FileNotFoundError":
		return fmt.Errorf("the node's FileNotFoundError arrived as %s.%s", exception.Module, exception.Qualname)
	case !strings.Contains(exception.Message, filepath.Base(missing)):
		return fmt.Errorf("its message %q does not name the file", exception.Message)
	case !strings.Contains(exception.Traceback, "reporting.py"):
		return fmt.Errorf("its traceback does not show the node: %q", exception.Traceback)
	}
	return r.failureInPython(ctx, step, missing)
}

// sideBySide makes two calls that wait, at once.
func (r *run) sideBySide(ctx context.Context, step *Step) error {
	type span struct{ began, ended float64 }
	var spans [2]span
	var problems [2]error
	var group sync.WaitGroup
	begin := time.Now()
	for i := range spans {
		group.Go(func() {
			_, problems[i] = r.values(ctx, "DemoWait", map[string]any{"seconds": waitSeconds}, nil, &spans[i].began, &spans[i].ended)
		})
	}
	group.Wait()
	took := time.Since(begin).Seconds()
	if err := errors.Join(problems[:]...); err != nil {
		return err
	}
	overlap := math.Min(spans[0].ended, spans[1].ended) - math.Max(spans[0].began, spans[1].began)
	step.Seen["seconds_together"], step.Seen["overlap_seconds"] = took, overlap
	r.say(step, "twice %.1f s of waiting took %.2f s together", waitSeconds, took)
	if overlap <= 0 { // how long it took depends on what else the machine does
		return fmt.Errorf("the second call began %.3f s after the first had ended", -overlap)
	}
	return nil
}

// cancel stops a call that would take hours, once it computes.
func (r *run) cancel(ctx context.Context, step *Step) error {
	before, err := r.current(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	computing := make(chan struct{})
	asked := make(chan time.Time, 1)
	go func() {
		select {
		case <-computing:
		case <-ctx.Done():
		}
		asked <- time.Now()
		stop()
	}()
	var once sync.Once
	_, err = r.call(ctx, "DemoEstimatePi", map[string]any{"rounds": endlessRounds, "seed": 0}, func(api.Progress) {
		once.Do(func() { close(computing) })
	})
	answered := time.Now()
	stop()
	latency := answered.Sub(<-asked)
	failed, ok := errors.AsType[*wire.Error](err)
	if !ok || failed.Data.Kind != wire.KindCancelled {
		return fmt.Errorf("the cancelled call ended otherwise: %w", orNothing(err))
	}
	after, err := r.current(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	step.Seen["answer"], step.Seen["seconds_until_ended"] = failed.Message, latency.Seconds()
	r.say(step, "ended %.0f ms after it was asked to: %s", float64(latency)/float64(time.Millisecond), failed.Message)
	if after.PythonPID != before.PythonPID || after.Generation != before.Generation {
		return fmt.Errorf("the worker was %d of generation %d and is %d of generation %d: cancelling ended it",
			before.PythonPID, before.Generation, after.PythonPID, after.Generation)
	}
	return nil
}

// kill ends a worker's Python while it computes, then makes the same call again.
func (r *run) kill(ctx context.Context, step *Step) error {
	before, err := r.current(ctx)
	if err != nil {
		return err
	}
	victim, err := os.FindProcess(before.PythonPID)
	if err != nil {
		return fmt.Errorf("finding the worker's process %d: %w", before.PythonPID, err)
	}
	inputs := map[string]any{"rounds": shortRounds, "seed": 1}
	var once sync.Once
	var killErr error
	_, err = r.call(ctx, "DemoEstimatePi", inputs, func(api.Progress) {
		once.Do(func() { killErr = victim.Kill() })
	})
	if killErr != nil {
		return fmt.Errorf("killing the worker's process %d: %w", before.PythonPID, killErr)
	}
	failed, ok := errors.AsType[*wire.Error](err)
	if !ok || failed.Data.Kind != wire.KindWorkerDied {
		return fmt.Errorf("the call of a killed worker ended otherwise: %w", orNothing(err))
	}
	step.Seen["error"], step.Seen["signal"], step.Seen["remedy"] = failed.Message, failed.Data.Signal, failed.Data.Remedy
	r.say(step, "%s", failed.Message)
	r.say(step, "what to do: %s", failed.Data.Remedy)

	var pi float64
	var darts int64
	begin := time.Now()
	result, err := r.values(ctx, "DemoEstimatePi", inputs, nil, &pi, &darts)
	if err != nil {
		return fmt.Errorf("the same call again: %w", err)
	}
	step.Seen["generation"], step.Seen["pi"], step.Seen["darts"] = result.Generation, pi, darts
	step.Seen["second_try_seconds"] = time.Since(begin).Seconds()
	r.say(step, "the same call in generation %d, process %d: pi is about %.4f", result.Generation, result.PythonPID, pi)
	switch {
	case result.Generation != before.Generation+1 || result.PythonPID == before.PythonPID:
		return fmt.Errorf("process %d of generation %d answered, after %d of generation %d had been killed",
			result.PythonPID, result.Generation, before.PythonPID, before.Generation)
	case math.Abs(pi-math.Pi) > 0.01:
		return fmt.Errorf("%d darts say that pi is %v", darts, pi)
	case killedBySignal && failed.Data.Signal != "SIGKILL":
		return fmt.Errorf("the error names the signal %q, not SIGKILL", failed.Data.Signal)
	}
	return nil
}

// current asks which worker answers now.
func (r *run) current(ctx context.Context) (*api.Result, error) {
	return r.values(ctx, "DemoProgress", map[string]any{"steps": 1, "pause": 0}, nil, new(int))
}

// status takes the books down and holds them against what happened.
func (r *run) status(ctx context.Context, step *Step) error {
	status, err := r.client.Status(ctx, api.StatusParams{})
	if err != nil {
		return err
	}
	r.outcome.Status = status
	r.remember(status.Workers)
	for _, worker := range status.Workers {
		if worker.Environment != environmentName || worker.Session != r.client.Hello.Session {
			continue
		}
		step.Seen["generation"], step.Seen["state"] = worker.Generation, worker.State
		step.Seen["calls"], step.Seen["crashes"] = worker.Calls, worker.Crashes
		if worker.Generation != 2 || worker.Crashes != 1 {
			return fmt.Errorf("status counts generation %d after %d crashes, want 2 after 1", worker.Generation, worker.Crashes)
		}
		return nil
	}
	return fmt.Errorf("status does not know the worker of %s", environmentName)
}

// orNothing names the absence of an error, so that it can be wrapped.
func orNothing(err error) error {
	if err == nil {
		return errors.New("it returned a value")
	}
	return err
}
