package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// checker turns a document into a manifest and says what is wrong with it.
type checker struct {
	doc      *document
	m        *Manifest
	platform string
	problems []problem
}

// maxDiagnostics bounds what is said about one file: whoever writes so many mistakes reads no more.
const maxDiagnostics = 1000

func (c *checker) problem(p problem) { c.problems = append(c.problems, p) }

func (c *checker) position(s span) Position { return c.doc.position(s.start) }

// diagnostics are the document's problems and the checker's, with their places, in the file's order.
func (c *checker) diagnostics(file string, shift int) []Diagnostic {
	problems := append(c.doc.problems, c.problems...)
	slices.SortStableFunc(problems, func(a, b problem) int { return a.at.start - b.at.start })
	if len(problems) > maxDiagnostics {
		left := len(problems) - maxDiagnostics
		errors := slices.ContainsFunc(problems[maxDiagnostics:], func(p problem) bool { return p.severity == Error })
		problems = problems[:maxDiagnostics]
		severity := Note
		if errors {
			severity = Error
		}
		problems = append(problems, problem{at: problems[maxDiagnostics-1].at, severity: severity, code: CodeTooMany,
			message: fmt.Sprintf("%d more are not shown", left), fix: "correct these first"})
	}
	diagnostics := make([]Diagnostic, 0, len(problems))
	line, source := 0, "" // a long line with many diagnostics is copied once
	for _, p := range problems {
		position := c.doc.position(p.at.start)
		text, length := c.doc.offending(p.at)
		if position.Line != line {
			line, source = position.Line, string(c.doc.text(position.Line-1))
		}
		d := Diagnostic{File: file, Position: position, Length: length, Severity: p.severity, Code: p.code,
			Message: p.message, Why: p.why, Fix: p.fix, Text: text, Source: source}
		for _, related := range p.related {
			d.Related = append(d.Related, Place{File: file, Position: c.doc.position(related.start)})
		}
		for _, edit := range p.edits {
			d.Edits = append(d.Edits, Edit{edit.Start + shift, edit.End + shift, edit.Text})
		}
		diagnostics = append(diagnostics, d)
	}
	sortDiagnostics(diagnostics)
	return diagnostics
}

// wantTable returns an entry's table; anything else is an error.
func (c *checker) wantTable(e *entry, where, example string) *table {
	if e.value.kind == kindTable {
		return e.value.table
	}
	c.problem(problem{at: e.value.span, severity: Error, code: CodeType,
		message: fmt.Sprintf("%s is %s, not a table", where, describe(e.value)), why: "the section's keys are missing",
		fix: "write " + example})
	return nil
}

// wantString returns an entry's text; anything else is an error.
func (c *checker) wantString(e *entry, where, example string) (string, bool) {
	if e.value.kind == kindString {
		return e.value.text, true
	}
	p := problem{at: e.value.span, severity: Error, code: CodeType,
		message: fmt.Sprintf("%s is %s, not a string", where, describe(e.value)), fix: "write " + example}
	if scalar(e.value) {
		p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name), quote(e.value.text))
		p.edits = []Edit{{e.value.span.start, e.value.span.end, quote(e.value.text)}}
	}
	c.problem(p)
	return "", false
}

// wantStrings returns an entry's list of strings; what is none of them is an error.
func (c *checker) wantStrings(e *entry, where, example string) []*value {
	if e.value.kind == kindString {
		c.problem(problem{at: e.value.span, severity: Warning, code: CodeType, message: where + " is a string, not a list of strings",
			why: "it is taken for a list of one", fix: fmt.Sprintf("write %s = [%s]", quoteName(e.name), quote(e.value.text)),
			edits: []Edit{{e.value.span.start, e.value.span.end, "[" + quote(e.value.text) + "]"}}})
		return []*value{e.value}
	}
	if e.value.kind != kindArray {
		c.problem(problem{at: e.value.span, severity: Error, code: CodeType,
			message: fmt.Sprintf("%s is %s, not a list of strings", where, describe(e.value)), fix: "write " + example})
		return nil
	}
	list := make([]*value, 0, len(e.value.items))
	for _, item := range e.value.items {
		if item.kind != kindString {
			c.problem(problem{at: item.span, severity: Error, code: CodeType,
				message: fmt.Sprintf("%s holds %s, it takes strings", where, describe(item)), fix: "write " + example})
			continue
		}
		list = append(list, item)
	}
	return list
}

// wantBoolean returns an entry's boolean; anything else is an error.
func (c *checker) wantBoolean(e *entry, where string) bool {
	if e.value.kind == kindBoolean {
		return e.value.text == "true"
	}
	p := problem{at: e.value.span, severity: Error, code: CodeType,
		message: fmt.Sprintf("%s is %s, not true or false", where, describe(e.value)),
		fix:     fmt.Sprintf("write %s = true or %s = false", quoteName(e.name), quoteName(e.name))}
	if lower := strings.ToLower(e.value.text); e.value.kind == kindString && (lower == "true" || lower == "false") {
		p.fix = fmt.Sprintf("write %s = %s", quoteName(e.name), lower)
		p.edits = []Edit{{e.value.span.start, e.value.span.end, lower}}
	}
	c.problem(p)
	return false
}

// unknownKey reports a key that a table does not have, with the nearest that it has.
func (c *checker) unknownKey(e *entry, where string, known []string, severity Severity, why string) {
	p := problem{at: e.key, severity: severity, code: CodeUnknownKey,
		message: fmt.Sprintf("%s has no key %s", where, quoteName(e.name)), why: why}
	var present []string
	for _, name := range known {
		if name != e.name {
			present = append(present, name)
		}
	}
	if near := nearest(e.name, present); near != "" {
		p.fix = "write " + near
		if e.table.get(near) != nil {
			p.fix = fmt.Sprintf("remove it: %s is there already", near)
		} else {
			p.edits = e.rename(near)
		}
	} else {
		p.fix = "known are " + strings.Join(present, ", ")
	}
	c.problem(p)
}

// removal takes an entry out, with its line. It is nil where that takes more than one change: for a table of
// several lines, and inside an inline table.
func (c *checker) removal(e *entry) []Edit {
	if e.table.origin == originInline || e.value.tables || e.value.kind == kindTable && e.value.table.origin != originInline {
		return nil
	}
	return []Edit{c.doc.removeLines(e.whole)}
}

// inText is the place of a part of a string's text; the whole value when the text has escapes.
func (c *checker) inText(v *value, at span) span {
	raw := string(c.doc.content[v.span.start:v.span.end])
	if len(raw) != len(v.text)+2 || raw[1:len(raw)-1] != v.text {
		return v.span
	}
	at.start, at.end = min(at.start, len(v.text)), min(at.end, len(v.text))
	if at.empty() {
		return v.span
	}
	return span{v.span.start + 1 + at.start, v.span.start + 1 + at.end}
}

// wrongText reports a mistake inside a string's text.
func (c *checker) wrongText(v *value, code Code, subject string, w *wrong) {
	p := problem{at: c.inText(v, w.at), severity: Error, code: code, message: subject + ": " + w.message, why: w.why, fix: w.fix}
	if w.replace != "" {
		p.fix = "write " + quote(w.replace)
		p.edits = []Edit{{v.span.start, v.span.end, quote(w.replace)}}
	}
	c.problem(p)
}

func scalar(v *value) bool {
	return v.kind != kindArray && v.kind != kindTable
}

// describe names a value for a message: a scalar by what it is and how it is written.
func describe(v *value) string {
	if !scalar(v) {
		return v.kind.String()
	}
	text := v.text
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return fmt.Sprintf("%s (%s)", v.kind, strings.ToValidUTF8(text, ""))
}

// plain turns a value into maps, lists and scalars.
func plain(v *value) any {
	switch v.kind {
	case kindString, kindTime:
		return v.text
	case kindBoolean:
		return v.text == "true"
	case kindInteger:
		number, _ := v.integer() // too large ones have been reported by the reader
		return number
	case kindFloat:
		number, _ := v.float()
		return number
	case kindArray:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			list[i] = plain(item)
		}
		return list
	}
	return plainTable(v.table)
}

func plainTable(t *table) map[string]any {
	m := make(map[string]any, len(t.entries))
	for _, e := range t.entries {
		m[e.name] = plain(e.value)
	}
	return m
}
