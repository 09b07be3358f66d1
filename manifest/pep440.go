package manifest

import (
	"fmt"
	"strings"
)

// wrong is a mistake inside a value: where in its text, what, and what to write in the whole text's place.
type wrong struct {
	at      span // in the text
	message string
	why     string
	fix     string // in words, when replace is empty
	replace string // the whole text as it should be; empty when there is no single right answer
}

// scanner reads a text from left to right.
type scanner struct {
	text string
	at   int
}

func (s *scanner) rest() string { return s.text[s.at:] }

func (s *scanner) done() bool { return s.at >= len(s.text) }

func (s *scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// take advances over a prefix, without regard to case.
func (s *scanner) take(prefix string) bool {
	if rest := s.rest(); len(rest) >= len(prefix) && strings.EqualFold(rest[:len(prefix)], prefix) {
		s.at += len(prefix)
		return true
	}
	return false
}

func (s *scanner) takeAny(prefixes ...string) string {
	for _, prefix := range prefixes {
		if s.take(prefix) {
			return prefix
		}
	}
	return ""
}

func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		s.at++
	}
	return s.at > start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlphanumeric(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// pep440Operators, the longer of two that start alike first.
var pep440Operators = []string{"===", "~=", "==", "!=", "<=", ">=", "<", ">"}

// versionShape is what a PEP 440 version consists of, as far as specifiers care.
type versionShape struct {
	release int  // number of components of the release segment
	local   bool // has a +local part
	suffix  bool // has a pre, post or dev part
}

// scanVersion reads one PEP 440 version and reports whether there was one.
func (s *scanner) scanVersion() (versionShape, bool) {
	var shape versionShape
	start := s.at
	s.take("v")
	first := s.at
	if !s.digits() {
		s.at = start
		return shape, false
	}
	if s.take("!") { // what was read is the epoch
		first = s.at
		if !s.digits() {
			s.at = first
			return shape, false
		}
	}
	shape.release = 1
	for {
		mark := s.at
		if !s.take(".") || !s.digits() {
			s.at = mark
			break
		}
		shape.release++
	}
	pre := s.label("alpha", "beta", "preview", "pre", "rc", "a", "b", "c")
	post := s.implicitPost() || s.label("post", "rev", "r")
	dev := s.label("dev")
	shape.suffix = pre || post || dev
	if mark := s.at; s.take("+") {
		shape.local = true
		if !s.localPart() {
			s.at = mark
			shape.local = false
		}
	}
	return shape, true
}

// label reads [-_.]?WORD[-_.]?[0-9]* for one of the words.
func (s *scanner) label(words ...string) bool {
	mark := s.at
	s.takeAny("-", "_", ".")
	if s.takeAny(words...) == "" {
		s.at = mark
		return false
	}
	end := s.at
	s.takeAny("-", "_", ".")
	if !s.digits() {
		s.at = end
	}
	return true
}

// implicitPost reads the post release "-1".
func (s *scanner) implicitPost() bool {
	mark := s.at
	if s.take("-") && s.digits() {
		return true
	}
	s.at = mark
	return false
}

func (s *scanner) localPart() bool {
	for {
		start := s.at
		for s.at < len(s.text) && isAlphanumeric(s.text[s.at]) {
			s.at++
		}
		if s.at == start {
			return false
		}
		mark := s.at
		if s.takeAny("-", "_", ".") == "" {
			return true
		}
		if s.done() || !isAlphanumeric(s.text[s.at]) {
			s.at = mark
			return true
		}
	}
}

// versionWhy says what a version in a requirement consists of.
const versionWhy = `PEP 440 wants a comparison before every version, and commas between several (">=1.2,<2"), or "*" for any`

// checkSpecifiers reads the version of a [pypi-dependencies] entry: "*", or PEP 440 specifiers.
func checkSpecifiers(text string) *wrong {
	trimmed := strings.TrimSpace(text)
	if trimmed == "*" {
		return nil
	}
	whole := span{0, len(text)}
	if trimmed == "" {
		return &wrong{at: whole, message: "the version is empty", why: versionWhy, replace: "*"}
	}
	if strings.EqualFold(trimmed, "latest") || strings.EqualFold(trimmed, "any") {
		return &wrong{at: whole, message: fmt.Sprintf("%q is no version", trimmed), why: versionWhy, replace: "*"}
	}
	s := scanner{text: text}
	for {
		s.space()
		if fault := s.specifier(); fault != nil {
			return fault
		}
		s.space()
		if s.done() {
			return nil
		}
		comma := s.at
		if !s.take(",") {
			return s.missingComma()
		}
		s.space()
		if s.done() {
			return &wrong{at: span{comma, comma + 1}, message: "a comparison is missing after the comma", why: versionWhy,
				replace: strings.TrimRight(text[:comma], " \t")}
		}
	}
}

// missingComma reports what stands where a comma or the end should be.
func (s *scanner) missingComma() *wrong {
	fault := &wrong{at: span{s.at, len(s.text)}, message: fmt.Sprintf("%q can not stand here", s.rest()), why: versionWhy,
		fix: `separate comparisons with commas, as in ">=1.2,<2"`}
	if strings.ContainsAny(s.rest()[:1], "<>=!~") {
		fault.message = "a comma is missing between two comparisons"
		fault.replace = strings.TrimRight(s.text[:s.at], " \t") + "," + s.rest()
	}
	if s.rest()[0] == ';' {
		fault.message = "a marker can not stand in the version"
		fault.fix = `write { version = "` + strings.TrimSpace(s.text[:s.at]) + `", env-markers = "` + strings.TrimSpace(s.rest()[1:]) + `" }`
	}
	return fault
}

// replaceClause offers the text with one comparison replaced, when the new comparison is right.
func (w *wrong) replaceClause(before, clause, after string) {
	if checkSpecifiers(clause) == nil {
		w.replace = before + clause + after
	}
}

// specifier reads one comparison.
func (s *scanner) specifier() *wrong {
	start := s.at
	operator := s.takeAny(pep440Operators...)
	if operator == "" {
		return s.noOperator()
	}
	s.space()
	from := s.at
	if operator == "===" {
		for !s.done() && !strings.ContainsRune(" \t,;", rune(s.text[s.at])) {
			s.at++
		}
		if s.at == from {
			return &wrong{at: span{start, s.at}, message: "a version is missing after ===", why: versionWhy, fix: "write the version behind it"}
		}
		return nil
	}
	shape, ok := s.scanVersion()
	if !ok {
		return s.noVersion(operator, start, from)
	}
	wildcard := s.take(".*")
	at := span{start, s.at}
	before, after := s.text[:start], s.text[s.at:]
	version := strings.TrimSuffix(s.text[from:s.at], ".*")
	switch {
	case !s.done() && !strings.ContainsRune(" \t,;<>=!~", rune(s.text[s.at])):
		end := s.at
		for end < len(s.text) && !strings.ContainsRune(" \t,", rune(s.text[end])) {
			end++
		}
		return &wrong{at: span{from, end}, message: fmt.Sprintf("%q is no version", s.text[from:end]), why: versionWhy,
			fix: `write a version such as "1.2.3", "2.0rc1" or "1.0.post3"`}
	case wildcard && operator != "==" && operator != "!=":
		fault := &wrong{at: at, message: fmt.Sprintf("a wildcard can not follow %s", operator),
			why: "only == and != compare with a prefix", fix: "remove the .*"}
		if operator == ">=" || operator == "<" || operator == "~=" {
			fault.replaceClause(before, operator+version, after)
		}
		return fault
	case wildcard && (shape.local || shape.suffix):
		return &wrong{at: at, message: "a wildcard can only follow a plain release", why: versionWhy, fix: "remove the .*"}
	case shape.local && operator != "==" && operator != "!=":
		return &wrong{at: at, message: fmt.Sprintf("a local version can not follow %s", operator),
			why: "builds with +local parts have no order", fix: "remove the + and what follows it"}
	case operator == "~=" && shape.release < 2:
		return &wrong{at: at, message: "~= needs a version of two parts at least",
			why: "~=1.2 means >=1.2,==1.*; of a single number nothing would be left", fix: "write ~=" + version + ".0 or >=" + version}
	}
	return nil
}

// noOperator explains a comparison that does not start with an operator of PEP 440.
func (s *scanner) noOperator() *wrong {
	start := s.at
	rest := s.rest()
	end := start + len(rest)
	if comma := strings.IndexByte(rest, ','); comma >= 0 {
		end = start + comma
	}
	clause := strings.TrimRight(s.text[start:end], " \t")
	at := span{start, start + len(clause)}
	before, after := s.text[:start], s.text[start+len(clause):]
	fault := &wrong{at: at, message: fmt.Sprintf("%q has no comparison", clause), why: versionWhy,
		fix: `write a comparison such as ">=1.2", or "*" for any version`}
	switch {
	case clause == "":
		fault.at, fault.message = span{start, min(start+1, len(s.text))}, "a comparison is missing"
	case strings.HasPrefix(clause, "=>"), strings.HasPrefix(clause, "=<"):
		fault.message = fmt.Sprintf("%s is no comparison", clause[:2])
		fault.replaceClause(before, clause[1:2]+"="+clause[2:], after)
	case clause[0] == '=':
		fault.message = "one = is no comparison of Python packages"
		fault.replaceClause(before, "="+clause, after)
	case clause[0] == '^' || clause[0] == '~':
		fault.message = fmt.Sprintf("%c is a comparison of other package managers", clause[0])
		if bounds := caretBounds(clause); bounds != "" {
			fault.fix = "write " + quote(bounds)
			fault.replaceClause(before, bounds, after)
		}
	case clause == "*":
		fault.message = "* stands alone or not at all"
		fault.fix = "remove it"
	default:
		probe := scanner{text: clause}
		if _, ok := probe.scanVersion(); ok {
			probe.take(".*")
			if probe.done() {
				fault.message = "the version has no comparison"
				fault.replaceClause(before, "=="+clause, after)
			}
		}
	}
	return fault
}

// caretBounds turns ^1.2.3 and ~1.2.3 into the two bounds they mean; "" when the version is unusual.
func caretBounds(clause string) string {
	version := strings.TrimSpace(clause[1:])
	parts := strings.Split(version, ".")
	numbers := make([]int, len(parts))
	for i, part := range parts {
		if len(part) == 0 || len(part) > 9 {
			return ""
		}
		for _, c := range []byte(part) {
			if !isDigit(c) {
				return ""
			}
			numbers[i] = numbers[i]*10 + int(c-'0')
		}
	}
	bump := 0
	if clause[0] == '^' {
		for bump < len(numbers)-1 && numbers[bump] == 0 {
			bump++
		}
	} else if len(numbers) > 1 {
		bump = 1
	}
	upper := make([]string, bump+1)
	for i := range upper {
		upper[i] = fmt.Sprint(numbers[i])
	}
	upper[bump] = fmt.Sprint(numbers[bump] + 1)
	return ">=" + version + ",<" + strings.Join(upper, ".")
}

// noVersion explains an operator without a version behind it.
func (s *scanner) noVersion(operator string, start, from int) *wrong {
	end := from
	for end < len(s.text) && s.text[end] != ',' {
		end++
	}
	found := strings.TrimRight(s.text[from:end], " \t")
	fault := &wrong{at: span{start, from + len(found)}, why: versionWhy, fix: "write a version behind it"}
	switch {
	case found == "":
		fault.message = fmt.Sprintf("a version is missing after %s", operator)
	case found == "*" && operator == "==":
		fault.message = `"==*" is no version`
		if start == 0 && end == len(s.text) {
			fault.replace = "*"
		}
	default:
		fault.message = fmt.Sprintf("%q is no version", found)
		fault.fix = `write a version such as "1.2.3", "2.0rc1" or "1.0.post3"`
	}
	return fault
}

// exactVersion returns the version of a specifier that is a single ==VERSION without wildcard, else "".
func exactVersion(specifiers string) string {
	version, ok := strings.CutPrefix(strings.TrimSpace(specifiers), "==")
	if !ok || strings.HasPrefix(version, "=") || strings.ContainsAny(version, ",*") {
		return ""
	}
	return strings.TrimSpace(version)
}
