package spawn

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"
)

// Bounds of what a launcher keeps of a worker's output.
const (
	spoolBytes     = 1 << 20 // lines that nobody has fetched yet
	lineOverhead   = 96      // bytes that a line costs beyond its text
	logBatchLines  = 512
	logBatchBytes  = 128 << 10
	stderrTail     = 40
	tailLineBytes  = 4 << 10
	outputReadSize = 32 << 10
)

// spool keeps lines between Python, which never waits, and whoever fetches them. When it is full the oldest lines go,
// and are counted.
type spool struct {
	wake chan struct{} // has a token when there may be something to take

	mu           sync.Mutex
	lines        []Line
	bytes        int
	droppedLines int64 // since the last line taken
	droppedBytes int64
	totalDropped int64
	tail         tail
}

func newSpool() *spool { return &spool{wake: make(chan struct{}, 1)} }

// read drains one descriptor until its end. It is the only thing that the child's writes depend on.
func (s *spool) read(stream string, from io.Reader) {
	splitter := lineSplitter{emit: func(text string, cut int64) {
		s.add(Line{Time: time.Now(), Stream: stream, Text: text, CutBytes: cut})
	}}
	buffer := make([]byte, outputReadSize)
	for {
		count, err := from.Read(buffer)
		splitter.write(buffer[:count])
		if err != nil { // the end, or closed by the launcher
			splitter.flush()
			return
		}
		runtime.Gosched() // a flood must not hold up the frames
	}
}

func (s *spool) add(line Line) {
	s.mu.Lock()
	if line.Stream == StreamStderr {
		s.tail.add(line.Text)
	}
	s.lines = append(s.lines, line)
	s.bytes += len(line.Text) + lineOverhead
	if s.bytes > spoolBytes {
		s.dropOldest()
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// dropOldest makes room for a quarter of the spool, so that a flood does not move lines one by one.
func (s *spool) dropOldest() {
	count := 0
	for s.bytes > spoolBytes*3/4 && count < len(s.lines)-1 {
		line := &s.lines[count]
		s.bytes -= len(line.Text) + lineOverhead
		s.droppedLines++
		s.droppedBytes += int64(len(line.Text)) + line.CutBytes + 1
		count++
	}
	s.totalDropped += int64(count)
	s.removeFirst(count)
}

func (s *spool) removeFirst(count int) {
	rest := copy(s.lines, s.lines[count:])
	clear(s.lines[rest:])
	s.lines = s.lines[:rest]
}

// take returns the next lines, waiting for one if there is none. It returns nil when the context has ended, and when
// there are no lines and the writers have ended.
func (s *spool) take(ctx context.Context, ended <-chan struct{}) []Line {
	for ctx.Err() == nil {
		if lines := s.takeNow(); len(lines) > 0 {
			return lines
		}
		select {
		case <-s.wake:
		case <-ended:
			return s.takeNow()
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *spool) takeNow() []Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, bytes := 0, 0
	for count < len(s.lines) && count < logBatchLines && (count == 0 || bytes+len(s.lines[count].Text) <= logBatchBytes) {
		bytes += len(s.lines[count].Text)
		count++
	}
	if count == 0 {
		return nil
	}
	lines := append([]Line(nil), s.lines[:count]...)
	lines[0].DroppedLines, lines[0].DroppedBytes = s.droppedLines, s.droppedBytes
	s.droppedLines, s.droppedBytes = 0, 0
	s.bytes -= bytes + count*lineOverhead
	s.removeFirst(count)
	if len(s.lines) == 0 {
		s.lines = nil
	} else {
		select { // there is more
		case s.wake <- struct{}{}:
		default:
		}
	}
	return lines
}

// lost counts lines that were taken and could not be handed on.
func (s *spool) lost(lines []Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range lines {
		s.droppedLines += 1 + line.DroppedLines
		s.droppedBytes += int64(len(line.Text)) + line.CutBytes + 1 + line.DroppedBytes
	}
	s.totalDropped += int64(len(lines))
}

// dropped is how many lines were lost so far.
func (s *spool) dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totalDropped
}

// lastStderr is the last lines of standard error.
func (s *spool) lastStderr() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.lines()
}

// tail keeps the last few lines of a stream, each cut to tailLineBytes.
type tail struct {
	ring [stderrTail]string
	next int // counts the lines ever added
}

func (t *tail) add(line string) {
	if len(line) > tailLineBytes {
		line = lineText([]byte(line[:tailLineBytes]), int64(len(line)-tailLineBytes))
	}
	t.ring[t.next%stderrTail] = line
	t.next++
}

func (t *tail) lines() []string {
	var lines []string
	for index := max(0, t.next-stderrTail); index < t.next; index++ {
		lines = append(lines, t.ring[index%stderrTail])
	}
	return lines
}
