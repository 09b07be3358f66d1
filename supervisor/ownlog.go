package supervisor

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ownLogQueueBytes is how much of the supervisor's own log may wait for whoever reads it.
const ownLogQueueBytes = 1 << 20

// LogWriter is the output of a supervisor's own log, for Config.Log. A Write never waits: a terminal that is held, or a
// pipe that nobody reads, stops neither calls nor the goroutines that log, each of which would keep a thread meanwhile.
// What comes while too much waits is dropped, and counted in the log.
//
// zerolog's own diode.Writer (1.35.1) is no such thing: it may miss a wake-up, which leaves a line unwritten until the next.
type LogWriter struct {
	out  io.Writer
	done chan struct{} // closed when the writing goroutine has ended

	mu      sync.Mutex
	wake    sync.Cond
	queue   [][]byte // an event each
	bytes   int      // of the queue, and of what is being written
	dropped int
	closed  bool
}

// NewLogWriter starts writing to out; Close ends that.
func NewLogWriter(out io.Writer) *LogWriter {
	w := &LogWriter{out: out, done: make(chan struct{})}
	w.wake.L = &w.mu
	go w.write()
	return w
}

// Write implements io.Writer. It keeps a copy of one event and never fails.
func (w *LogWriter) Write(event []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.bytes+len(event) > ownLogQueueBytes {
		w.dropped++
		return len(event), nil
	}
	w.queue = append(w.queue, slices.Clone(event))
	w.bytes += len(event)
	w.wake.Signal()
	return len(event), nil
}

// Close writes what waits and ends. It gives up after the time given, which only an output that takes nothing needs; the
// goroutine that writes to it ends when it does.
func (w *LogWriter) Close(within time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.wake.Signal()
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(within):
	}
}

// write is the writing goroutine.
func (w *LogWriter) write() {
	defer close(w.done)
	notices := zerolog.New(w.out).With().Timestamp().Logger()
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && w.dropped == 0 && !w.closed {
			w.wake.Wait()
		}
		events, dropped := w.queue, w.dropped
		w.queue, w.dropped = nil, 0
		closed := w.closed
		w.mu.Unlock()
		if len(events) == 0 && dropped == 0 && closed {
			return
		}
		for _, event := range events {
			_, _ = w.out.Write(event) // there is no other place to say that it failed
			w.mu.Lock()
			w.bytes -= len(event)
			w.mu.Unlock()
		}
		if dropped > 0 {
			notices.Warn().Int("lines", dropped).Msg("lines of this log were dropped: they came faster than they could be written")
		}
	}
}
