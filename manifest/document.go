package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// maxNesting bounds how deep tables and arrays may lie in each other. The format itself needs four levels.
const maxNesting = 64

// valueKind is what a value is in TOML.
type valueKind uint8

const (
	kindString valueKind = iota + 1
	kindInteger
	kindFloat
	kindBoolean
	kindTime // any of TOML's dates and times
	kindArray
	kindTable
)

var kindNames = [...]string{
	kindString: "a string", kindInteger: "an integer", kindFloat: "a number", kindBoolean: "a boolean",
	kindTime: "a date or time", kindArray: "an array", kindTable: "a table",
}

func (k valueKind) String() string { return kindNames[k] }

// value is one TOML value with its place in the file.
type value struct {
	kind  valueKind
	span  span   // of the value's text; of a table made by headers, the first header's key
	text  string // of a string: what it means; of another scalar: as written
	items []*value
	table *table
	// tables is set on arrays made by [[headers]].
	tables bool
}

// integer returns the number an integer is.
func (v *value) integer() (int64, error) {
	return strconv.ParseInt(strings.TrimPrefix(v.text, "+"), 0, 64)
}

// float returns the number an integer or a float is.
func (v *value) float() (float64, error) {
	if v.kind == kindInteger {
		number, err := v.integer()
		return float64(number), err
	}
	return strconv.ParseFloat(strings.ReplaceAll(v.text, "_", ""), 64)
}

// tableOrigin says how a table came to be, which decides who may add to it.
type tableOrigin uint8

const (
	originImplicit tableOrigin = iota // by the header of a table inside it
	originHeader
	originDotted
	originInline
)

// table is one TOML table, its entries in the file's order.
type table struct {
	entries []*entry
	index   map[string]*entry // only for large tables
	origin  tableOrigin
	header  span // of the key in its header, empty when it has none
}

// entry is one key of a table.
type entry struct {
	name  string
	key   span // of the key's last part
	whole span // from the key's first part to the end of the value; the header's key for tables with headers
	value *value
	table *table // that it is in
	// again are the further places where headers and dotted keys name a table.
	again []span
}

// rename is what to change where to give an entry another name.
func (e *entry) rename(to string) []Edit {
	to = quoteName(to)
	edits := []Edit{{e.key.start, e.key.end, to}}
	for _, s := range e.again {
		if s != e.key {
			edits = append(edits, Edit{s.start, s.end, to})
		}
	}
	return edits
}

// renameUnlessTaken is rename, or nothing when the table has the other name already.
func (e *entry) renameUnlessTaken(to string) []Edit {
	if e.table.get(to) != nil {
		return nil
	}
	return e.rename(to)
}

// indexFrom is the number of entries from which a table keeps an index.
const indexFrom = 12

func (t *table) get(name string) *entry {
	if t.index != nil {
		return t.index[name]
	}
	for _, e := range t.entries {
		if e.name == name {
			return e
		}
	}
	return nil
}

func (t *table) add(e *entry) {
	e.table = t
	t.entries = append(t.entries, e)
	if t.index != nil {
		t.index[e.name] = e
		return
	}
	if len(t.entries) >= indexFrom {
		t.index = make(map[string]*entry, 2*indexFrom)
		for _, e := range t.entries {
			t.index[e.name] = e
		}
	}
}

// document is a file read as TOML, as far as it could be read.
type document struct {
	*lines
	root     *table
	problems []problem
}

// problem is a diagnostic before its place is looked up.
type problem struct {
	at       span
	severity Severity
	code     Code
	message  string
	why      string
	fix      string
	edits    []Edit
	related  []span
}

// maxSyntaxErrors bounds how often reading resumes after a syntax error.
const maxSyntaxErrors = 20

// reader builds a document.
type reader struct {
	doc     *document
	parser  unstable.Parser
	base    int // offset of the parser's data in the file
	current *table
	// section is the name of the table that current is, for messages.
	section string
	done    int  // where the last expression that could be read ends
	deep    bool // the expression at hand holds something nested too deep
}

// readDocument reads content, which must be UTF-8 without a byte order mark, as TOML. After a syntax error it
// goes on with the next line that can start something, so that one error does not hide the others.
func readDocument(content []byte) *document {
	content = content[:len(content):len(content)]
	doc := &document{lines: newLines(content), root: &table{origin: originHeader}}
	r := reader{doc: doc, current: doc.root}
	r.reset(0)
	for failures := 0; ; {
		for r.parser.NextExpression() {
			r.expression(r.parser.Expression())
		}
		err := r.parser.Error()
		if err == nil {
			return doc
		}
		failures++
		resume := r.syntaxError(err)
		if failures >= maxSyntaxErrors || resume >= len(content) {
			return doc
		}
		r.done = max(r.done, resume)
		r.reset(resume)
	}
}

func (r *reader) reset(base int) {
	r.base = base
	r.parser.Reset(r.doc.content[base:])
}

func (r *reader) span(raw unstable.Range) span {
	start := r.base + int(raw.Offset)
	return span{start, start + int(raw.Length)}
}

func (r *reader) problem(p problem) { r.doc.problems = append(r.doc.problems, p) }

// keyPart is one part of a dotted key.
type keyPart struct {
	name string
	span span
}

func (r *reader) keyParts(it unstable.Iterator) []keyPart {
	parts := make([]keyPart, 0, 4)
	for it.Next() {
		node := it.Node()
		if node.Kind != unstable.Key { // the comment attached to a header
			break
		}
		parts = append(parts, keyPart{name: string(node.Data), span: r.span(node.Raw)})
	}
	return parts
}

func (r *reader) expression(node *unstable.Node) {
	switch node.Kind {
	case unstable.Table:
		r.header(r.keyParts(node.Key()))
	case unstable.ArrayTable:
		r.arrayHeader(r.keyParts(node.Key()))
	case unstable.KeyValue:
		r.deep = false
		r.keyValue(r.current, node, 0)
		if r.deep {
			r.problem(problem{at: joinSpan(r.keyParts(node.Key())), severity: Error, code: CodeNesting,
				message: fmt.Sprintf("the value holds values nested more than %d deep", maxNesting),
				fix:     "no value of this file needs more than four levels"})
		}
	}
	r.done = r.end(node)
}

// end is where the text of an expression ends.
func (r *reader) end(node *unstable.Node) int {
	if node.Kind == unstable.KeyValue {
		return r.span(node.Raw).end
	}
	return joinSpan(r.keyParts(node.Key())).end
}

// tooDeep reports a key whose tables nest too deep.
func (r *reader) tooDeep(parts []keyPart) bool {
	if len(parts) <= maxNesting {
		return false
	}
	r.problem(problem{at: parts[maxNesting].span, severity: Error, code: CodeNesting,
		message: fmt.Sprintf("tables are nested more than %d deep", maxNesting),
		fix:     "no section of this file needs more than four levels"})
	return true
}

// header makes [a.b.c] the current table.
func (r *reader) header(parts []keyPart) {
	r.section = joinParts(parts)
	if r.tooDeep(parts) {
		r.current = &table{origin: originHeader}
		return
	}
	last := parts[len(parts)-1]
	parent := r.walk(parts[:len(parts)-1])
	if parent == nil {
		r.current = &table{origin: originHeader}
		return
	}
	existing := parent.get(last.name)
	if existing == nil {
		r.current = r.newTable(parent, last, joinSpan(parts), originHeader)
		return
	}
	t := existing.value.table
	if t == nil || existing.value.kind != kindTable || t.origin == originInline {
		r.duplicate(last, existing, fmt.Sprintf("%s is already given a value that is no [table]", quoteName(last.name)))
		r.current = &table{origin: originHeader}
		return
	}
	r.current = t
	if t.origin != originImplicit {
		r.duplicate(last, existing, fmt.Sprintf("[%s] is defined a second time", r.section))
		return
	}
	t.origin = originHeader
	t.header = joinSpan(parts)
	existing.again = append(existing.again, existing.key)
	existing.key = last.span
}

// arrayHeader makes a new element of [[a.b.c]] the current table.
func (r *reader) arrayHeader(parts []keyPart) {
	r.section = joinParts(parts)
	element := &table{origin: originHeader, header: joinSpan(parts)}
	r.current = element
	if r.tooDeep(parts) {
		return
	}
	last := parts[len(parts)-1]
	parent := r.walk(parts[:len(parts)-1])
	if parent == nil {
		return
	}
	item := &value{kind: kindTable, span: last.span, table: element}
	existing := parent.get(last.name)
	switch {
	case existing == nil:
		list := &value{kind: kindArray, span: last.span, items: []*value{item}, tables: true}
		parent.add(&entry{name: last.name, key: last.span, whole: joinSpan(parts), value: list})
	case existing.value.tables:
		existing.again = append(existing.again, last.span)
		existing.value.items = append(existing.value.items, item)
	default:
		r.duplicate(last, existing, fmt.Sprintf("%s is already something else than a list of [[tables]]", quoteName(last.name)))
	}
}

// walk follows the leading parts of a header, making tables on its way; nil when something else is there.
func (r *reader) walk(parts []keyPart) *table {
	t := r.doc.root
	for _, part := range parts {
		existing := t.get(part.name)
		switch {
		case existing == nil:
			t = r.newTable(t, part, part.span, originImplicit)
		case existing.value.kind == kindTable && existing.value.table.origin != originInline:
			existing.again = append(existing.again, part.span)
			t = existing.value.table
		case existing.value.tables:
			existing.again = append(existing.again, part.span)
			items := existing.value.items
			t = items[len(items)-1].table
		default:
			r.duplicate(part, existing, fmt.Sprintf("%s is already given a value, so no [table] can lie in it", quoteName(part.name)))
			return nil
		}
	}
	return t
}

func (r *reader) newTable(parent *table, part keyPart, whole span, origin tableOrigin) *table {
	t := &table{origin: origin}
	if origin == originHeader {
		t.header = whole
	}
	parent.add(&entry{name: part.name, key: part.span, whole: whole,
		value: &value{kind: kindTable, span: part.span, table: t}})
	return t
}

// keyValue adds `a.b = value` to a table.
func (r *reader) keyValue(t *table, node *unstable.Node, depth int) {
	parts := r.keyParts(node.Key())
	if r.tooDeep(parts) {
		return
	}
	whole := r.span(node.Raw)
	last := parts[len(parts)-1]
	v := r.value(node.Value(), depth+len(parts))
	if v == nil {
		return
	}
	if v.span.empty() || v.kind == kindArray || v.kind == kindTable {
		v.span = span{r.valueStart(last.span.end, whole.end), whole.end}
	}
	inline := t.origin == originInline
	for _, part := range parts[:len(parts)-1] {
		existing := t.get(part.name)
		if existing == nil {
			t = r.newTable(t, part, part.span, originDotted)
			continue
		}
		if existing.value.kind != kindTable || existing.value.table.origin != originDotted {
			r.duplicate(part, existing, fmt.Sprintf("%s is already defined, so a dotted key can not add to it", quoteName(part.name)))
			return
		}
		existing.again = append(existing.again, part.span)
		t = existing.value.table
	}
	if existing := t.get(last.name); existing != nil {
		r.duplicateValue(last, whole, existing, v, inline)
		return
	}
	t.add(&entry{name: last.name, key: last.span, whole: whole, value: v})
}

// valueStart finds where the value after a key begins.
func (r *reader) valueStart(afterKey, end int) int {
	text := r.doc.content[afterKey:end]
	equals := bytes.IndexByte(text, '=')
	rest := text[equals+1:]
	return end - len(bytes.TrimLeft(rest, " \t"))
}

// value turns a node of the parser into a value; nil when it nests too deep, which is noted.
func (r *reader) value(node *unstable.Node, depth int) *value {
	v := &value{span: r.span(node.Raw)}
	switch node.Kind {
	case unstable.String:
		v.kind, v.text = kindString, string(node.Data)
	case unstable.Integer:
		v.kind, v.text = kindInteger, string(node.Data)
		if _, err := v.integer(); err != nil {
			r.problem(problem{at: v.span, severity: Error, code: CodeSyntax, message: "the number is too large",
				why: "TOML's integers have 64 bits", fix: "write a smaller number, or a string in quotes"})
		}
	case unstable.Float:
		v.kind, v.text = kindFloat, string(node.Data)
	case unstable.Bool:
		v.kind, v.text = kindBoolean, string(node.Data)
	case unstable.DateTime, unstable.LocalDateTime, unstable.LocalDate, unstable.LocalTime:
		v.kind, v.text = kindTime, string(node.Data)
	case unstable.Array, unstable.InlineTable:
		if depth >= maxNesting {
			r.deep = true
			return nil
		}
		r.collection(v, node, depth)
	default:
		return nil
	}
	return v
}

func (r *reader) collection(v *value, node *unstable.Node, depth int) {
	children := node.Children()
	if node.Kind == unstable.InlineTable {
		v.kind, v.table = kindTable, &table{origin: originInline}
		for children.Next() {
			if child := children.Node(); child.Kind == unstable.KeyValue {
				r.keyValue(v.table, child, depth)
			}
		}
		r.spanOfEntries(v)
		return
	}
	v.kind = kindArray
	for children.Next() {
		if item := r.value(children.Node(), depth+1); item != nil {
			v.items = append(v.items, item)
		}
	}
	if v.span.empty() && len(v.items) > 0 {
		v.span = span{v.items[0].span.start, v.items[len(v.items)-1].span.end}
	}
}

// spanOfEntries widens an inline table inside an array, of which the parser tells the opening brace only.
func (r *reader) spanOfEntries(v *value) {
	for _, e := range v.table.entries {
		v.span.end = max(v.span.end, e.whole.end)
	}
}

func (r *reader) duplicate(part keyPart, existing *entry, message string) {
	r.problem(problem{at: part.span, severity: Error, code: CodeDuplicateKey, message: message,
		why: "TOML gives every key one value and every [table] one place",
		fix: "join the two or remove one of them", related: []span{existing.key}})
}

// duplicateValue reports a key that has a value already. When both say the same, the second can go.
func (r *reader) duplicateValue(part keyPart, whole span, existing *entry, v *value, inline bool) {
	p := problem{at: part.span, severity: Error, code: CodeDuplicateKey,
		message: fmt.Sprintf("%s is given a second time", quoteName(part.name)),
		why:     "TOML gives every key one value, so it is unclear which one counts",
		fix:     "keep one of the two lines", related: []span{existing.key}}
	if !inline && existing.value.kind == v.kind && v.table == nil && v.items == nil && existing.value.text == v.text {
		p.fix = "remove this line, it says the same as the first"
		p.edits = []Edit{r.doc.removeLines(whole)}
	}
	r.problem(p)
}

// removeLines deletes the lines of a span, or only the span when something else stands on them.
func (l *lines) removeLines(s span) Edit {
	first, last := l.line(s.start), l.line(max(s.end-1, s.start))
	before := l.content[l.starts[first]:s.start]
	end := len(l.content)
	if last+1 < len(l.starts) {
		end = l.starts[last+1]
	}
	after := bytes.TrimSpace(l.content[s.end:end])
	if len(bytes.TrimSpace(before)) > 0 || (len(after) > 0 && after[0] != '#') {
		return Edit{Start: s.start, End: s.end}
	}
	return Edit{Start: l.starts[first], End: end}
}

func joinParts(parts []keyPart) string {
	names := make([]string, len(parts))
	for i, part := range parts {
		names[i] = quoteName(part.name)
	}
	return strings.Join(names, ".")
}

func joinSpan(parts []keyPart) span {
	return span{parts[0].span.start, parts[len(parts)-1].span.end}
}

// quoteName writes a key as TOML needs it.
func quoteName(name string) string {
	bare := name != ""
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			bare = false
		}
	}
	if bare {
		return name
	}
	return quote(name)
}

// quote writes text as a TOML basic string.
func quote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

// parserOffset is the place of the parser's complaint in the file.
func (r *reader) parserOffset(err error) (span, string) {
	var failure *unstable.ParserError
	if !errors.As(err, &failure) {
		return span{r.base, r.base + 1}, err.Error()
	}
	start := cap(r.doc.content) - cap(failure.Highlight)
	return span{start, start + len(failure.Highlight)}, failure.Message
}
