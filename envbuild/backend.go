package envbuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// backend carries plans out. What it makes lies in the job's revision folder and nowhere else, but for its
// own caches.
type backend interface {
	// build fills job.Prefix. An error leaves whatever is there to the caller, who removes it.
	build(ctx context.Context, job *job) (received, error)
}

// job is one revision to be built.
type job struct {
	Plan         *Plan
	Revision     string // folder, exists
	Prefix       string // folder of the interpreter's prefix, to be made
	Interpreter  chosenPython
	Lock         string   // a lock file to build from exactly; "" resolves
	LockReceived received // what that lock file brought about when it was made
	Preferences  string   // a lock file of an earlier revision whose versions are kept where they still do; "" for none
	Upgrade      []string // packages whose versions are not kept; "*" for none is
	Kept         string   // lock file of a whole revision of the same plan; one that comes out the same ends the build
	Frozen       bool     // nothing but Lock may be built from
	Busy         string   // lock file that is held while processes of the build may live
	Log          io.Writer
	Report       Reporter
}

// received is what a build brought about, as far as the plan left it open.
type received struct {
	Build string `json:"build,omitempty"` // torch's build kind as installed
	Index string `json:"index,omitempty"` // where the torch family came from, "" the default index
	// Exact are the packages that had to be exactly so: the torch family and the pins, as far as there are wheels.
	Exact     []string `json:"exact,omitempty"`
	Installer string   `json:"installer"`          // "uv 0.13.9 (PATH)"
	Left      []string `json:"left_out,omitempty"` // pins that have no wheel for this platform
	Backend   string   `json:"backend,omitempty"`  // what made the prefix, where it is not the plan's
	// Activation are the variables that the environment's activation scripts set, PathFirst and PathLast the folders
	// that they put on PATH.
	Activation map[string]string `json:"activation,omitempty"`
	PathFirst  []string          `json:"path_first,omitempty"`
	PathLast   []string          `json:"path_last,omitempty"`
}

// activate notes what activation scripts have brought about.
func (r *received) activate(done activated) {
	r.Activation, r.PathFirst, r.PathLast = done.Variables, done.First, done.Last
}

// errSameVersions ends an upgrade that found nothing newer.
var errSameVersions = errors.New("nothing newer")

// step reports what is being done now.
func (j *job) step(format string, arguments ...any) { j.tell(EventStep, format, arguments...) }

// line reports something that stays true of the environment.
func (j *job) line(format string, arguments ...any) { j.tell(EventLine, format, arguments...) }

func (j *job) tell(kind, format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	fmt.Fprintf(j.Log, "# %s\n", text)
	j.Report(Event{Time: now(), Kind: kind, Environment: j.Plan.Name, Text: text})
}

// BuildError is a failure of an installer, with its reason in few lines.
type BuildError struct {
	Environment string
	Doing       string
	Reason      string
	Log         string // file with the installer's full text
	Cause       error
}

func (e *BuildError) Error() string {
	text := fmt.Sprintf("building %s: %s failed: %s", e.Environment, e.Doing, strings.TrimSpace(e.Reason))
	if e.Log != "" {
		text += "\n  full text: " + e.Log
	}
	return text
}

func (e *BuildError) Unwrap() error { return e.Cause }
