package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// logLevels are the levels of Python's logging, least first, with ComfyUI's DETAIL. A worker writes a record as a line
// that begins with its level in brackets, and so does the supervisor.
var logLevels = []string{"DEBUG", "DETAIL", "INFO", "WARNING", "ERROR", "CRITICAL"}

const (
	levelInfo    = "INFO"
	levelWarning = "WARNING"
	levelError   = "ERROR"
)

// parseLevel turns what a user writes into a number to compare; 0 for nothing.
func parseLevel(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	upper := strings.ToUpper(name)
	if upper == "WARN" {
		upper = levelWarning
	}
	if rank := slices.Index(logLevels, upper); rank >= 0 {
		return rank, nil
	}
	return 0, wire.Errorf(wire.KindBadRequest, "the level is %q; known are %s", name, strings.ToLower(strings.Join(logLevels, ", ")))
}

// statedLevel is the level that a line begins with, "" if it does not.
func statedLevel(text string) string {
	if !strings.HasPrefix(text, "[") {
		return ""
	}
	end := strings.Index(text, "] ")
	if end < 0 || !slices.Contains(logLevels, text[1:end]) {
		return ""
	}
	return text[1:end]
}

// levelled is a line of the supervisor's own, with its level.
func levelled(level, format string, arguments ...any) string {
	return "[" + level + "] " + fmt.Sprintf(format, arguments...)
}

// levels gives lines their levels, in the order in which they were written. Those that state none get that of the
// record that they go on with, a traceback is an error, and the rest is as important as its stream.
type levels struct {
	streams map[levelStream]levelState
}

type levelStream struct {
	session    string
	generation uint64
	stream     string
}

type levelState struct {
	level     string
	traceback bool // its last line, which is not indented, is still to come
}

// of returns a line's level.
func (l *levels) of(line api.LogLine) string {
	if l.streams == nil {
		l.streams = make(map[levelStream]levelState)
	}
	key := levelStream{line.Session, line.Generation, line.Stream}
	state := l.streams[key]
	text := line.Line
	indented := strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t")
	switch stated := statedLevel(text); {
	case stated != "":
		state = levelState{level: stated}
	case strings.HasPrefix(strings.TrimLeft(text, " |+"), "Traceback (most recent call last)"):
		state = levelState{level: levelError, traceback: true}
	case indented && state.level != "":
		return state.level
	case state.traceback: // the exception itself
		l.streams[key] = levelState{level: levelError}
		return levelError
	case line.Stream == "stderr":
		state = levelState{level: levelWarning}
	default:
		state = levelState{level: levelInfo}
	}
	l.streams[key] = state
	return state.level
}

// newLevelFilter returns a function that reports whether a line is at least as important as a level, and notes the
// line's own level in it.
func newLevelFilter(least int) func(*api.LogLine) bool {
	var known levels
	return func(line *api.LogLine) bool {
		line.Level = known.of(*line)
		return slices.Index(logLevels, line.Level) >= least
	}
}
