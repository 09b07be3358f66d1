//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// floodRounds is how often each flood is played, in turn with the others.
const floodRounds = 5

// floodLook is how long a round looks at least: what a flood leaves in the pipeline is a part of it.
const floodLook = time.Second

// flood is something that one worker does while the other one is called, and what was measured meanwhile.
type flood struct {
	name, node string
	inputs     map[string]any

	took                                  float64 // seconds, of all rounds
	latencies                             []time.Duration
	supervisor, launcher                  [][]float64 // private MB over the time of each round
	supervisorCPU, launcherCPU, pythonCPU float64
}

// floods has a worker print without end while another one is called, and says what that does to the memory of the
// supervisor and the launcher, and to the time that the other's calls take. What a flood costs others is to be compared
// with a worker that computes and prints nowhere: it takes a processor as well.
func floods(ctx context.Context, options options) error {
	w, err := newWorld(ctx, options, loadReport(""))
	if err != nil {
		return err
	}
	defer w.end()
	client, err := w.operator(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, environment := range w.config.Environments {
		if _, err := callNode(ctx, client, environment, "Echo", nil); err != nil {
			return err
		}
	}
	cases := []*flood{
		{name: "nothing", node: "Compute", inputs: map[string]any{"seconds": 1, "answer": 1}},
		{name: "to /dev/null, for a second", node: "Burn", inputs: map[string]any{"seconds": 1}},
		{name: "1 GB without a newline", node: "Flood", inputs: map[string]any{"megabytes": 1000, "newline": false}},
		{name: "ten million short lines", node: "Lines", inputs: map[string]any{"count": 10_000_000}},
		{name: "two hundred million", node: "Lines", inputs: map[string]any{"count": 200_000_000}},
	}
	for range floodRounds {
		for _, flood := range cases {
			if err := w.flood(ctx, client, flood); err != nil {
				return fmt.Errorf("%s: %w", flood.name, err)
			}
		}
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "WORKER one PRINTS, %d TIMES\tTOOK\tPRIVATE MB OF SUPERVISOR AT 0, 25, 50, 75, 100 %%\tOF LAUNCHER\tCPU S: SUPERVISOR, LAUNCHER, PYTHON\tCALLS OF two\tP50\tP99\tSLOWEST\n", floodRounds)
	for _, flood := range cases {
		fmt.Fprintln(table, flood.row())
	}
	return table.Flush()
}

// row is what the table says about a flood: times per round, the memory of the round that took most.
func (f *flood) row() string {
	slices.Sort(f.latencies)
	at := func(share float64) string {
		return fmt.Sprintf("%.2f ms", float64(f.latencies[int(share*float64(len(f.latencies)-1))])/1e6)
	}
	return fmt.Sprintf("%s\t%.1f s\t%s\t%s\t%.2f, %.2f, %.2f\t%d\t%s\t%s\t%s", f.name, f.took/floodRounds, quarters(f.supervisor), quarters(f.launcher),
		f.supervisorCPU/floodRounds, f.launcherCPU/floodRounds, f.pythonCPU/floodRounds, len(f.latencies), at(0.5), at(0.99), at(1))
}

// flood plays one round of a flood.
func (w *world) flood(ctx context.Context, client *api.Client, flood *flood) error {
	status, err := client.Status(ctx, api.StatusParams{Environment: "one"})
	if err != nil {
		return err
	}
	index := slices.IndexFunc(status.Workers, func(worker api.Worker) bool { return worker.Session == "operator" })
	supervisor, launcher := status.Supervisor.PID, status.Workers[index].LauncherPID
	python := status.Workers[index].PythonPID
	other, err := w.operator(ctx)
	if err != nil {
		return err
	}
	defer other.Close()
	computed := []float64{cpuSeconds(supervisor), cpuSeconds(launcher), cpuSeconds(python)}
	begun := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := callNode(ctx, client, "one", flood.node, flood.inputs)
		ended <- err
	}()
	var ours, its []float64
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	over := false
	for calls := 0; ; calls++ {
		select {
		case err := <-ended:
			flood.took += time.Since(begun).Seconds()
			if over = true; err != nil {
				return err
			}
		case <-pace.C:
		}
		if over && time.Since(begun) >= floodLook {
			flood.supervisor, flood.launcher = append(flood.supervisor, ours), append(flood.launcher, its)
			flood.supervisorCPU += cpuSeconds(supervisor) - computed[0]
			flood.launcherCPU += cpuSeconds(launcher) - computed[1]
			flood.pythonCPU += cpuSeconds(python) - computed[2]
			return nil
		}
		if calls%10 == 0 { // looking costs time
			ours, its = append(ours, privateMegabytes(supervisor)), append(its, privateMegabytes(launcher))
		}
		start := time.Now()
		if _, err := callNode(ctx, other, "two", "Echo", map[string]any{"n": 1}); err != nil {
			return err
		}
		flood.latencies = append(flood.latencies, time.Since(start))
	}
}

func callNode(ctx context.Context, client *api.Client, environment, node string, inputs map[string]any) (string, error) {
	result, err := client.Call(ctx, api.Call{Environment: environment, Node: node, Inputs: inputs})
	if err != nil {
		return "", err
	}
	defer result.Close()
	return string(result.Value), nil
}

// quarters are the series of the round with the largest value at its begin, quarters and end, and that value.
func quarters(rounds [][]float64) string {
	series := slices.MaxFunc(rounds, func(a, b []float64) int { return cmp.Compare(slices.Max(a), slices.Max(b)) })
	var parts []string
	for quarter := range 5 {
		parts = append(parts, strconv.FormatFloat(series[quarter*(len(series)-1)/4], 'f', 1, 64))
	}
	return fmt.Sprintf("%s (most %.1f)", strings.Join(parts, ", "), slices.Max(series))
}

// cpuSeconds is the time that a process has computed.
func cpuSeconds(pid int) float64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // of a process that is gone there is none
	_, after, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / 100 // ticks, which Linux shows a hundred of
}

// privateMegabytes is the memory that is a process's alone.
func privateMegabytes(pid int) float64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // of a process that is gone there is none
	kilobytes := 0
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && (name == "Private_Clean" || name == "Private_Dirty") {
			number, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			kilobytes += number
		}
	}
	return float64(kilobytes) / 1024
}
