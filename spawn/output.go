package spawn

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxLineBytes is the longest line that is kept, the mark of a cut one included.
const maxLineBytes = 64 << 10

// cutMarkBytes is room for the mark.
const cutMarkBytes = 48

// lineSplitter makes lines of one descriptor's output, in memory bounded by the longest line that is kept. What \r
// overwrites is folded away, as a terminal would.
type lineSplitter struct {
	emit func(text string, cut int64)

	line   []byte
	cut    int64 // bytes of this line beyond what is kept
	atHome bool  // a \r came last: what follows, unless it is a newline, overwrites the line
}

func (s *lineSplitter) write(chunk []byte) {
	for len(chunk) > 0 {
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			s.add(chunk)
			return
		}
		s.add(chunk[:end])
		s.finish()
		chunk = chunk[end+1:]
	}
}

// add takes text without a newline.
func (s *lineSplitter) add(text []byte) {
	if len(text) == 0 {
		return
	}
	visible, last := text, -1
	if bytes.IndexByte(text, '\r') >= 0 { // much faster than the two below, and nearly always enough
		visible = bytes.TrimRight(text, "\r")
		last = bytes.LastIndexByte(visible, '\r')
	}
	if len(visible) > 0 {
		if s.atHome || last >= 0 {
			s.line, s.cut = s.line[:0], 0
		}
		visible = visible[last+1:]
		room := maxLineBytes - cutMarkBytes - len(s.line)
		kept := min(room, len(visible))
		s.line = append(s.line, visible[:kept]...)
		s.cut += int64(len(visible) - kept)
		s.atHome = false
	}
	if text[len(text)-1] == '\r' {
		s.atHome = true
	}
}

// finish ends the line.
func (s *lineSplitter) finish() {
	s.emit(lineText(s.line, s.cut), s.cut)
	s.cut, s.atHome = 0, false
	if cap(s.line) > 8<<10 {
		s.line = nil // long lines are rare; their memory need not stay
	} else {
		s.line = s.line[:0]
	}
}

// flush ends a line that no newline ended, if there is one.
func (s *lineSplitter) flush() {
	if len(s.line) > 0 || s.cut > 0 {
		s.finish()
	}
}

// forget leaves out what has come of the line that is being made.
func (s *lineSplitter) forget() { s.line, s.cut, s.atHome = s.line[:0], 0, false }

// lineText is a line as valid UTF-8, with the mark when it was cut.
func lineText(line []byte, cut int64) string {
	text := strings.ToValidUTF8(string(line), string(utf8.RuneError))
	if limit := maxLineBytes - cutMarkBytes; len(text) > limit { // replacement characters are longer than what they replace
		for !utf8.RuneStart(text[limit]) {
			limit--
		}
		cut += int64(len(text) - limit)
		text = text[:limit]
	}
	if cut > 0 {
		text += fmt.Sprintf(" [cut: %d bytes more]", cut)
	}
	return text
}
