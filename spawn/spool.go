package spawn

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Bounds of what a launcher keeps of a worker's output.
const (
	spoolBytes     = 2 << 20 // of output that nobody has fetched yet
	spoolOverhead  = 32      // bytes that a line and a chunk count in the spool beyond their text
	lineOverhead   = 96      // bytes that a line costs beyond its text once it is one
	logBatchLines  = 256
	logBatchBytes  = 128 << 10
	stderrTail     = 40
	tailLineBytes  = 4 << 10
	outputReadSize = 32 << 10
	chunkBytes     = 4 << 10 // what is dropped at once, at most: even nothing but newlines is a part of the spool only
)

// spool keeps output between Python, which never waits, and whoever fetches it. It keeps what was read as it came, with
// the time: lines are made when they are fetched, so that a flood costs little more than reading it. When the spool is
// full the oldest output goes, and its lines are counted.
type spool struct {
	wake  chan struct{} // has a token when there may be something to take
	limit int

	mu           sync.Mutex
	sources      []*source
	chunks       []chunk
	bytes        int   // of the chunks, each line with its overhead
	droppedLines int64 // since the last line taken
	droppedBytes int64
	totalDropped int64
	taken        []Line // while lines are made
	spare        []byte // a buffer to read into
	tail         tail
}

// chunk is a part of what was read at once, or what is left of it.
type chunk struct {
	at     time.Time
	from   *source
	text   []byte
	lines  int    // newlines in the text
	end    bool   // of the descriptor
	buffer []byte // nobody needs it once this chunk has gone; or nil
}

// cost is what a chunk counts in the spool.
func (c *chunk) cost() int { return len(c.text) + (c.lines+1)*spoolOverhead }

// source is one descriptor.
type source struct {
	stream   string
	splitter lineSplitter
	at       time.Time // when what is being split was read
	dropping bool      // the lines go no further than into the tail
}

func newSpool() *spool { return &spool{wake: make(chan struct{}, 1), limit: spoolBytes} }

// newSource is a descriptor that is going to be read.
func (s *spool) newSource(stream string) *source {
	from := &source{stream: stream}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, from)
	from.splitter.emit = func(text string, cut int64) {
		if stream == StreamStderr {
			s.tail.add(text)
		}
		if from.dropping {
			s.droppedLines++
			s.totalDropped++
			return
		}
		s.taken = append(s.taken, Line{Time: from.at, Stream: stream, Text: text, CutBytes: cut})
	}
	return from
}

// read drains one descriptor until its end. It is the only thing that the child's writes depend on.
func (s *spool) read(stream string, from io.Reader) {
	source := s.newSource(stream)
	var buffer []byte
	for {
		if buffer == nil {
			buffer = s.spareBuffer()
		}
		count, err := from.Read(buffer)
		now, text := time.Now(), buffer[:count]
		if count < outputReadSize/2 {
			text = bytes.Clone(text)
		}
		for part := range slices.Chunk(text, chunkBytes) {
			next := chunk{at: now, from: source, text: part, lines: bytes.Count(part, newline)}
			if count >= outputReadSize/2 && &part[len(part)-1] == &text[count-1] {
				next.buffer, buffer = buffer, nil
			}
			s.add(next)
		}
		if err != nil { // the end, or closed by the launcher
			s.add(chunk{at: now, from: source, end: true})
			return
		}
		runtime.Gosched() // a flood must not hold up the frames
	}
}

// spareBuffer is one to read into: in a flood, one that was dropped.
func (s *spool) spareBuffer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if buffer := s.spare; buffer != nil {
		s.spare = nil
		return buffer
	}
	return make([]byte, outputReadSize)
}

var newline = []byte{'\n'}

func (s *spool) add(chunk chunk) {
	s.mu.Lock()
	s.chunks = append(s.chunks, chunk)
	s.bytes += chunk.cost()
	for s.bytes > s.limit && len(s.chunks) > 1 {
		s.dropOldest()
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// removeOldest takes the oldest chunk out of the spool. Its text is valid until the next buffer is asked for.
func (s *spool) removeOldest() chunk {
	oldest := s.chunks[0]
	s.chunks[0] = chunk{}
	s.chunks = s.chunks[1:]
	s.bytes -= oldest.cost()
	if oldest.buffer != nil {
		s.spare = oldest.buffer
	}
	return oldest
}

// dropOldest drops the lines that end in the oldest chunk. A line that only begins there is not lost: its end is still
// to come.
func (s *spool) dropOldest() {
	oldest := s.removeOldest()
	from := oldest.from
	from.dropping = true
	if oldest.lines > 0 {
		end := bytes.LastIndexByte(oldest.text, '\n') + 1
		s.droppedBytes += int64(len(from.splitter.line)) + from.splitter.cut + int64(end)
		last := end // the begin of what has to be looked at line by line
		if from.stream == StreamStderr {
			last = beginOfLast(oldest.text[:end], stderrTail)
		}
		if last > 0 {
			lines := int64(bytes.Count(oldest.text[:last], newline))
			s.droppedLines += lines
			s.totalDropped += lines
			from.splitter.forget()
		}
		oldest.text = oldest.text[last:]
	}
	from.splitter.write(oldest.text)
	if oldest.end {
		s.droppedBytes += int64(len(from.splitter.line)) + from.splitter.cut
		from.splitter.flush()
	}
	from.dropping = false
}

// beginOfLast is where the last few lines of a text begin, which ends with a newline.
func beginOfLast(text []byte, count int) int {
	begin := len(text)
	for range count {
		if begin == 0 {
			return 0
		}
		begin = bytes.LastIndexByte(text[:begin-1], '\n') + 1
	}
	return begin
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
	size := 0
	for len(s.chunks) > 0 && len(s.taken) < logBatchLines && size < logBatchBytes {
		before := len(s.taken)
		s.splitOldest()
		for _, line := range s.taken[before:] {
			size += len(line.Text)
		}
	}
	lines := s.taken
	s.taken = nil
	if len(lines) == 0 {
		return nil
	}
	lines[0].DroppedLines, lines[0].DroppedBytes = s.droppedLines, s.droppedBytes
	s.droppedLines, s.droppedBytes = 0, 0
	if len(s.chunks) == 0 {
		s.chunks = nil
	} else {
		select { // there is more
		case s.wake <- struct{}{}:
		default:
		}
	}
	return lines
}

// splitOldest makes the next line of the oldest chunk.
func (s *spool) splitOldest() {
	oldest := &s.chunks[0]
	from := oldest.from
	from.at = oldest.at
	if oldest.lines > 0 {
		end := bytes.IndexByte(oldest.text, '\n') + 1
		from.splitter.write(oldest.text[:end])
		s.bytes -= end + spoolOverhead
		oldest.text = oldest.text[end:]
		oldest.lines--
		return
	}
	last := s.removeOldest()
	from.splitter.write(last.text)
	if last.end {
		from.splitter.flush()
	}
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

// lastStderr is the last lines of standard error, fetched or not, and what has come of the next one.
func (s *spool) lastStderr() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	tail := s.tail
	for _, from := range s.sources {
		if from.stream != StreamStderr {
			continue
		}
		splitter := from.splitter
		splitter.line = bytes.Clone(splitter.line)
		splitter.emit = func(text string, _ int64) { tail.add(text) }
		for _, chunk := range s.chunks {
			if chunk.from == from {
				splitter.write(chunk.text)
			}
		}
		splitter.flush()
	}
	return tail.lines()
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
