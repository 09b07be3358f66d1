package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// Limits of the logs. Two files of logFileBytes are kept per environment; what arrives faster than the disk takes it is
// counted and dropped.
const (
	logFileBytes  = 8 << 20
	logQueueBytes = 1 << 20
)

// streamSupervisor is the stream of what the supervisor itself has to say in a worker's log.
const streamSupervisor = "supervisor"

// logs are the per-environment logs of all workers. A line is queued and written by the environment's own goroutine:
// neither a worker nor anybody else ever waits for a disk.
type logs struct {
	folder string
	mu     sync.Mutex
	open   map[string]*environmentLog
	closed bool
}

// environmentLog is the log of one environment, of all its workers.
type environmentLog struct {
	path string
	done chan struct{} // closed when the writing goroutine has ended

	mu          sync.Mutex
	wake        sync.Cond
	queue       []logJob
	queuedBytes int
	dropped     int
	closed      bool

	// What follows belongs to the writing goroutine.
	file      *os.File
	size      int64
	lost      int // lines that a refusing disk cost
	followers map[*logFollower]struct{}
}

// logJob is one thing for the writing goroutine: a line, or a function that runs between two lines.
type logJob struct {
	line api.LogLine
	run  func()
}

// logFollower gets lines on the writing goroutine; it must not block.
type logFollower struct {
	deliver func(api.LogLine)
}

func newLogs(folder string) (*logs, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the logs: %w", err)
	}
	return &logs{folder: folder, open: make(map[string]*environmentLog)}, nil
}

// of returns an environment's log; nil after close.
func (l *logs) of(environment string) *environmentLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	log := l.open[environment]
	if log == nil {
		log = &environmentLog{
			path:      l.path(environment),
			done:      make(chan struct{}),
			followers: make(map[*logFollower]struct{}),
		}
		log.wake.L = &log.mu
		l.open[environment] = log
		go log.write()
	}
	return log
}

func (l *logs) path(environment string) string {
	return filepath.Join(l.folder, url.QueryEscape(environment)+".log")
}

// exists tells whether an environment has ever logged anything.
func (l *logs) exists(environment string) bool {
	l.mu.Lock()
	open := l.open[environment] != nil
	l.mu.Unlock()
	if open {
		return true
	}
	var err error
	logTurns.Do(func() { _, err = os.Stat(l.path(environment)) })
	return err == nil
}

// add queues a line.
func (l *logs) add(line api.LogLine) {
	if log := l.of(line.Environment); log != nil {
		log.add(line)
	}
}

// close writes what is queued and ends all goroutines.
func (l *logs) close() {
	l.mu.Lock()
	l.closed = true
	open := l.open
	l.mu.Unlock()
	for _, log := range open {
		log.mu.Lock()
		log.closed = true
		log.wake.Signal()
		log.mu.Unlock()
	}
	for _, log := range open {
		<-log.done
	}
}

func (l *environmentLog) add(line api.LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.queuedBytes+len(line.Line) > logQueueBytes {
		l.dropped++
		return
	}
	if l.dropped > 0 {
		l.queue = append(l.queue, logJob{line: api.LogLine{
			Environment: line.Environment, Session: line.Session, Generation: line.Generation,
			Stream: streamSupervisor, Time: line.Time,
			Line: levelled(levelWarning, "%d lines dropped: they came faster than they could be written", l.dropped),
		}})
		l.dropped = 0
	}
	l.queue = append(l.queue, logJob{line: line})
	l.queuedBytes += len(line.Line) + 64
	l.wake.Signal()
}

// run lets the writing goroutine call a function between two lines, and waits until it has; false after close.
func (l *environmentLog) run(function func()) bool {
	finished := make(chan struct{})
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.queue = append(l.queue, logJob{run: func() {
		defer close(finished)
		function()
	}})
	l.wake.Signal()
	l.mu.Unlock()
	<-finished
	return true
}

// write is the log's goroutine.
func (l *environmentLog) write() {
	defer close(l.done)
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.closed {
			l.wake.Wait()
		}
		jobs := l.queue
		l.queue = nil
		l.queuedBytes = 0
		closed := l.closed
		l.mu.Unlock()
		if len(jobs) == 0 && closed {
			if l.file != nil {
				_ = l.file.Close() // every line has been written and its error handled
			}
			return
		}
		l.handle(jobs)
	}
}

func (l *environmentLog) handle(jobs []logJob) {
	var buffer []byte
	for _, job := range jobs {
		if job.run != nil {
			l.append(buffer)
			buffer = buffer[:0]
			job.run()
			continue
		}
		buffer = appendLogLine(buffer, job.line)
		for follower := range l.followers {
			follower.deliver(job.line)
		}
	}
	l.append(buffer)
}

// append writes to the file, which it opens and rotates as needed. A disk that refuses costs the lines, nothing else:
// followers have them already, the next lines are tried again, and the log then says how many are missing.
func (l *environmentLog) append(content []byte) {
	if len(content) == 0 {
		return
	}
	if l.lost > 0 {
		notice := appendLogLine(nil, api.LogLine{Stream: streamSupervisor, Time: time.Now(),
			Line: levelled(levelWarning, "%d lines lost: the log could not be written", l.lost)})
		content = append(notice, content...)
	}
	var err error
	logTurns.Do(func() {
		if err = l.prepare(int64(len(content))); err == nil {
			var written int
			written, err = l.file.Write(content)
			l.size += int64(written)
		}
	})
	if err == nil {
		l.lost = 0
		return
	}
	l.lost += bytes.Count(content, []byte("\n"))
	if l.file != nil {
		_ = l.file.Close() // it is opened again for the next lines
		l.file = nil
	}
}

func (l *environmentLog) prepare(more int64) error {
	if l.file != nil && l.size+more > logFileBytes {
		_ = l.file.Close()
		l.file = nil
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
	}
	if l.file != nil {
		return nil
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	return nil
}

// read returns the last lines that are wanted, all of them for a negative number; wanted sees every line, in order.
// Those to come go to follow, unless that is nil, with
// none missing or doubled in between, until stop is called; follow runs on the writing goroutine and must not block.
func (l *environmentLog) read(environment string, lines int, wanted func(*api.LogLine) bool, follow func(api.LogLine)) (kept []api.LogLine, stop func(), err error) {
	follower := &logFollower{deliver: follow}
	ran := l.run(func() {
		logTurns.Do(func() { kept, err = tailLog(l.path, lines, wanted) })
		if err == nil && follow != nil {
			l.followers[follower] = struct{}{}
		}
	})
	if !ran {
		return nil, nil, errors.New("the supervisor is ending")
	}
	for i := range kept {
		kept[i].Environment = environment
	}
	return kept, func() { l.run(func() { delete(l.followers, follower) }) }, err
}

// appendLogLine writes a line as: time, stream, session, generation, text.
func appendLogLine(buffer []byte, line api.LogLine) []byte {
	session := line.Session
	if session == "" {
		session = "-"
	}
	buffer = line.Time.UTC().AppendFormat(buffer, "2006-01-02T15:04:05.000000Z")
	buffer = append(buffer, ' ')
	buffer = append(buffer, line.Stream...)
	buffer = append(buffer, ' ')
	buffer = append(buffer, session...)
	buffer = append(buffer, ' ')
	buffer = strconv.AppendUint(buffer, line.Generation, 10)
	buffer = append(buffer, ' ')
	buffer = append(buffer, strings.ReplaceAll(line.Line, "\n", "\\n")...)
	return append(buffer, '\n')
}

func parseLogLine(text string) (api.LogLine, bool) {
	fields := strings.SplitN(text, " ", 5)
	if len(fields) < 5 {
		return api.LogLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, fields[0])
	if err != nil {
		return api.LogLine{}, false
	}
	generation, err := strconv.ParseUint(fields[3], 10, 64)
	if err != nil {
		return api.LogLine{}, false
	}
	session := fields[2]
	if session == "-" {
		session = ""
	}
	return api.LogLine{Time: at, Stream: fields[1], Session: session, Generation: generation, Line: fields[4]}, true
}

// tailLog reads the last lines of a log and, if there are too few, of the file before it.
func tailLog(path string, lines int, wanted func(*api.LogLine) bool) ([]api.LogLine, error) {
	var kept []api.LogLine
	for _, name := range []string{path + ".1", path} {
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the log: %w", err)
		}
		kept, err = appendTail(kept, file, lines, wanted)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the log %s: %w", name, err)
		}
	}
	return kept, nil
}

func appendTail(kept []api.LogLine, reader io.Reader, lines int, wanted func(*api.LogLine) bool) ([]api.LogLine, error) {
	buffered := bufio.NewReaderSize(reader, 128<<10)
	for {
		text, err := buffered.ReadString('\n')
		if line, ok := parseLogLine(strings.TrimSuffix(text, "\n")); ok && wanted(&line) {
			kept = append(kept, line)
			if lines >= 0 && len(kept) > 2*lines+64 { // keep the memory small without moving at every line
				kept = append(kept[:0], kept[len(kept)-lines:]...)
			}
		}
		if errors.Is(err, io.EOF) {
			if lines >= 0 && len(kept) > lines {
				kept = kept[len(kept)-lines:]
			}
			return kept, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
