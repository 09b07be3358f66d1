//go:build linux

package main

import (
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

// floods has a worker print without end while another one is called, and says what that does to the memory of the
// supervisor and the launcher, and to the time that the other's calls take.
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
	cases := []struct {
		name, node string
		inputs     map[string]any
	}{
		{"nothing", "Compute", map[string]any{"seconds": 3, "answer": 1}},
		{"1 GB without a newline", "Flood", map[string]any{"megabytes": 1000, "newline": false}},
		{"ten million short lines", "Lines", map[string]any{"count": 10_000_000}},
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WORKER one PRINTS\tTOOK\tSUPERVISOR MB AT 0, 25, 50, 75, 100 %, PRIVATE\tLAUNCHER\tCPU S: SUPERVISOR, LAUNCHER, PYTHON\tCALLS OF two\tP50\tP99\tSLOWEST")
	for _, flood := range cases {
		row, err := w.flood(ctx, client, flood.node, flood.inputs)
		if err != nil {
			return fmt.Errorf("%s: %w", flood.name, err)
		}
		fmt.Fprintf(table, "%s\t%s\n", flood.name, row)
	}
	return table.Flush()
}

// flood is one row.
func (w *world) flood(ctx context.Context, client *api.Client, node string, inputs map[string]any) (string, error) {
	status, err := client.Status(ctx, api.StatusParams{Environment: "one"})
	if err != nil {
		return "", err
	}
	index := slices.IndexFunc(status.Workers, func(worker api.Worker) bool { return worker.Session == "operator" })
	supervisor, launcher := status.Supervisor.PID, status.Workers[index].LauncherPID
	python := status.Workers[index].PythonPID
	before := []float64{cpuSeconds(supervisor), cpuSeconds(launcher), cpuSeconds(python)}
	begun := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := callNode(ctx, client, "one", node, inputs)
		ended <- err
	}()
	other, err := w.operator(ctx)
	if err != nil {
		return "", err
	}
	defer other.Close()
	var latencies []time.Duration
	var ours, its []float64
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return "", err
			}
			slices.Sort(latencies)
			at := func(share float64) string {
				return fmt.Sprintf("%.2f ms", float64(latencies[int(share*float64(len(latencies)-1))])/1e6)
			}
			took := time.Since(begun).Seconds()
			return fmt.Sprintf("%.1f s\t%s\t%s\t%.1f, %.1f, %.1f\t%d\t%s\t%s\t%s", took, quarters(ours), quarters(its),
				cpuSeconds(supervisor)-before[0], cpuSeconds(launcher)-before[1], cpuSeconds(python)-before[2], len(latencies), at(0.5), at(0.99), at(1)), nil
		case <-pace.C:
		}
		ours, its = append(ours, privateMegabytes(supervisor)), append(its, privateMegabytes(launcher))
		start := time.Now()
		if _, err := callNode(ctx, other, "two", "Echo", map[string]any{"n": 1}); err != nil {
			return "", err
		}
		latencies = append(latencies, time.Since(start))
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

// quarters are a series at its begin, quarters and end, and its largest value.
func quarters(series []float64) string {
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
