package manifest

import (
	"cmp"
	"slices"
)

// Severity says what a diagnostic means for whoever wants to build from the file.
type Severity int

const (
	// Note: the file works, and something in it is replaced by what the host dictates.
	Note Severity = iota + 1
	// Warning: the file works, but not as written.
	Warning
	// Error: the file is refused; nothing is built from it.
	Error
)

// String returns "note", "warning" or "error".
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return "unknown"
}

// MarshalText makes a severity its name in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Position is a place in a file. Lines and columns count from 1; a column counts characters, not bytes.
// The zero value means that no place is known.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Place is a position in a named file.
type Place struct {
	File string
	Position
}

// Edit is a replacement of a range of bytes of the file that was parsed.
type Edit struct {
	Start, End int // byte offsets, End exclusive
	Text       string
}

// Diagnostic is one thing to say about a file.
type Diagnostic struct {
	File     string
	Position     // where the offending text starts; always set
	Length   int // characters of the offending text in that line, at least 1
	Severity Severity
	Code     Code
	Message  string  // what is wrong
	Why      string  // why it matters; may be empty
	Fix      string  // what to write instead, or what to do
	Text     string  // the offending text, as far as it is in the first line
	Source   string  // the line of the file that holds it, without its end
	Related  []Place // other places that belong to it (the first of two equal names)
	Edits    []Edit  // the one right answer, where there is exactly one
}

// HasErrors reports whether one of the diagnostics refuses the file.
func HasErrors(diagnostics []Diagnostic) bool {
	return slices.ContainsFunc(diagnostics, func(d Diagnostic) bool { return d.Severity == Error })
}

// sortDiagnostics orders them as a reader of the file meets them.
func sortDiagnostics(diagnostics []Diagnostic) {
	slices.SortStableFunc(diagnostics, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(b.Severity, a.Severity))
	})
}
