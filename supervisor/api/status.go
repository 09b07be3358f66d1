package api

import "time"

// Status is everything the supervisor knows at one moment.
type Status struct {
	Supervisor  Supervisor  `json:"supervisor"`
	Sessions    []Session   `json:"sessions"`
	Workers     []Worker    `json:"workers"`
	MemoryFiles MemoryFiles `json:"memory_files"`
}

// Supervisor describes the daemon process.
type Supervisor struct {
	PID              int       `json:"pid"`
	StartTime        string    `json:"start_time,omitempty"` // as the system counts it; with the PID it names the process
	Version          string    `json:"version"`
	Protocol         int       `json:"protocol"`
	StartedAt        time.Time `json:"started_at"`
	Binary           string    `json:"binary"`
	Socket           string    `json:"socket"`
	RuntimeDirectory string    `json:"runtime_directory"`
	StateDirectory   string    `json:"state_directory"`
	// Private says that the instance belongs to one command or test and not to the user's login.
	Private bool `json:"private,omitempty"`
	// RSSBytes is the daemon's own resident memory; 0 where the system does not tell.
	RSSBytes int64 `json:"rss_bytes,omitempty"`
}

// Roles of a session.
const (
	RoleHost     = "host"     // a ComfyUI process; its death ends its workers
	RoleOperator = "operator" // the command line; belongs to the daemon
)

// Session is a host, or the operator, and owns workers.
type Session struct {
	ID        string    `json:"id"`
	Role      string    `json:"role"`
	Name      string    `json:"name,omitempty"` // the program and its version, as the client says
	PID       int       `json:"pid,omitempty"`
	StartTime string    `json:"start_time,omitempty"`
	ComfyUI   string    `json:"comfyui,omitempty"` // folder of the host's ComfyUI
	Stack     string    `json:"stack,omitempty"`   // of the environments that its host needs
	Since     time.Time `json:"since"`
	Clients   int       `json:"clients"`
	Ended     bool      `json:"ended,omitempty"` // its last workers are being ended
	// ReconnectUntil is set while the host lives but has no connection; then the session ends with its workers.
	ReconnectUntil *time.Time `json:"reconnect_until,omitempty"`
}

// Worker is one record: a worker process of one environment in one session, alive or the last one of its place.
type Worker struct {
	ID          string    `json:"id"`
	Session     string    `json:"session"`
	Environment string    `json:"environment"`
	Generation  uint64    `json:"generation"`
	State       string    `json:"state"`
	Since       time.Time `json:"since"`           // when the state began
	Cause       string    `json:"cause,omitempty"` // why it is in this state
	Phase       string    `json:"phase,omitempty"` // what a starting worker does

	Stack     string `json:"stack,omitempty"`
	Revision  string `json:"revision,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	Pack      string `json:"pack,omitempty"`
	Python    string `json:"python,omitempty"` // the interpreter
	Platform  string `json:"platform,omitempty"`
	Directory string `json:"directory,omitempty"` // the worker's folder in the runtime directory

	PythonPID     int               `json:"python_pid,omitempty"`
	LauncherPID   int               `json:"launcher_pid,omitempty"`
	PythonVersion string            `json:"python_version,omitempty"`
	Packages      map[string]string `json:"packages,omitempty"`
	Nodes         []string          `json:"nodes,omitempty"`
	Adopted       bool              `json:"adopted,omitempty"` // taken over from an earlier supervisor

	StartSeconds float64       `json:"start_seconds,omitempty"` // from the launch until it took calls
	Depth        int           `json:"depth"`                   // calls it has been given and not answered
	Queued       int           `json:"queued"`                  // calls that wait for it to start
	Calls        uint64        `json:"calls"`                   // calls answered, whatever the answer
	Current      []CurrentCall `json:"current,omitempty"`
	IdleSeconds  float64       `json:"idle_seconds"`
	RSSBytes     int64         `json:"rss_bytes,omitempty"` // of the whole process tree
	Processes    int           `json:"processes,omitempty"`
	// LauncherRSSBytes is the resident memory of its launcher.
	LauncherRSSBytes int64 `json:"launcher_rss_bytes,omitempty"`

	Crashes      int        `json:"crashes"` // within the crash window
	BackoffUntil *time.Time `json:"backoff_until,omitempty"`
	Exit         *Exit      `json:"exit,omitempty"` // how it ended, or how the one before it did
	// Variables are the worker's environment variables with their sources; only in answers that ask for them.
	Variables []Variable `json:"variables,omitempty"`
	// Memory is what it holds on cards and pins in RAM; nil of one that has ended.
	Memory *WorkerMemory `json:"memory,omitempty"`
	// Mirrored says what came of the host's flags in the worker; nil until its pack has imported comfy.
	Mirrored *Mirrored `json:"mirrored,omitempty"`
}

// Mirrored is what came of a host's flags, pager and versions in a worker.
type Mirrored struct {
	// HostHash and WorkerHash are over the flags as each side read them back.
	HostHash    string            `json:"host_hash,omitempty"`
	WorkerHash  string            `json:"worker_hash,omitempty"`
	Differences []Difference      `json:"differences,omitempty"`
	Attention   string            `json:"attention,omitempty"`
	Pager       PagerOutcome      `json:"pager"`
	Skipped     map[string]string `json:"skipped,omitempty"` // flags that are not in force, and why
	Missing     []MissingName     `json:"missing,omitempty"`
}

// Difference is one thing in which host and worker differ.
type Difference struct {
	Name   string `json:"name"`
	Host   string `json:"host"`
	Worker string `json:"worker"`
	// Blocks says that tensors can not cross between the two.
	Blocks bool `json:"blocks,omitempty"`
}

// PagerOutcome says how a worker manages memory, "paged" or "ledger", and why.
type PagerOutcome struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// MissingName is something of ComfyUI that a worker looked for in vain, and what follows.
type MissingName struct {
	Name    string `json:"name"`
	Without string `json:"without"`
}

// CurrentCall is a call in flight.
type CurrentCall struct {
	Node    string  `json:"node"`
	Seconds float64 `json:"seconds"`
	Silent  float64 `json:"silent_seconds"` // since its last sign of life
}

// Exit tells how a worker's process ended.
type Exit struct {
	At         time.Time `json:"at"`
	Generation uint64    `json:"generation"`
	Code       *int      `json:"code,omitempty"`
	Signal     string    `json:"signal,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Stderr     []string  `json:"stderr,omitempty"` // the last lines
}

// Variable is one environment variable of a worker, or one of ComfyUI's flags that it takes over from its host.
type Variable struct {
	Name string `json:"name"`
	// Kind is "variable" or "flag", or "withheld variable" or "withheld flag" for what the worker does not get.
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Source string `json:"source"` // manifest, operator's shell, host, default
	Note   string `json:"note,omitempty"`
}

// MemoryFiles sums up the memory files that the supervisor accounts for.
type MemoryFiles struct {
	QuotaBytes    int64 `json:"quota_bytes"`
	ReservedBytes int64 `json:"reserved_bytes"` // allocated by all processes, pooled files included
	Open          int   `json:"open"`           // files that somebody still refers to
	OpenBytes     int64 `json:"open_bytes"`
}

// Environment is an environment that workers can run in.
type Environment struct {
	Name     string    `json:"name"`
	Stack    string    `json:"stack,omitempty"`
	Pack     string    `json:"pack,omitempty"`
	Manifest string    `json:"manifest,omitempty"`
	Python   string    `json:"python,omitempty"`
	Prefix   string    `json:"prefix,omitempty"`
	Revision string    `json:"revision,omitempty"`
	Built    time.Time `json:"built,omitzero"`
	Error    string    `json:"error,omitempty"` // why it can not be used
}

// Event is something the supervisor decided or saw.
type Event struct {
	Sequence    uint64         `json:"sequence"`
	Time        time.Time      `json:"time"`
	Kind        string         `json:"kind"`
	Session     string         `json:"session,omitempty"`
	Environment string         `json:"environment,omitempty"`
	Generation  uint64         `json:"generation,omitempty"`
	Cause       string         `json:"cause,omitempty"`
	Terms       map[string]any `json:"terms,omitempty"`
}

// LogLine is one line of a worker's output, or of the supervisor about it.
type LogLine struct {
	Environment string    `json:"environment"`
	Session     string    `json:"session,omitempty"`
	Generation  uint64    `json:"generation,omitempty"`
	Stream      string    `json:"stream"` // stdout, stderr or supervisor
	Time        time.Time `json:"time"`
	// Level is DEBUG to CRITICAL; where a line states none, what its stream and the lines before it say. Only in answers.
	Level string `json:"level,omitempty"`
	Line  string `json:"line"`
}
