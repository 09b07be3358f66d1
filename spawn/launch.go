package spawn

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// AttachOptions are what Attach needs beyond the record.
type AttachOptions struct {
	Log    LogSink
	Phase  func(PhaseReport)
	Logger zerolog.Logger
}

// Launch starts a launcher and, through it, Python. It returns when Python's hello has arrived; the handler has seen it
// by then. When the launch fails nothing of it is left.
func Launch(ctx context.Context, spec Spec, handler wire.Handler) (Worker, error) {
	return nil, errors.New("not yet")
}

// Attach adopts a live launcher: the process is the recorded one and answers as such.
func Attach(ctx context.Context, record Record, handler wire.Handler, options AttachOptions) (Worker, error) {
	return nil, errors.New("not yet")
}

// ServeLauncher is the body of the `worker` command.
func ServeLauncher() {}

// Sweep kills.
func Sweep(ctx context.Context, live map[string]bool) (killed []Process, err error) { return nil, nil }

// RemoveStale ends what a record's launcher left behind - processes, control group, folder.
func RemoveStale(ctx context.Context, folder string) error { return nil }

// BecomeSubreaper makes this process the parent of orphaned descendants, and reaps them.
func BecomeSubreaper() (stop func(), err error) { return func() {}, nil }

// DefaultMemoryFileQuota is half of the memory that is available now, in bytes.
func DefaultMemoryFileQuota() int64 { return 0 }

func syncFolder(path string) error { return nil }
