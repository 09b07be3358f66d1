package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/testdata"
)

// Options say where the demonstration works.
type Options struct {
	// Began is when the program started; the first answer is timed from there.
	Began time.Time
	// Python is the interpreter to use; empty: the first one of PATH that ComfyUI could run on.
	Python string
	// Build is how environments are built; its Report is not used.
	Build envbuild.Configuration
	// Picture is the file that the picture is written to.
	Picture string
	// Binary is the program whose `serve` is the private supervisor, Environ the environment that it and the workers
	// start from.
	Binary  string
	Environ []string
	// Report hears what happens, on several goroutines. May be nil.
	Report func(Event)
}

// Kinds of events.
const (
	StepBegan    = "began"
	StepLine     = "line"
	StepProgress = "progress"
	StepBuild    = "build"
	StepEnded    = "ended"
)

// Event is something that happens in a step.
type Event struct {
	Kind string
	Step string
	Text string
	// Value and Max are a call's progress.
	Value, Max float64
	Build      *envbuild.Event
	Ended      *Step
}

// Step is one claim and what was seen of it.
type Step struct {
	Name    string         `json:"name"`
	Claim   string         `json:"claim"`
	Holds   bool           `json:"holds"`
	Seconds float64        `json:"seconds"`
	Seen    map[string]any `json:"seen,omitempty"`
	Lines   []string       `json:"lines,omitempty"`
	Error   string         `json:"error,omitempty"`
}

// Outcome is everything that the demonstration saw.
type Outcome struct {
	Holds bool   `json:"holds"` // every claim
	Steps []Step `json:"steps"`
	// FirstAnswerSeconds are from the program's start until the first call was answered.
	FirstAnswerSeconds float64     `json:"first_answer_seconds,omitempty"`
	Seconds            float64     `json:"seconds"`
	Picture            string      `json:"picture,omitempty"`
	Status             *api.Status `json:"status,omitempty"` // before everything was stopped
	Workers            []string    `json:"workers"`          // the ids of all that there were
}

// run is a demonstration under way.
type run struct {
	options Options
	pack    Pack
	outcome Outcome

	host        host
	environment envbuild.Result
	instance    *instance
	client      *api.Client
	// What there was, for the search for what it left.
	remembering sync.Mutex
	seen        map[string]struct{} // workers' ids
	pids        map[int]struct{}    // of launchers and Pythons
}

func newRun(options Options, pack Pack) *run {
	if options.Report == nil {
		options.Report = func(Event) {}
	}
	return &run{options: options, pack: pack, seen: make(map[string]struct{}), pids: make(map[int]struct{})}
}

// Run carries the demonstration out. The outcome is complete as far as it came; the error names the first claim that
// does not hold.
func Run(ctx context.Context, options Options) (*Outcome, error) {
	r := newRun(options, Pack{Folder: testdata.DemoPack, Name: "demo"})
	err := r.steps(ctx)
	if r.instance != nil {
		// An interrupt must not keep the end from being a clean one; it has its own time limits.
		err = errors.Join(err, r.step(context.WithoutCancel(ctx), "end",
			"everything is stopped and nothing is left: no process, socket, memory file or folder", r.end))
	}
	r.outcome.Workers = slices.Sorted(maps.Keys(r.seen))
	r.outcome.Holds = err == nil
	r.outcome.Seconds = time.Since(options.Began).Seconds()
	return &r.outcome, err
}

// steps are the claims, in order, up to the first that does not hold.
func (r *run) steps(ctx context.Context) error {
	for _, step := range []struct {
		name, claim string
		do          func(context.Context, *Step) error
	}{
		{"python", "an interpreter that ComfyUI could run on", r.findPython},
		{"environment", "a manifest becomes an environment with the host's pins", r.build},
		{"supervisor", "a private supervisor starts", r.start},
		{"first call", "a node runs in the environment, with the manifest's variables", r.report},
		{"picture", "an array comes back through a memory file", r.picture},
		{"progress", "a node's progress arrives while it runs", r.progress},
		{"error", "a node's FileNotFoundError arrives as FileNotFoundError, with the worker's traceback", r.failure},
		{"side by side", "two async calls of one worker overlap", r.sideBySide},
		{"cancel", "a long call is cancelled and its worker lives on", r.cancel},
		{"kill", "a worker killed in mid-call is a clear error, and the same call succeeds in its replacement", r.kill},
		{"status", "the supervisor accounts for all of it", r.status},
	} {
		if err := r.step(ctx, step.name, step.claim, step.do); err != nil {
			return err
		}
	}
	return nil
}

// step carries one step out and keeps what came of it.
func (r *run) step(ctx context.Context, name, claim string, do func(context.Context, *Step) error) error {
	step := Step{Name: name, Claim: claim, Seen: map[string]any{}}
	r.options.Report(Event{Kind: StepBegan, Step: name, Text: claim})
	begin := time.Now()
	err := ctx.Err()
	if err == nil {
		err = do(ctx, &step)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	step.Seconds = time.Since(begin).Seconds()
	step.Holds = err == nil
	if err != nil {
		step.Error = err.Error()
		err = fmt.Errorf("%s, step %q: %w", r.pack.Name, name, err)
	}
	r.outcome.Steps = append(r.outcome.Steps, step)
	r.options.Report(Event{Kind: StepEnded, Step: name, Ended: &step})
	return err
}

// say reports and keeps a line about a step.
func (r *run) say(step *Step, format string, arguments ...any) {
	line := fmt.Sprintf(format, arguments...)
	step.Lines = append(step.Lines, line)
	r.options.Report(Event{Kind: StepLine, Step: step.Name, Text: line})
}
