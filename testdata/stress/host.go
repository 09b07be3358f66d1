//go:build linux

package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

//go:embed client.py
var clientScript string

// processAccounts is what a process says that it holds.
type processAccounts struct {
	PID  int `json:"pid"`
	Pool struct {
		Free    int64 `json:"free_bytes"`
		Lent    int64 `json:"lent_bytes"`
		Filling int64 `json:"filling_bytes"`
	} `json:"pool"`
	Holds       int `json:"holds"`
	MemoryFiles int `json:"memory_files"`
	Descriptors int `json:"descriptors"`
	Threads     int `json:"threads"`
}

// hostAccounts are a host's own and those of its workers, by environment.
type hostAccounts struct {
	processAccounts
	Workers map[string]processAccounts `json:"workers"`
	Failed  map[string]string          `json:"failed"`
}

// hostReport is one line of a host.
type hostReport struct {
	Ready    int           `json:"ready"`
	Paused   bool          `json:"paused"`
	Quit     bool          `json:"quit"`
	Accounts *hostAccounts `json:"accounts"`
	Harmed   string        `json:"harmed"`
	Outcome  string        `json:"outcome"`

	Loop    string  `json:"loop"`
	Begun   int64   `json:"begun"` // nanoseconds since 1970
	Seconds float64 `json:"seconds"`
	OK      string  `json:"ok"`
	Wrong   string  `json:"wrong"`
	Error   string  `json:"error"`
	Text    string  `json:"text"`
}

// host is a Python process that calls.
type host struct {
	number  int
	command *exec.Cmd
	input   io.WriteCloser
	output  *os.File // what it says on standard error
	reports chan hostReport
	ended   chan struct{} // closed when it has been waited for

	mu       sync.Mutex
	lastGood map[string]int64 // by loop: when its last good call began
	killed   bool
}

// startHost starts a host and waits until it is connected.
func (w *world) startHost(ctx context.Context, number int) (*host, error) {
	h := &host{number: number, reports: make(chan hostReport, 4096), ended: make(chan struct{}), lastGood: make(map[string]int64)}
	w.hostsStarted++
	arguments := []string{"-c", clientScript, strconv.FormatUint(w.options.seed*1000+uint64(w.hostsStarted)*10, 10)}
	h.command = exec.Command(w.config.Python, append(arguments, w.config.Environments...)...)
	h.command.Env = w.environ
	h.command.Dir = w.config.Folder
	h.command.Stderr = w.hostLog
	input, err := h.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := h.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.command.Start(); err != nil {
		return nil, fmt.Errorf("starting a host: %w", err)
	}
	h.input = input
	w.readers.Go(func() {
		defer close(h.ended)
		lines := bufio.NewScanner(output)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var report hostReport
			if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
				w.broken("host %d printed %q", number, lines.Text())
				continue
			}
			w.heard(h, report)
		}
		_ = h.command.Wait() // how it ended is known: killed, or told to quit
	})
	if _, err := h.await(ctx, startLimit, func(r hostReport) bool { return r.Ready > 0 }); err != nil {
		return nil, fmt.Errorf("starting a host: %w", err)
	}
	return h, nil
}

// tell gives a host a command.
func (h *host) tell(command map[string]any) error {
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	_, err = h.input.Write(append(line, '\n'))
	return err
}

// await waits for a report that is no call's.
func (h *host) await(ctx context.Context, limit time.Duration, wanted func(hostReport) bool) (hostReport, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case report := <-h.reports:
			if wanted(report) {
				return report, nil
			}
		case <-h.ended:
			return hostReport{}, fmt.Errorf("host %d has ended", h.number)
		case <-timer.C:
			return hostReport{}, fmt.Errorf("host %d said nothing for %s", h.number, limit)
		case <-ctx.Done():
			return hostReport{}, ctx.Err()
		}
	}
}

// isKilled reports whether a fault killed it.
func (h *host) isKilled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed
}

// goodSince counts the loops with a good call that began after a moment.
func (h *host) goodSince(moment time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, begun := range h.lastGood {
		if begun > moment.UnixNano() {
			count++
		}
	}
	return count
}
