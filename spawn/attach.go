package spawn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"

	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// AttachOptions are what Attach needs beyond the record; see Spec for the fields.
type AttachOptions struct {
	Log    LogSink
	Phase  func(PhaseReport)
	Logger zerolog.Logger
}

// Attach adopts a live launcher: the recorded process still runs, answers, and says that it is that worker's. What it
// has buffered of Python's frames and output arrives.
//
// It returns ErrLauncherGone, ErrWorkerEnded or ErrNotOurs where that is the matter; then RemoveStale cleans up.
func Attach(ctx context.Context, record Record, handler wire.Handler, options AttachOptions) (Worker, error) {
	fail := func(err error) (Worker, error) {
		return nil, fmt.Errorf("adopting worker %s of %s: %w", record.Worker, record.Environment, err)
	}
	if _, known := pluginSets(nil)[record.ProtocolVersion]; !known {
		return fail(fmt.Errorf("its launcher speaks protocol %d, which this program does not", record.ProtocolVersion))
	}
	watch, err := WatchProcess(record.Launcher)
	if errors.Is(err, ErrProcessGone) {
		return fail(ErrLauncherGone)
	}
	if err != nil {
		return fail(err)
	}
	w := newWorker(handler, options.Log, options.Phase, options.Logger)
	w.record = record
	w.launcher = watch
	attached := newAttachedRunner(watch, record.Folder)
	w.runner = attached
	w.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		Plugins:          pluginSets(nil)[record.ProtocolVersion],
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclogTo(w.logger),
		GRPCDialOptions:  append(dialOptions(record.Key), dialerOption(func() (string, string) { return record.Network, w.address() })),
		Reattach: &plugin.ReattachConfig{
			Protocol:        plugin.ProtocolGRPC,
			ProtocolVersion: record.ProtocolVersion,
			Addr:            launcherAddress{record.Network, w.address()},
			ReattachFunc:    func() (runner.AttachedRunner, error) { return attached, nil },
		},
	})
	if err := w.adopt(ctx); err != nil {
		attached.detach()
		w.hangUp()
		watch.Close()
		return fail(err)
	}
	w.run()
	return w, nil
}

// adopt connects and makes sure who answers.
func (w *worker) adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverLimit+answerLimit)
	defer cancel()
	if err := w.dispense(); err != nil {
		return err
	}
	description, err := w.api.Describe(ctx, &launcherpb.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("asking the launcher who it is: %w", plainError(err))
	}
	switch {
	case description.GetWorker() != w.record.Worker,
		identityIn(description.GetLauncher()) != w.record.Launcher,
		identityIn(description.GetPython()) != w.record.Python:
		return ErrNotOurs
	case description.GetStopping(), description.GetExit() != nil:
		return ErrWorkerEnded
	}
	close(w.hello) // Python said it to an earlier supervisor
	w.helloOnce.Do(func() {})
	if err := w.openLine(ctx); err != nil {
		return err
	}
	// What Python still owes to an earlier supervisor must not pass for an answer to this one. Below 2^52: JSON numbers
	// are exact up to 2^53, and the launcher uses the last of them.
	w.peer.SkipTo((1 + rand.Uint64N(1<<20-2)) << 32)
	return w.takeLine(ctx)
}

// launcherAddress is a net.Addr; gRPC's dialer does the work.
type launcherAddress struct{ network, address string }

// Network implements net.Addr.
func (a launcherAddress) Network() string { return a.network }

// String implements net.Addr.
func (a launcherAddress) String() string { return a.address }

var _ net.Addr = launcherAddress{}

// RemoveStale ends and removes everything that a worker's folder stands for: its launcher, its process tree, its
// control group and the folder. The record in it may be damaged: the folder's name is the worker's ID. A process is
// killed only when it carries that ID.
func RemoveStale(ctx context.Context, folder string) error {
	fail := func(err error) error {
		return fmt.Errorf("removing what is left in %s: %w", folder, err)
	}
	tree := Tree{Worker: filepath.Base(folder)}
	if !validWorkerID(tree.Worker) {
		return fail(errors.New("its name is not a worker's ID"))
	}
	if record, err := LoadRecord(folder); err == nil {
		tree.Python, tree.Launcher, tree.Cgroup = record.Python, record.Launcher, record.Cgroup
	}
	if tree.Cgroup == "" {
		tree.Cgroup = expectedCgroup(tree.Worker)
	}
	if err := killLauncher(ctx, &tree); err != nil {
		return fail(err)
	}
	left, err := tree.Kill(ctx)
	if err != nil {
		return fail(err)
	}
	if len(left) > 0 {
		return fail(fmt.Errorf("%d processes do not end, such as %v", len(left), left[0]))
	}
	return errors.Join(removeCgroup(tree.Cgroup), removeFolder(folder))
}

// killLauncher kills the launcher of a tree, found by its mark, and waits for its end.
func killLauncher(ctx context.Context, tree *Tree) error {
	launchers, err := findLaunchers(tree)
	if err != nil {
		return err
	}
	for _, launcher := range launchers {
		watch, err := WatchProcess(launcher)
		if errors.Is(err, ErrProcessGone) {
			continue
		}
		if err != nil {
			return err
		}
		err = watch.Kill()
		if err == nil {
			select {
			case <-watch.Done():
			case <-ctx.Done():
				err = fmt.Errorf("waiting for the end of the launcher, %v: %w", launcher, ctx.Err())
			}
		}
		watch.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
