package manifest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// sourceWidth is how much of a line of the file is shown around the offending text, in columns.
const sourceWidth = 110

// Style says how diagnostics are written for people.
type Style struct {
	Color bool // escape sequences for a terminal
}

func (s Style) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Style) severity(severity Severity) string {
	switch severity {
	case Error:
		return "1;31"
	case Warning:
		return "1;33"
	}
	return "1;36"
}

// Write writes one diagnostic: severity, code and message, the place, the line with the offending text
// underlined, why it matters and what to do. Control characters of the file are shown, not sent.
func (s Style) Write(w io.Writer, d Diagnostic) error {
	var out strings.Builder
	color := s.severity(d.Severity)
	fmt.Fprintf(&out, "%s%s\n", s.paint(color, fmt.Sprintf("%s[%s]", d.Severity, d.Code)), s.paint("1", ": "+visible(d.Message)))
	number := strconv.Itoa(d.Line)
	margin := strings.Repeat(" ", len(number))
	fmt.Fprintf(&out, "%s %s %s:%d:%d\n", margin, s.paint("34", "-->"), visible(d.File), d.Line, d.Column)
	bar := s.paint("34", "|")
	if d.Source != "" {
		shown, before, length := window(d.Source, d.Column, d.Length)
		fmt.Fprintf(&out, "%s %s\n%s %s %s\n%s %s %s%s\n", margin, bar, s.paint("34", number), bar, shown,
			margin, bar, strings.Repeat(" ", before), s.paint(color, strings.Repeat("^", length)))
	}
	for _, related := range d.Related {
		fmt.Fprintf(&out, "%s %s see also %s:%d:%d\n", margin, s.paint("34", "="), visible(related.File), related.Line, related.Column)
	}
	if d.Why != "" {
		fmt.Fprintf(&out, "%s %s %s\n", margin, s.paint("34", "="), "why: "+visible(d.Why))
	}
	if d.Fix != "" {
		fmt.Fprintf(&out, "%s %s %s\n", margin, s.paint("34", "="), "fix: "+visible(d.Fix))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// visible makes text safe for a terminal: what would move the cursor or change colours is written as an escape.
func visible(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		out.WriteString(cell(r))
	}
	return out.String()
}

func hidden(r rune) bool {
	return r != ' ' && !unicode.IsPrint(r)
}

// cell is what is shown for one character.
func cell(r rune) string {
	switch {
	case r == '\t':
		return "    "
	case !hidden(r):
		return string(r)
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// columns is how wide a shown character is on a terminal.
func columns(r rune) int {
	if hidden(r) {
		return len(cell(r))
	}
	switch {
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// window cuts a line to what is shown and finds the columns before and below the offending text in it.
func window(source string, column, length int) (shown string, before, width int) {
	start := max(column-1, 0)
	first := 0
	if len(source) > sourceWidth && start > sourceWidth/3 {
		first = start - sourceWidth/3
	}
	var out strings.Builder
	if first > 0 {
		out.WriteString("...")
		before = 3
	}
	used, i := before, 0
	for _, r := range source {
		if i < first {
			i++
			continue
		}
		w := columns(r)
		if used+w > sourceWidth+6 {
			out.WriteString("...")
			break
		}
		switch {
		case i < start:
			before += w
		case i < start+length:
			width += w
		}
		used += w
		out.WriteString(cell(r))
		i++
	}
	return out.String(), before, max(width, 1)
}
