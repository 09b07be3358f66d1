package manifest

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// span is a range of bytes of the file.
type span struct{ start, end int }

func (s span) empty() bool { return s.end <= s.start }

// columnStride is the distance of the remembered columns within a line, so that finding the column of a
// place costs the same however long the line is.
const columnStride = 1 << 10

// lines finds line, column and text of places in a file.
type lines struct {
	content []byte
	starts  []int // offset of each line's first byte
	// columns remembers, for the long lines asked about, the characters before each multiple of columnStride.
	columns map[int][]int
}

func newLines(content []byte) *lines {
	starts := make([]int, 1, 1+bytes.Count(content, []byte{'\n'}))
	for offset := 0; ; {
		next := bytes.IndexByte(content[offset:], '\n')
		if next < 0 {
			break
		}
		offset += next + 1
		starts = append(starts, offset)
	}
	return &lines{content: content, starts: starts}
}

// line returns the index of the line that holds an offset.
func (l *lines) line(offset int) int {
	return sort.SearchInts(l.starts, offset+1) - 1
}

// text returns a line without its end.
func (l *lines) text(line int) []byte {
	end := len(l.content)
	if line+1 < len(l.starts) {
		end = l.starts[line+1] - 1
	}
	return bytes.TrimSuffix(l.content[l.starts[line]:end], []byte{'\r'})
}

// position turns an offset into line and column, both counted from 1, columns in characters.
func (l *lines) position(offset int) Position {
	offset = min(max(offset, 0), len(l.content))
	line := l.line(offset)
	start := l.starts[line]
	if offset-start < 2*columnStride {
		return Position{Line: line + 1, Column: utf8.RuneCount(l.content[start:offset]) + 1}
	}
	marks := l.marks(line)
	block := (offset - start) / columnStride
	from := start + block*columnStride
	return Position{Line: line + 1, Column: marks[block] + countCharacters(l.content, from, offset) + 1}
}

// marks returns the characters that start before each multiple of columnStride in a line.
func (l *lines) marks(line int) []int {
	if marks, ok := l.columns[line]; ok {
		return marks
	}
	start, end := l.starts[line], len(l.content)
	if line+1 < len(l.starts) {
		end = l.starts[line+1]
	}
	marks := make([]int, 0, (end-start)/columnStride+1)
	count := 0
	for from := start; from <= end; from += columnStride {
		marks = append(marks, count)
		count += countCharacters(l.content, from, min(from+columnStride, end))
	}
	if l.columns == nil {
		l.columns = map[int][]int{}
	}
	l.columns[line] = marks
	return marks
}

// countCharacters counts the characters that start in a range, so that counts of neighbouring ranges add up.
func countCharacters(content []byte, from, to int) int {
	count := 0
	for _, b := range content[from:to] {
		if utf8.RuneStart(b) {
			count++
		}
	}
	return count
}

// offending returns a span's text in its first line and the number of its characters, at least 1.
func (l *lines) offending(s span) (text string, length int) {
	s.start = min(max(s.start, 0), len(l.content))
	s.end = min(max(s.end, s.start), len(l.content))
	raw := l.content[s.start:s.end]
	if end := bytes.IndexByte(raw, '\n'); end >= 0 {
		raw = bytes.TrimSuffix(raw[:end], []byte{'\r'})
	}
	return string(raw), max(utf8.RuneCount(raw), 1)
}
