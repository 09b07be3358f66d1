package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/manifest"
	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/budget"
)

// Environments finds what was built, and hears what is used. envbuild.Store implements it.
type Environments interface {
	Find(name string, query envbuild.Query) (envbuild.Environment, error)
	List(query envbuild.Query) ([]envbuild.Listed, error)
	// MarkUsed notes that an environment is in use at this moment.
	MarkUsed(environment envbuild.Environment) error
}

// Config is everything that a daemon is told. Zero durations switch the limit off unless their comment says otherwise.
type Config struct {
	RuntimeDirectory string // holds the lock, sessions and worker folders; private, made when missing
	StateDirectory   string // holds the logs
	Socket           string
	// Binary is what launchers are started from; empty: this very program, also after its file was replaced.
	Binary  string
	Version string
	// Private marks an instance that belongs to one command or test.
	Private bool
	// Program is the folder of the Python worker program.
	Program      string
	Environments Environments

	CallSilence    time.Duration // a call without a sign of life is given up after this
	Reconnect      time.Duration // a host without a connection may come back within this
	LauncherOrphan time.Duration // launchers wait so long for a lost supervisor
	StopGrace      time.Duration // processes that were asked to end get so long
	HealthCheck    time.Duration // a worker that was idle for Unheard has so long to answer a ping before its next call
	Unheard        time.Duration // 0: every worker without calls is asked
	SweepInterval  time.Duration
	Crash          Limits
	Idle           memory.Limits
	Rules          memory.Rules // of admission; zero: the usual ones
	// OpenCards opens the driver's view of the cards; nil: there is none.
	OpenCards func(ctx context.Context) (budget.Cards, error)
	// Options returns the options of one environment, given what its manifest declares: what is set replaces the limits
	// above. May be nil.
	Options func(environment string, declared manifest.Options) manifest.Options

	MemoryFileQuota int64 // bytes, of all processes together
	MemoryFilePool  int64 // bytes that one process may keep for its next values

	Log zerolog.Logger
	// Ready is called once clients are accepted. May be nil.
	Ready func()
}

// environmentLimits are the limits that can differ per environment.
type environmentLimits struct {
	callSilence  time.Duration
	callDeadline time.Duration
	cancelled    time.Duration // how long a call may go on that was cancelled; 0: as long as it likes
	start        time.Duration
	stopGrace    time.Duration
	health       time.Duration // for the answer to a ping; 0: none is asked
	reap         time.Duration
	idleRelease  time.Duration // idle time after which a worker gives its memory back; 0: never
	caps         memory.Caps
	inference    string
}

func (c *Config) check() error {
	switch {
	case c.RuntimeDirectory == "":
		return errors.New("the supervisor needs a runtime directory")
	case c.StateDirectory == "":
		return errors.New("the supervisor needs a state directory")
	case c.Socket == "":
		return errors.New("the supervisor needs a socket")
	case c.Environments == nil:
		return errors.New("the supervisor needs environments")
	case c.Program == "":
		return errors.New("the supervisor needs the Python worker program")
	}
	return nil
}

// limits returns the limits of one environment, whose manifest declares options.
func (c *Config) limits(environment string, declared manifest.Options) environmentLimits {
	options := declared
	if c.Options != nil {
		options = c.Options(environment, declared)
	}
	limits := environmentLimits{
		callSilence: c.CallSilence,
		start:       c.Crash.Start,
		stopGrace:   c.StopGrace,
		health:      c.HealthCheck,
		reap:        c.Idle.Reap,
		idleRelease: c.Idle.IdleRelease,
		inference:   manifest.InferenceMode,
	}
	for _, item := range []struct {
		to   *time.Duration
		from *time.Duration
	}{
		{&limits.callSilence, options.CallSilence}, {&limits.callDeadline, options.CallDeadline},
		{&limits.cancelled, options.CancelDeadline}, {&limits.health, options.HealthCheckTimeout},
		{&limits.start, options.Start}, {&limits.stopGrace, options.StopGrace}, {&limits.reap, options.Reap},
		{&limits.idleRelease, options.IdleRelease},
	} {
		if item.from != nil {
			*item.to = *item.from
		}
	}
	limits.caps = memory.Caps{VRAM: size(options.Memory.VRAM), Pinned: size(options.Memory.PinnedRAM), Resident: size(options.Memory.RAM)}
	if options.Inference != nil {
		limits.inference = *options.Inference
	}
	return limits
}

// size is an amount as the memory accounts take it; nil is no cap.
func size(amount *manifest.Amount) memory.Size {
	if amount == nil {
		return memory.Size{}
	}
	return memory.Size{Bytes: memory.Bytes(amount.Bytes), Percent: amount.Percent}
}
