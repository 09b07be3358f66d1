package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

var (
	headerLine = regexp.MustCompile(`^[ \t]*\[\[?[ \t]*([A-Za-z0-9_."' -]+?)[ \t]*\]?\]?[ \t]*(#.*)?$`)
	keyLine    = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_.-]+|"[^"]*"|'[^']*')[ \t]*=`)
	// extrasKey is a requirement written as pip does, name and extras, in the place of a key.
	extrasKey = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)[ \t]*\[([A-Za-z0-9._, -]*)\][ \t]*=[ \t]*("[^"]*"|'[^']*')[ \t]*(#.*)?$`)
)

// failure is one syntax error while its remedy is sought.
type failure struct {
	*reader
	at      span   // where the parser stopped
	message string // what it said
	start   int    // where the expression starts that it could not read
	line    []byte // the line of that start, from the start on, without its end
}

// syntaxError reports an error of the parser and returns the offset at which reading can go on.
func (r *reader) syntaxError(err error) int {
	f := failure{reader: r}
	f.at, f.message = r.parserOffset(err)
	f.at.start = min(f.at.start, len(r.doc.content))
	f.start = r.expressionStart(f.at.start)
	line := r.doc.line(f.start)
	if text := r.doc.text(line); f.start-r.doc.starts[line] <= len(text) {
		f.line = text[f.start-r.doc.starts[line]:]
	}
	for _, remedy := range []func(failure) (int, bool){
		failure.brokenHeader, failure.extrasInKey, failure.twoOnOneLine, failure.unquoted, failure.neverEnds,
	} {
		if resume, ok := remedy(f); ok {
			return resume
		}
	}
	r.problem(problem{at: f.at, severity: Error, code: CodeSyntax, message: "this is not TOML: " + f.message,
		why: "TOML's rules leave no choice how to read it", fix: f.general()})
	if strings.HasPrefix(f.message, "expected newline") && f.at.start > f.start {
		f.statement() // what stands before it is complete
	}
	return f.nextLine()
}

// expressionStart finds where the expression starts that ends in an error at the offset limit: after the
// last one that could be read, and what stands between them are empty lines and comments.
func (r *reader) expressionStart(limit int) int {
	content := r.doc.content
	start := max(r.done, r.base)
	if start > r.base && r.done > r.base {
		start = r.lineEnd(start)
	}
	for start < limit {
		rest := content[start:limit]
		trimmed := bytes.TrimLeft(rest, " \t\r\n")
		start += len(rest) - len(trimmed)
		if len(trimmed) == 0 || trimmed[0] != '#' {
			return min(start, limit)
		}
		start = r.lineEnd(start)
	}
	return limit
}

// lineEnd is the offset of the first byte after the line that holds an offset.
func (r *reader) lineEnd(offset int) int {
	line := r.doc.line(offset)
	if line+1 < len(r.doc.starts) {
		return r.doc.starts[line+1]
	}
	return len(r.doc.content)
}

// nextLine resumes after the line of the error, or with that line when a new statement seems to start in it.
func (f failure) nextLine() int {
	line := f.doc.line(f.at.start)
	text := f.doc.text(line)
	if f.doc.starts[line] > f.start && (headerLine.Match(text) || keyLine.Match(text)) {
		return f.doc.starts[line]
	}
	return f.lineEnd(f.at.start)
}

// newline is the line end that the file uses.
func (l *lines) newline() string {
	if len(l.starts) > 1 && l.starts[1] >= 2 && l.content[l.starts[1]-2] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// brokenHeader is a [table] line that is not closed or has a name with spaces. Its section is entered all the
// same, so that the keys below it are not taken for those of the section above.
func (f failure) brokenHeader() (int, bool) {
	if len(f.line) == 0 || f.line[0] != '[' || f.doc.line(f.start) != f.doc.line(min(f.at.start, len(f.doc.content))) {
		return 0, false
	}
	match := headerLine.FindSubmatch(f.line)
	if match == nil || bytes.ContainsAny(match[1], `"'`) {
		if bytes.HasPrefix(f.line, []byte("[")) && f.message != "expected newline but got" && !strings.HasPrefix(f.message, "expected newline") {
			f.current = &table{origin: originHeader}
		}
		return 0, false
	}
	name := strings.Join(strings.Fields(string(match[1])), "-")
	parts := strings.Split(name, ".")
	if slices.Contains(parts, "") {
		f.current = &table{origin: originHeader}
		return 0, false
	}
	header := "[" + name + "]"
	text := bytes.TrimRight(f.line[:len(f.line)-len(match[2])], " \t")
	f.problem(problem{at: span{f.start, f.start + len(text)}, severity: Error, code: CodeSyntax,
		message: "this is no [table] line: " + f.message,
		why:     "the keys below it would belong to the section above",
		fix:     "write " + header, edits: []Edit{{f.start, f.start + len(text), header}}})
	keys := make([]keyPart, len(parts))
	for i, part := range parts {
		keys[i] = keyPart{part, span{f.start, f.start + len(text)}}
	}
	f.header(keys)
	return f.lineEnd(f.start), true
}

// extrasInKey is `trimesh[easy] = "*"`, which pip's notation suggests.
func (f failure) extrasInKey() (int, bool) {
	if !strings.HasSuffix(f.section, "dependencies") || !strings.HasPrefix(f.message, "expected '='") {
		return 0, false
	}
	match := extrasKey.FindSubmatch(f.line)
	if match == nil {
		return 0, false
	}
	var extras []string
	for extra := range strings.SplitSeq(string(match[2]), ",") {
		if extra = strings.TrimSpace(extra); extra != "" {
			extras = append(extras, quote(extra))
		}
	}
	text := bytes.TrimRight(f.line[:len(f.line)-len(match[4])], " \t")
	replacement := fmt.Sprintf("%s = { version = %s, extras = [%s] }", quoteName(string(match[1])), match[3], strings.Join(extras, ", "))
	bracket := f.start + bytes.IndexByte(f.line, '[')
	f.problem(problem{at: span{bracket, bracket + bytes.IndexByte(f.line[bracket-f.start:], ']') + 1},
		severity: Error, code: CodeSyntax, message: "extras are not part of the key",
		why: "a TOML key has no brackets", fix: "write " + replacement,
		edits: []Edit{{f.start, f.start + len(text), replacement}}})
	return f.lineEnd(f.start), true
}

// twoOnOneLine is something after a complete statement. The statement counts; what follows it is read as if it
// stood on a line of its own when it looks like a statement.
func (f failure) twoOnOneLine() (int, bool) {
	if !strings.HasPrefix(f.message, "expected newline") || f.at.start <= f.start || f.at.start >= len(f.doc.content) {
		return 0, false
	}
	if f.doc.content[f.at.start] == '\r' {
		f.problem(problem{at: span{f.at.start, f.at.start + 1}, severity: Error, code: CodeSyntax,
			message: "a carriage return alone does not end a line", why: "TOML's lines end in a line feed, with or without a carriage return before it",
			fix: "save the file with LF or CRLF line ends"})
		f.statement()
		return f.at.start + 1, true
	}
	line := f.doc.line(f.at.start)
	rest := f.doc.text(line)[f.at.start-f.doc.starts[line]:]
	if !keyLine.Match(rest) && !headerLine.Match(rest) {
		return 0, false
	}
	gap := f.at.start
	for gap > f.start && (f.doc.content[gap-1] == ' ' || f.doc.content[gap-1] == '\t') {
		gap--
	}
	f.problem(problem{at: span{f.at.start, f.at.start + len(rest)}, severity: Error, code: CodeSyntax,
		message: "a second statement stands on this line", why: "TOML wants one statement a line",
		fix: "start a new line here", edits: []Edit{{gap, f.at.start, f.doc.newline()}}})
	f.statement()
	return f.at.start, true
}

// statement reads the complete statement before an error.
func (f failure) statement() {
	var parser unstable.Parser
	text := f.doc.content[f.start:f.at.start:f.at.start]
	parser.Reset(text)
	base, saved := f.base, f.parser
	f.base, f.parser = f.start, parser
	if f.parser.NextExpression() {
		f.expression(f.parser.Expression())
	}
	f.base, f.parser = base, saved
}

// unquoted is a value that should be a string and has no quotes, or typographic ones.
func (f failure) unquoted() (int, bool) {
	match := keyLine.FindIndex(f.line)
	if match == nil || f.doc.line(f.at.start) != f.doc.line(f.start) || f.at.start < f.start+match[1] {
		return 0, false
	}
	text := f.line[match[1]:]
	start := f.start + match[1] + len(text) - len(bytes.TrimLeft(text, " \t"))
	text = bytes.Trim(text, " \t")
	if comment := bytes.Index(text, []byte(" #")); comment >= 0 {
		text = bytes.TrimRight(text[:comment], " \t")
	}
	at := span{start, start + len(text)}
	switch lower := strings.ToLower(string(text)); {
	case lower == "true" || lower == "false":
		f.problem(problem{at: at, severity: Error, code: CodeSyntax, message: fmt.Sprintf("%s is no TOML value", text),
			why: "TOML's booleans are lower case", fix: "write " + lower, edits: []Edit{{at.start, at.end, lower}}})
	case lower == "none" || lower == "null" || lower == "nil":
		f.problem(problem{at: at, severity: Error, code: CodeSyntax, message: fmt.Sprintf("%s is no TOML value", text),
			why: "TOML has no empty value", fix: "remove the line"})
	case typographic(string(text)) != "":
		straight := typographic(string(text))
		f.problem(problem{at: at, severity: Error, code: CodeSyntax, message: "the quotes are typographic ones",
			why: "TOML knows the straight quotes only", fix: "write " + straight, edits: []Edit{{at.start, at.end, straight}}})
	case len(text) == 0:
		f.problem(problem{at: span{f.start, f.start + match[1]}, severity: Error, code: CodeSyntax,
			message: "the key has no value", fix: `write a value behind the "="`})
	case bytes.ContainsAny(text, "\"'{}\\\n") || text[0] == '[' || !printable(text):
		return 0, false
	default:
		f.problem(problem{at: at, severity: Error, code: CodeSyntax, message: "the value has no quotes: " + f.message,
			why: "only numbers, booleans and dates stand without quotes", fix: "write " + quote(string(text)),
			edits: []Edit{{at.start, at.end, quote(string(text))}}})
	}
	return f.lineEnd(f.start), true
}

func printable(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd })
}

// typographic returns text in straight quotes if it stands in typographic ones, else "".
func typographic(text string) string {
	for _, pair := range [][2]string{{"“", "”"}, {"‘", "’"}, {"„", "“"}, {"”", "”"}, {"«", "»"}} {
		if inner, ok := strings.CutPrefix(text, pair[0]); ok {
			if inner, ok = strings.CutSuffix(inner, pair[1]); ok && !strings.ContainsAny(inner, "“”‘’„«»") {
				return quote(inner)
			}
		}
	}
	return ""
}

// neverEnds is an array, a table or a string whose end is missing. The place that helps is where it starts.
func (f failure) neverEnds() (int, bool) {
	var what, closing string
	switch {
	case strings.HasPrefix(f.message, "array is incomplete"), strings.HasPrefix(f.message, "expected ',' or ']'"):
		what, closing = "array", "]"
	case strings.HasPrefix(f.message, "inline table is incomplete"):
		what, closing = "table", "}"
	case strings.HasPrefix(f.message, "unterminated"), strings.Contains(f.message, "cannot have new lines"):
		what, closing = "string", "a quote"
	case strings.Contains(f.message, "not terminated by"):
		what, closing = "string", "three quotes"
	default:
		return 0, false
	}
	if f.message == "expected ',' or ']' after array value" && f.doc.line(f.at.start) == f.doc.line(f.start) {
		return 0, false
	}
	at := span{f.start, f.start + len(f.line)}
	if match := keyLine.FindIndex(f.line); match != nil {
		at.start += match[1]
		at.start += len(f.line[match[1]:]) - len(bytes.TrimLeft(f.line[match[1]:], " \t"))
	}
	f.problem(problem{at: at, severity: Error, code: CodeSyntax,
		message: fmt.Sprintf("the %s that starts here does not end: %s", what, f.message),
		why:     "everything after it would belong to it", fix: "close it with " + closing, related: []span{f.at}})
	return f.nextLine(), true
}

// general is what to do about an error with no better remedy.
func (f failure) general() string {
	switch {
	case strings.HasPrefix(f.message, "expected '='"), strings.HasPrefix(f.message, "invalid character at start of key"):
		return `write key = "value", a [table] line, or a # before a comment`
	case strings.HasPrefix(f.message, "expected newline"):
		return "remove what follows the value, or make it a # comment"
	case strings.Contains(f.message, "escape"):
		return `write paths with / or in single quotes, where a \ is only a \`
	case strings.Contains(f.message, "control character"):
		return "remove the character"
	}
	return "correct the line"
}
