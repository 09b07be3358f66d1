package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/demo"
	"github.com/comfy-supervisor/comfy-supervisor/testdata"
)

// Options say how to measure. Options.Stage.Report hears of the stage; Report of what is being measured.
type Options struct {
	Stage demo.Options
	// Quick takes seconds in place of a minute: fewer samples, smaller arrays, less patience.
	Quick  bool
	Report func(measuring string)
}

// plan is how much of everything is measured.
type plan struct {
	calls      int
	sizes      []int64
	rounds     int
	idle       int           // workers
	watch      time.Duration // of the idle ones
	freshCalls int
}

func (o Options) plan() plan {
	const mebibyte = 1 << 20
	if o.Quick {
		return plan{calls: 200, sizes: []int64{mebibyte, 16 * mebibyte}, rounds: 5, idle: 2, watch: time.Second, freshCalls: 1}
	}
	return plan{calls: 3000, sizes: []int64{mebibyte, 64 * mebibyte, 256 * mebibyte}, rounds: 11, idle: 8, watch: 10 * time.Second, freshCalls: 5}
}

// Result is what was measured. Times are in seconds, medians where nothing else is said.
type Result struct {
	System  string    `json:"system"` // operating system and architecture
	Cores   int       `json:"cores"`
	Python  string    `json:"python"`
	Calls   Calls     `json:"calls"`
	Arrays  []Arrays  `json:"arrays"`
	Starts  Starts    `json:"starts"`
	Memory  []Process `json:"memory"`
	Idle    Idle      `json:"idle"`
	Seconds float64   `json:"seconds"` // of the whole measurement
}

// Calls are those of a node that returns its one small input.
type Calls struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Least float64 `json:"least_seconds"`
}

// Arrays are calls with numpy arrays of one size.
type Arrays struct {
	Bytes int64 `json:"bytes"`
	// In: the node reads an array of the host's. Out: it makes one. Both: it makes one out of the host's.
	In   float64 `json:"in_seconds"`
	Out  float64 `json:"out_seconds"`
	Both float64 `json:"both_seconds"`
	// ByReference: an array that a worker made goes into a worker and comes back, and nobody copies it.
	ByReference float64 `json:"by_reference_seconds"`
}

// Starts are first calls, which start their worker.
type Starts struct {
	First float64 `json:"first_seconds"` // of the supervisor's first worker
	Fresh float64 `json:"fresh_seconds"` // of a later one
	// SideBySide is what as many workers as there are cores take when they start at once, until the last one has
	// answered; Alone what the slowest of them takes by itself.
	Workers    int     `json:"workers"`
	SideBySide float64 `json:"side_by_side_seconds"`
	Alone      float64 `json:"slowest_alone_seconds"`
}

// Process is the memory of one process.
type Process struct {
	Process  string `json:"process"`                 // supervisor, launcher or worker
	Private  int64  `json:"private_bytes,omitempty"` // what nobody shares with it and it has written; Linux
	Resident int64  `json:"resident_bytes"`
}

// Idle is what workers cost that have nothing to do: they, their launchers and the supervisor.
type Idle struct {
	Workers int     `json:"workers"`
	Seconds float64 `json:"seconds"` // watched
	Share   float64 `json:"share"`   // of one core
}

// bench is a measurement under way.
type bench struct {
	options Options
	plan    plan
	stage   *demo.Stage
	hosts   []*host
	result  Result
}

// Run measures.
func Run(ctx context.Context, options Options) (result *Result, err error) {
	if options.Report == nil {
		options.Report = func(string) {}
	}
	b := &bench{options: options, plan: options.plan()}
	begin := time.Now()
	options.Report("the stage: a Python, an environment, a private supervisor")
	b.stage, err = demo.Prepare(ctx, options.Stage, demo.Pack{Folder: testdata.BenchPack, Name: "bench"})
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, host := range b.hosts {
			err = errors.Join(err, host.end())
		}
		err = errors.Join(err, b.stage.Close(ctx))
	}()
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"the first call of a worker", b.measureStart},
		{"calls with a small value", b.measureCalls},
		{"memory", b.measureMemory}, // before arrays are in anybody's pool
		{"calls with arrays", b.measureArrays},
		{"workers that start side by side", b.measureSideBySide},
		{"idle workers", b.measureIdle},
	} {
		options.Report(part.name)
		if err := part.measure(ctx); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", part.name, err)
		}
	}
	b.result.System, b.result.Cores = runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU()
	b.result.Python = b.stage.PythonVersion()
	b.result.Seconds = time.Since(begin).Seconds()
	return &b.result, nil
}

// grow makes sure that there are so many hosts.
func (b *bench) grow(ctx context.Context, count int) error {
	for len(b.hosts) < count {
		host, err := startHost(ctx, b.stage)
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, host)
	}
	return nil
}

// start has a host replace its worker and returns what the first call took.
func (b *bench) start(host *host) (float64, error) {
	var answer struct{ Seconds float64 }
	err := host.ask(map[string]any{"do": "start"}, &answer)
	return answer.Seconds, err
}

func (b *bench) measureStart(ctx context.Context) (err error) {
	if err := b.grow(ctx, 1); err != nil {
		return err
	}
	if b.result.Starts.First, err = b.start(b.hosts[0]); err != nil {
		return err
	}
	b.result.Starts.Fresh, err = b.medianStart(b.hosts[0])
	return err
}

func (b *bench) medianStart(host *host) (float64, error) {
	var took []float64
	for range b.plan.freshCalls {
		seconds, err := b.start(host)
		if err != nil {
			return 0, err
		}
		took = append(took, seconds)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func (b *bench) measureCalls(context.Context) error {
	b.result.Calls.Count = b.plan.calls
	var answer struct{ P50, P99, Least float64 }
	err := b.hosts[0].ask(map[string]any{"do": "latency", "calls": b.plan.calls}, &answer)
	b.result.Calls.P50, b.result.Calls.P99, b.result.Calls.Least = answer.P50, answer.P99, answer.Least
	return err
}

func (b *bench) measureArrays(context.Context) error {
	for _, size := range b.plan.sizes {
		var answer struct {
			In, Out, Both float64
			ByReference   float64 `json:"by_reference"`
		}
		if err := b.hosts[0].ask(map[string]any{"do": "arrays", "size": size, "rounds": b.plan.rounds}, &answer); err != nil {
			return err
		}
		b.result.Arrays = append(b.result.Arrays, Arrays{Bytes: size, In: answer.In, Out: answer.Out, Both: answer.Both, ByReference: answer.ByReference})
	}
	return nil
}

// measureSideBySide starts a worker on each core, one after the other and then all at once.
func (b *bench) measureSideBySide(ctx context.Context) error {
	starts := &b.result.Starts
	starts.Workers = runtime.NumCPU()
	if err := b.grow(ctx, starts.Workers); err != nil {
		return err
	}
	hosts := b.hosts[:starts.Workers]
	for _, host := range hosts {
		seconds, err := b.medianStart(host)
		if err != nil {
			return err
		}
		starts.Alone = max(starts.Alone, seconds)
	}
	var took []float64
	for range b.plan.freshCalls {
		type answer struct {
			seconds float64
			err     error
		}
		answers := make(chan answer)
		for _, host := range hosts {
			go func() {
				seconds, err := b.start(host)
				answers <- answer{seconds, err}
			}()
		}
		slowest, problems := 0.0, []error(nil)
		for range hosts {
			answer := <-answers
			slowest, problems = max(slowest, answer.seconds), append(problems, answer.err)
		}
		if err := errors.Join(problems...); err != nil {
			return err
		}
		took = append(took, slowest)
	}
	slices.Sort(took)
	starts.SideBySide = took[len(took)/2]
	return nil
}

// processes are the supervisor's, and those of the workers that are up.
func (b *bench) processes(ctx context.Context) (supervisor int, workers []api.Worker, err error) {
	status, err := b.stage.Status(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, worker := range status.Workers {
		if worker.PythonPID != 0 && worker.LauncherPID != 0 {
			workers = append(workers, worker)
		}
	}
	if len(workers) == 0 {
		return 0, nil, errors.New("the supervisor has no worker")
	}
	return b.stage.SupervisorPID(), workers, nil
}

func (b *bench) measureMemory(ctx context.Context) error {
	supervisor, workers, err := b.processes(ctx)
	if err != nil {
		return err
	}
	for _, process := range []struct {
		name string
		pid  int
	}{{"supervisor", supervisor}, {"launcher", workers[0].LauncherPID}, {"worker", workers[0].PythonPID}} {
		private, resident, err := memoryOf(process.pid)
		if err != nil {
			return fmt.Errorf("reading the memory of process %d: %w", process.pid, err)
		}
		b.result.Memory = append(b.result.Memory, Process{Process: process.name, Private: private, Resident: resident})
	}
	return nil
}

func (b *bench) measureIdle(ctx context.Context) error {
	if err := b.grow(ctx, b.plan.idle); err != nil {
		return err
	}
	for _, host := range b.hosts { // those beyond the count have workers, too
		if _, err := b.start(host); err != nil {
			return err
		}
	}
	supervisor, workers, err := b.processes(ctx)
	if err != nil {
		return err
	}
	pids := []int{supervisor}
	for _, worker := range workers {
		pids = append(pids, worker.LauncherPID, worker.PythonPID)
	}
	used := func() (total time.Duration, err error) {
		for _, pid := range pids {
			one, err := processorTime(pid)
			if err != nil {
				return 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
			}
			total += one
		}
		return total, nil
	}
	// What is measured is what happens while nothing does.
	if err := pass(ctx, b.plan.watch/5); err != nil {
		return err
	}
	before, err := used()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pass(ctx, b.plan.watch); err != nil {
		return err
	}
	after, err := used()
	if err != nil {
		return err
	}
	took := time.Since(begin)
	b.result.Idle = Idle{Workers: len(workers), Seconds: took.Seconds(), Share: (after - before).Seconds() / took.Seconds()}
	return nil
}

// pass lets time pass.
func pass(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
