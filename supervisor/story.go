package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// launchStory makes the error of a launch that failed.
func (d *Daemon) launchStory(w *worker, err error) *wire.Error {
	failure := wire.Errorf(wire.KindStartFailed, "the worker of %s did not start: %v", w.place.environment, err)
	failure.Data.Remedy = "see `comfy-supervisor logs " + w.place.environment + "`"
	var failed *spawn.StartError
	if errors.As(err, &failed) {
		failure.Data.ExitCode, failure.Data.Signal, failure.Data.Stderr = failed.Exit.Code, failed.Exit.Signal, lastLines(failed.Exit.Stderr)
	}
	return failure
}

// startStory is the answer to calls that waited for a worker which did not come up; Daemon.mu is held.
func (w *worker) startStory(message Message) *wire.Error {
	if w.failure != nil {
		failure := *w.failure
		return &failure
	}
	if message.Kind == StopAsked {
		return &wire.Error{Code: -32000, Message: fmt.Sprintf("the worker of %s was stopped while it started: %s", w.place.environment, message.Cause),
			Data: wire.ErrorData{Kind: wire.KindStopped, Environment: w.place.environment, Generation: w.generation}}
	}
	failure := &wire.Error{Code: -32000, Message: fmt.Sprintf("the worker of %s ended while it started: %s", w.place.environment, message.Cause),
		Data: wire.ErrorData{Kind: wire.KindStartFailed, Environment: w.place.environment, Generation: w.generation,
			Remedy: "see `comfy-supervisor logs " + w.place.environment + "`"}}
	w.addExit(failure)
	return failure
}

// endStory is the answer to a call whose worker ended; Daemon.mu is held.
func (w *worker) endStory(sent *call, message Message) *wire.Error {
	if message.Kind == StopAsked {
		return &wire.Error{Code: -32000, Message: fmt.Sprintf("the worker of %s was stopped during the call of %s: %s", w.place.environment, sent.node, message.Cause),
			Data: wire.ErrorData{Kind: wire.KindStopped, Environment: w.place.environment, Node: sent.node, Generation: w.generation,
				Remedy: "call again: that starts the next worker"}}
	}
	failure := &wire.Error{Code: -32000,
		Message: fmt.Sprintf("the worker of %s died during the call of %s: %s", w.place.environment, sent.node, message.Cause),
		Data: wire.ErrorData{Kind: wire.KindWorkerDied, Environment: w.place.environment, Node: sent.node, Generation: w.generation,
			Remedy: "call again: that starts the next worker; `comfy-supervisor logs " + w.place.environment + "` has its output"}}
	w.addExit(failure)
	return failure
}

// refusal is the answer to a call of a quarantined environment; Daemon.mu is held.
func (w *worker) refusal() *wire.Error {
	var window time.Duration
	if crashes := w.record.Crashes; len(crashes) > 0 {
		window = crashes[len(crashes)-1].Sub(crashes[0]).Round(time.Second)
	}
	failure := &wire.Error{Code: -32000,
		Message: fmt.Sprintf("%s is quarantined: its worker crashed %d times within %s, the last time it %s",
			w.place.environment, len(w.record.Crashes), window, w.record.Cause),
		Data: wire.ErrorData{Kind: wire.KindStartFailed, Environment: w.place.environment, Generation: w.generation,
			Remedy: "`comfy-supervisor reset " + w.place.environment + "` allows it to start again, and so does an edit of its manifest"}}
	w.addExit(failure)
	return failure
}

// addExit adds how the process ended; Daemon.mu is held.
func (w *worker) addExit(failure *wire.Error) {
	if exit := w.lastExit; exit != nil && exit.Generation == w.generation {
		failure.Data.ExitCode, failure.Data.Signal, failure.Data.Stderr = exit.Code, exit.Signal, exit.Stderr
	}
}

// storyBytes bounds what an error or an event carries of a worker's last output, as JSON: headers are small, and the log
// has all of it.
const storyBytes = 24 << 10

// lastLines returns as many of the last lines as an error may carry.
func lastLines(lines []string) []string {
	budget := storyBytes
	for first := len(lines) - 1; first >= 0; first-- {
		encoded, err := json.Marshal(lines[first])
		if err != nil || len(encoded) > budget {
			return lines[first+1:]
		}
		budget -= len(encoded)
	}
	return lines
}

// splitLines splits a text into its lines, without an empty last one.
func splitLines(text string) []string {
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
