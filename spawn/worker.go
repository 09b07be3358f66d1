package spawn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Worker is one launched or adopted worker. Its methods may be called from every goroutine.
type Worker interface {
	// Record is what a later supervisor needs to adopt the worker.
	Record() Record
	// PythonPID is the process ID of the Python interpreter.
	PythonPID() int
	// Peer sends to Python and dispatches what Python sends to the handler given to Launch or Attach. It ends when
	// Python or the launcher does.
	Peer() *wire.Peer
	// Stop ends the worker politely: a shutdown request, SIGTERM, then SIGKILL of the whole tree. It returns when no
	// process of it is left. When the context ends first, its error is returned and stopping goes on.
	Stop(ctx context.Context) error
	// Kill ends the whole tree at once and returns when no process of it is left.
	Kill(ctx context.Context) error
	// PythonEnded is closed when Python's process has ended; Exit is known then, remains of the tree may still live.
	PythonEnded() <-chan struct{}
	// Done is closed when everything is over: no process is left, the folder is removed, this side's goroutines ended.
	Done() <-chan struct{}
	// Exit says how Python ended. Before PythonEnded it is the zero Exit.
	Exit() Exit
	// Statistics counts the processes of the tree and their memory.
	Statistics(ctx context.Context) (Statistics, error)
	// Detach lets go of the worker and leaves launcher and Python running, for a supervisor that is about to end.
	Detach() error
}

// Exit says how a worker's Python ended.
type Exit struct {
	// Code is the exit code, when it ended by itself.
	Code *int `json:"code,omitempty"`
	// Signal is the name of the signal that ended it, such as SIGKILL.
	Signal string `json:"signal,omitempty"`
	// Stderr is the last lines that it wrote there.
	Stderr []string `json:"stderr,omitempty"`
	// Reason says in words what is known beyond that: stopped, host died, launcher died ...
	Reason string `json:"reason,omitempty"`
	// Unkillable are processes of the tree that did not end after SIGKILL: they are in uninterruptible sleep.
	Unkillable []Process `json:"unkillable,omitempty"`
	Time       time.Time `json:"time"`
}

// String says it in one sentence without the stderr lines.
func (e Exit) String() string {
	var parts []string
	switch {
	case e.Signal != "":
		parts = append(parts, "ended by "+e.Signal)
	case e.Code != nil:
		parts = append(parts, fmt.Sprintf("ended with exit code %d", *e.Code))
	case e.Time.IsZero():
		return "has not ended"
	default:
		parts = append(parts, "ended in an unknown way")
	}
	if e.Reason != "" {
		parts = append(parts, e.Reason)
	}
	return strings.Join(parts, ": ")
}

// Statistics is what a worker's process tree uses; the launcher is not part of it.
type Statistics struct {
	Processes int `json:"processes"`
	// RSSBytes is the sum of the processes' resident sets; pages that several share count in each.
	RSSBytes int64 `json:"rss_bytes"`
	// LauncherRSSBytes is the launcher's own resident set.
	LauncherRSSBytes int64 `json:"launcher_rss_bytes"`
	// DroppedLines counts the output lines lost because nobody fetched them in time.
	DroppedLines int64 `json:"dropped_lines"`
}

// LogSink gets the lines of a worker's output, in order, from one goroutine. It may block: what it does not fetch in
// time is dropped by the launcher and counted in the next line.
type LogSink interface {
	Log(Line)
}

// Streams of a Line.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// Line is one line of output.
type Line struct {
	Time   time.Time // when its end arrived
	Stream string    // StreamStdout or StreamStderr
	Text   string    // valid UTF-8 without the newline; of a progress bar drawn with \r the last state
	// CutBytes is how many bytes beyond the limit of 64 KiB were left out at its end.
	CutBytes int64
	// DroppedLines and DroppedBytes are what was lost on this worker's streams before this line.
	DroppedLines, DroppedBytes int64
}

// Errors of Launch and Attach that callers tell apart.
var (
	// ErrLauncherGone means that a record's launcher is not running any more.
	ErrLauncherGone = errors.New("the launcher is gone")
	// ErrWorkerEnded means that the launcher lives, but its Python has ended.
	ErrWorkerEnded = errors.New("the worker has ended")
	// ErrNotOurs means that what answers is not the worker of the record.
	ErrNotOurs = errors.New("not the recorded worker")
)

// StartError is a launch that failed after Python was started.
type StartError struct {
	Exit Exit
	// Phase is how far the launch had come, such as "waiting for Python's hello".
	Phase string
	Err   error
}

// Error implements error.
func (e *StartError) Error() string {
	text := "starting the worker failed while " + e.Phase
	if !e.Exit.Time.IsZero() {
		text += ": Python " + e.Exit.String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if n := len(e.Exit.Stderr); n > 0 {
		text += "; its last line was: " + e.Exit.Stderr[n-1]
	}
	return text
}

// Unwrap implements errors.Unwrap.
func (e *StartError) Unwrap() error { return e.Err }
