//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/moby/sys/atomicwriter"
)

// report counts. It is also the state from which an interrupted run goes on.
type report struct {
	Next   int                     `json:"next"` // round
	Broken int                     `json:"broken"`
	Good   int                     `json:"good"` // answers, all of them right
	Faults map[string]*faultCounts `json:"faults"`

	mu sync.Mutex
}

// faultCounts are about one kind of fault.
type faultCounts struct {
	Rounds  int               `json:"rounds"`
	Errors  map[string]int    `json:"errors"`  // of calls, by kind
	Samples map[string]string `json:"samples"` // one text of each kind
	Slowest time.Duration     `json:"slowest"`
	Total   time.Duration     `json:"total"` // of recoveries
}

func loadReport(path string) *report {
	r := &report{Faults: make(map[string]*faultCounts)}
	if content, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(content, r) // a damaged state begins again
	}
	return r
}

func (r *report) save(path string) error {
	if path == "" {
		return nil
	}
	r.mu.Lock()
	content, err := json.Marshal(r)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return atomicwriter.WriteFile(path, content, 0o600)
}

func (r *report) of(fault string) *faultCounts {
	counts := r.Faults[fault]
	if counts == nil {
		counts = &faultCounts{Errors: make(map[string]int), Samples: make(map[string]string)}
		r.Faults[fault] = counts
	}
	return counts
}

func (r *report) good() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Good++
}

func (r *report) failed(fault, kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(fault).Errors[kind]++
	r.of(fault).Samples[kind] = text
}

func (r *report) recovered(fault string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.of(fault)
	counts.Rounds++
	counts.Total += took
	counts.Slowest = max(counts.Slowest, took)
}

// String is the table of the run.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%d rounds, %d broken, %d right answers, no wrong one unless reported\n", r.Next, r.Broken, r.Good)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAULT\tROUNDS\tRECOVERY MEAN\tSLOWEST\tCALLS THAT FAILED")
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		counts := r.Faults[name]
		var errors []string
		for _, kind := range slices.Sorted(maps.Keys(counts.Errors)) {
			errors = append(errors, fmt.Sprintf("%s %d", kind, counts.Errors[kind]))
		}
		mean := counts.Total / time.Duration(max(1, counts.Rounds))
		fmt.Fprintf(table, "%s\t%d\t%.2f s\t%.2f s\t%s\n", name, counts.Rounds, mean.Seconds(), counts.Slowest.Seconds(), strings.Join(errors, ", "))
	}
	_ = table.Flush() // into memory
	return text.String()
}
