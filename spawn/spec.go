package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// WorkerVariable is the environment variable that every process of a worker carries; its value is the worker's ID.
const WorkerVariable = "COMFY_SUPERVISOR_WORKER"

// launcherVariable marks a launcher, so that a sweep by another supervisor of the same user knows that the worker's
// processes have an owner. The others hand it the key that callers must show, its folder and its version, and relayVariable has frames
// pass through it also where it could lend its connection to Python.
const (
	launcherVariable = "COMFY_SUPERVISOR_LAUNCHER"
	keyVariable      = "COMFY_SUPERVISOR_LAUNCHER_KEY"
	folderVariable   = "COMFY_SUPERVISOR_LAUNCHER_FOLDER"
	versionVariable  = "COMFY_SUPERVISOR_LAUNCHER_VERSION"
	relayVariable    = "COMFY_SUPERVISOR_LAUNCHER_RELAY"
)

// Times that a Spec leaves open.
const (
	DefaultOrphanWait = 10 * time.Second
	DefaultStopGrace  = 5 * time.Second
	// launcherStartLimit is how long a launcher may take to come up; it runs no foreign code.
	launcherStartLimit = 30 * time.Second
)

// Spec says what to launch.
type Spec struct {
	// Worker is a random ID of 32 hexadecimal digits, in the environment of every process of the worker.
	Worker string
	// Session, Environment and Generation say whose worker it is; they are recorded, not interpreted.
	Session, Environment string
	Generation           uint64

	Python    string   // path of the interpreter
	Options   []string // the interpreter's own; nil means -I -X utf8: our program alone decides about paths
	Program   string   // the worker program: a directory with a __main__.py
	Arguments []string // further arguments of the program; --frames-fd and its value are added
	Directory string   // Python's working directory
	Variables []string // Python's complete environment, NAME=value

	// Load is the parameters of the `load` request, kept in the record so that Attach knows them.
	Load json.RawMessage
	// Host is the process whose death ends the worker within a second; its zero value means none.
	Host Process
	// Folder is the worker's own folder below the runtime directory. Launch creates it with mode 0700; it is removed
	// when the worker has ended.
	Folder string
	// Binary is the program that serves as launcher when run with the argument "worker"; empty means this program.
	Binary string
	// Version is this program's version, for the record.
	Version string

	Log    LogSink           // gets the lines of Python's stdout and stderr; nil drops them
	Phase  func(PhaseReport) // gets the launcher's phases; it must not block; nil drops them
	Logger zerolog.Logger    // this side's log and, below it, the launcher's

	// Relay has frames pass through the launcher, as they do on systems where a connection can not be handed over.
	Relay bool

	// OrphanWait is how long the launcher waits for a supervisor's return. The worker has ended three seconds later.
	OrphanWait time.Duration
	// StopGrace is how long a polite stop waits before it sends signals.
	StopGrace time.Duration
}

// PhaseReport is a step of a launch or a stop, as the launcher sees it.
type PhaseReport struct {
	Phase  string
	Detail string
	Time   time.Time
}

// Phases that a launcher reports.
const (
	PhaseStarted   = "python_started" // the interpreter's process exists
	PhaseShutdown  = "shutdown"       // Python was asked to end
	PhaseTerminate = "terminate"      // SIGTERM was sent
	PhaseKill      = "kill"           // SIGKILL was sent
	PhaseOrphan    = "orphan"         // no supervisor is connected
	PhaseHostDied  = "host_died"
	PhaseEmpty     = "empty" // no process of the worker is left
)

func (s *Spec) check() error {
	var problems []error
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Errorf(format, arguments...))
	}
	if !validWorkerID(s.Worker) {
		problem("worker ID %q is not 32 lower-case hexadecimal digits", s.Worker)
	}
	for name, path := range map[string]string{"interpreter": s.Python, "worker program": s.Program, "worker folder": s.Folder} {
		if !filepath.IsAbs(path) {
			problem("the %s's path %q is not absolute", name, path)
		}
	}
	if s.Directory != "" && !filepath.IsAbs(s.Directory) {
		problem("the working directory %q is not absolute", s.Directory)
	}
	for _, variable := range s.Variables {
		if strings.IndexByte(variable, '=') <= 0 && !strings.HasPrefix(variable, "=") || strings.IndexByte(variable, 0) >= 0 {
			problem("variable %q is not NAME=value", variable)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("launching worker %q of environment %q: %w", s.Worker, s.Environment, err)
	}
	return nil
}

func validWorkerID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
