package spawn

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type splitLine struct {
	Text string
	Cut  int64
}

// split feeds chunks to a splitter and flushes it.
func split(chunks ...string) []splitLine {
	var lines []splitLine
	splitter := lineSplitter{emit: func(text string, cut int64) { lines = append(lines, splitLine{text, cut}) }}
	for _, chunk := range chunks {
		splitter.write([]byte(chunk))
	}
	splitter.flush()
	return lines
}

func TestLinesAreSplitAndProgressBarsFolded(t *testing.T) {
	for _, test := range []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"plain", []string{"one\ntwo\n"}, []string{"one", "two"}},
		{"in pieces", []string{"o", "ne\nt", "wo", "\n"}, []string{"one", "two"}},
		{"without an end", []string{"one\ntwo"}, []string{"one", "two"}},
		{"empty lines stay", []string{"\n\na\n\n"}, []string{"", "", "a", ""}},
		{"nothing", []string{""}, nil},
		{"Windows newlines", []string{"one\r\ntwo\r", "\n"}, []string{"one", "two"}},
		{"a bar", []string{"\r10%\r20%\r100%\ndone\n"}, []string{"100%", "done"}},
		{"a bar in pieces", []string{"\r10%", "\r20", "%\r", "100%\n"}, []string{"100%"}},
		{"a bar that stands at its end", []string{"10%\r", "20%\r", "\n"}, []string{"20%"}},
		{"a bar that never ends", []string{"10%\r20%\r"}, []string{"20%"}},
		{"several returns", []string{"10%\r\r\r20%\r\r\n"}, []string{"20%"}},
		{"invalid UTF-8", []string{"a\xffb\n"}, []string{"a\ufffdb"}},
		{"a character in two pieces", []string{"\xc3", "\xa9\n"}, []string{"é"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, line := range split(test.chunks...) {
				got = append(got, line.Text)
			}
			if difference := cmp.Diff(test.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestALongLineIsCutWithAMark(t *testing.T) {
	lines := split(strings.Repeat("x", 100_000)+strings.Repeat("y", 100_000), "\nshort\n")
	if len(lines) != 2 || lines[1].Text != "short" || lines[1].Cut != 0 {
		t.Fatalf("%d lines", len(lines))
	}
	cut := int64(200_000 - maxLineBytes + cutMarkBytes)
	if lines[0].Cut != cut || !strings.HasSuffix(lines[0].Text, fmt.Sprintf(" [cut: %d bytes more]", cut)) {
		t.Errorf("cut %d, text ends with %q", lines[0].Cut, lines[0].Text[len(lines[0].Text)-40:])
	}
	if len(lines[0].Text) > maxLineBytes {
		t.Errorf("the line has %d bytes", len(lines[0].Text))
	}
	// Bytes that are no text grow when they are made valid.
	garbage := split(strings.Repeat("\xff", 200_000) + "\n")[0].Text
	if len(garbage) > maxLineBytes || !utf8.ValidString(garbage) {
		t.Errorf("%d bytes, valid: %v", len(garbage), utf8.ValidString(garbage))
	}
}

func TestHowOutputIsChunkedDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\r\n\u00e9")), 0, 60, -1).Draw(t, "text")
		whole := split(text)
		var chunks []string
		for rest := text; rest != ""; {
			size := rapid.IntRange(1, len(rest)).Draw(t, "size")
			chunks = append(chunks, rest[:size])
			rest = rest[size:]
		}
		if difference := cmp.Diff(whole, split(chunks...)); difference != "" {
			t.Errorf("%q as %q: %s", text, chunks, difference)
		}
	})
}

// repeated is a reader of a pattern, again and again, until the bytes are used up.
type repeated struct {
	pattern string
	left    int64
	at      int
}

func (r *repeated) Read(buffer []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	buffer = buffer[:min(int64(len(buffer)), r.left)]
	for count := 0; count < len(buffer); {
		n := copy(buffer[count:], r.pattern[r.at:])
		count += n
		r.at = (r.at + n) % len(r.pattern)
	}
	r.left -= int64(len(buffer))
	return len(buffer), nil
}

func heapBytes() uint64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

func TestAFloodCostsBoundedMemoryAndIsCounted(t *testing.T) {
	for _, test := range []struct {
		name    string
		pattern string
		bytes   int64
	}{
		{"much without a newline", strings.Repeat("x", 32<<10), 1 << 28},
		{"a million short lines", strings.Repeat("short line\n", 1000), 11_000_000},
		{"much progress", strings.Repeat("\r 50% of the work", 1000), 1 << 26},
		{"nothing but newlines", strings.Repeat("\n", 32<<10), 1 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSpool()
			before := heapBytes()
			s.read(StreamStdout, &repeated{pattern: test.pattern, left: test.bytes})
			if grown := int64(heapBytes()) - int64(before); grown > 6<<20 {
				t.Errorf("it keeps %d bytes", grown)
			}
			var lines, dropped, bytes int64
			for {
				batch := s.takeNow()
				if batch == nil {
					break
				}
				for _, line := range batch {
					lines++
					dropped += line.DroppedLines
					bytes += int64(len(line.Text)) + 1 + line.DroppedBytes
				}
			}
			if newlines := int64(strings.Count(test.pattern, "\n")) * test.bytes / int64(len(test.pattern)); newlines > 0 && lines+dropped != newlines {
				t.Errorf("%d lines arrived and %d were dropped of %d", lines, dropped, newlines)
			}
			if lines == 0 || bytes == 0 {
				t.Error("nothing arrived")
			}
			if s.dropped() != dropped {
				t.Errorf("the spool counts %d dropped lines, its lines %d", s.dropped(), dropped)
			}
			runtime.KeepAlive(s)
		})
	}
}

// say adds text to a spool as if it had been read at once.
func say(s *spool, from *source, text string) {
	s.add(chunk{at: time.Now(), from: from, text: []byte(text), lines: strings.Count(text, "\n")})
}

func TestTheSpoolKeepsOrderAndTellsWhatItLost(t *testing.T) {
	s := newSpool()
	stdout := s.newSource(StreamStdout)
	add := func(number int) { say(s, stdout, fmt.Sprintln(number)) }
	for number := range 10 {
		add(number)
	}
	first := s.take(context.Background(), nil)
	if len(first) != 10 || first[9].Text != "9" {
		t.Fatalf("%+v", first)
	}
	s.lost(first)
	add(10)
	second := s.take(context.Background(), nil)
	if len(second) != 1 || second[0].Text != "10" || second[0].DroppedLines != 10 {
		t.Errorf("%+v", second)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	close(ended)
	if lines := s.take(ctx, ended); lines != nil {
		t.Errorf("%+v", lines)
	}
	add(11)
	if lines := s.take(ctx, ended); len(lines) != 1 {
		t.Errorf("%+v", lines)
	}
	cancel()
	add(12)
	if lines := s.take(ctx, nil); lines != nil {
		t.Errorf("%+v", lines)
	}
}

// heard is what a reader of a spool has got of one stream.
type heard struct {
	written string // all that was said
	lines   []Line
}

func TestWhateverIsDroppedTheRestIsWholeLinesInOrderAndTheCountIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSpool()
		s.limit = rapid.IntRange(1, 2000).Draw(t, "limit")
		var streams [2]heard
		sources := [2]*source{s.newSource(StreamStdout), s.newSource(StreamStderr)}
		dropped, droppedBytes, at := int64(0), int64(0), time.Time{}
		take := func() {
			for _, line := range s.takeNow() {
				stream := &streams[0]
				if line.Stream == StreamStderr {
					stream = &streams[1]
				}
				stream.lines = append(stream.lines, line)
				dropped += line.DroppedLines
				droppedBytes += line.DroppedBytes
				if line.Time.Before(at) {
					t.Fatalf("%q was stamped %s, a line before it %s", line.Text, line.Time, at)
				}
				at = line.Time
			}
		}
		numbered := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "take") == 0 {
				take()
				continue
			}
			var text strings.Builder
			for range rapid.IntRange(1, 20).Draw(t, "words") {
				numbered++
				fmt.Fprintf(&text, "%d", numbered)
				if rapid.Bool().Draw(t, "newline") {
					text.WriteByte('\n')
				}
			}
			index := rapid.IntRange(0, 1).Draw(t, "stream")
			streams[index].written += text.String()
			say(s, sources[index], text.String())
		}
		tail := s.lastStderr()
		for index, from := range sources {
			if text := streams[index].written; text != "" && !strings.HasSuffix(text, "\n") {
				streams[index].written += "\n" // as its end does
			}
			s.add(chunk{at: time.Now(), from: from, end: true})
		}
		for len(s.chunks) > 0 {
			take()
		}
		dropped, droppedBytes = dropped+s.droppedLines, droppedBytes+s.droppedBytes // nothing came after them
		for index := range streams {
			stream := &streams[index]
			written := strings.SplitAfter(stream.written, "\n")
			written = written[:len(written)-1] // what follows the last newline: nothing
			dropped -= int64(len(written))
			droppedBytes -= int64(len(stream.written))
			if index == 1 {
				last := written[max(0, len(written)-stderrTail):]
				if difference := cmp.Diff(strings.Join(last, ""), strings.Join(append(tail, ""), "\n")); difference != "" {
					t.Errorf("the tail: %s", difference)
				}
			}
			for _, line := range stream.lines {
				place := slices.Index(written, line.Text+"\n")
				if place < 0 {
					t.Fatalf("%q is no line of %q, or came too late", line.Text, written)
				}
				written = written[place+1:]
				dropped++
				droppedBytes += int64(len(line.Text)) + 1
			}
		}
		if dropped != 0 || droppedBytes > 0 || droppedBytes < -2 { // less the newlines that the ends stand for
			t.Errorf("the counts of lines and bytes are wrong by %d, %d", dropped, droppedBytes)
		}
		if s.bytes != 0 {
			t.Errorf("an empty spool counts %d bytes", s.bytes)
		}
	})
}

func TestTheTailKeepsTheLastLines(t *testing.T) {
	s := newSpool()
	stdout, stderr := s.newSource(StreamStdout), s.newSource(StreamStderr)
	for number := range 3 * stderrTail {
		say(s, stderr, fmt.Sprintln(number))
		say(s, stdout, "not this\n")
	}
	say(s, stderr, strings.Repeat("z", 60_000))
	tail := s.lastStderr()
	if len(tail) != stderrTail || tail[0] != fmt.Sprint(2*stderrTail+1) || len(tail[stderrTail-1]) > 2*tailLineBytes {
		t.Errorf("%d lines from %q", len(tail), tail[0])
	}
}
