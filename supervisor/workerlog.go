package supervisor

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// workerLog puts a worker's output into its environment's log.
type workerLog struct {
	daemon *Daemon
	worker *worker
}

// Log takes one line.
func (l *workerLog) Log(line spawn.Line) {
	entry := api.LogLine{
		Environment: l.worker.place.environment, Session: l.worker.place.session.id, Generation: l.worker.generation,
		Stream: line.Stream, Time: line.Time, Line: line.Text,
	}
	if line.DroppedLines > 0 || line.DroppedBytes > 0 {
		lost := entry
		lost.Stream = streamSupervisor
		lost.Line = levelled(levelWarning, "%d lines, %d bytes dropped: they came faster than they could be read", line.DroppedLines, line.DroppedBytes)
		l.daemon.logs.add(lost)
	}
	l.daemon.logs.add(entry)
	l.daemon.showHost(l.worker.place.session, entry)
}

// note puts a line of the supervisor's own into a worker's log.
func (d *Daemon) note(w *worker, level, format string, arguments ...any) {
	d.logs.add(api.LogLine{
		Environment: w.place.environment, Session: w.place.session.id, Generation: w.generation,
		Stream: streamSupervisor, Time: time.Now(), Line: levelled(level, format, arguments...),
	})
}

// workerLogger is the daemon's log with a worker's name in every line.
func (d *Daemon) workerLogger(w *worker) zerolog.Logger {
	return d.log.With().Str("worker", w.id).Str("environment", w.place.environment).Uint64("generation", w.generation).Logger()
}

// launcherPhase takes what a launcher says about where it is.
func (d *Daemon) launcherPhase(w *worker, report spawn.PhaseReport) {
	text := report.Phase
	if report.Detail != "" {
		text += ": " + report.Detail
	}
	d.log.Debug().Str("worker", w.id).Str("phase", text).Msg("launcher")
	if report.Phase == spawn.PhaseStarted {
		d.setPhase(w, "waiting for Python's first words")
	}
}

// passOn gives a host's note about an object that it dropped to the worker that has it. A worker that does not run has
// nothing to drop.
func (d *Daemon) passOn(s *session, notification *wire.Message) {
	params, err := decode[api.EnvironmentParams](notification)
	if err != nil {
		return
	}
	d.mu.Lock()
	p := s.places[params.Environment]
	if p == nil || !p.current.record.State.alive() || p.current.record.State == Starting ||
		notification.Generation != 0 && notification.Generation != p.current.generation {
		d.mu.Unlock()
		return
	}
	peer, generation := p.current.peer, p.current.generation
	d.mu.Unlock()
	_ = peer.Notify(&wire.Message{Method: notification.Method, Params: notification.Params, Generation: generation}, nil)
	// A worker that is gone has dropped everything.
}
