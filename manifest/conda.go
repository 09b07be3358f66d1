package manifest

import (
	"fmt"
	"strings"
)

const condaWhy = `a conda version is "*", a version ("1.2", "1.2.*"), or comparisons joined by "," (and) and "|" (or)`

// condaOperators, the longer of two that start alike first.
var condaOperators = []string{"==", "!=", "<=", ">=", "~=", "=", "<", ">"}

// maxCondaParentheses bounds how deep parentheses may nest in a version.
const maxCondaParentheses = 20

// checkCondaVersion reads the version of a [dependencies] entry: comparisons joined by commas and bars, with
// parentheses. A build string may follow a single version after a space, as conda has it.
func checkCondaVersion(text string) *wrong {
	if strings.TrimSpace(text) == "" {
		return &wrong{at: span{0, len(text)}, message: "the version is empty", why: condaWhy, replace: "*"}
	}
	if trimmed := strings.TrimSpace(text); strings.EqualFold(trimmed, "latest") || strings.EqualFold(trimmed, "any") {
		return &wrong{at: span{0, len(text)}, message: fmt.Sprintf("%q is no version", trimmed), why: condaWhy, replace: "*"}
	}
	s := scanner{text: text}
	if fault := s.condaGroup(0); fault != nil {
		return fault
	}
	s.space()
	if s.done() {
		return nil
	}
	if strings.ContainsRune("<>=!~", rune(s.rest()[0])) {
		return &wrong{at: span{s.at, len(text)}, message: "a comma is missing between two comparisons", why: condaWhy,
			fix: "separate comparisons with commas", replace: strings.TrimRight(text[:s.at], " \t") + "," + s.rest()}
	}
	for _, c := range []byte(s.rest()) {
		if !isAlphanumeric(c) && !strings.ContainsRune("_.*+-^$", rune(c)) {
			return &wrong{at: span{s.at, len(text)}, message: fmt.Sprintf("%q can not stand behind a version", s.rest()), why: condaWhy,
				fix: "remove it"}
		}
	}
	return &wrong{at: span{s.at, len(text)}, message: fmt.Sprintf("the build %q stands in the version", s.rest()),
		why: "pixi wants it apart", fix: fmt.Sprintf("write { version = %s, build = %s }", quote(strings.TrimSpace(text[:s.at])), quote(s.rest()))}
}

// condaGroup reads comparisons joined by "," and "|".
func (s *scanner) condaGroup(depth int) *wrong {
	for {
		s.space()
		if fault := s.condaTerm(depth); fault != nil {
			return fault
		}
		s.space()
		mark := s.at
		if s.takeAny(",", "|") == "" {
			return nil
		}
		s.take(s.text[mark : mark+1]) // "||" is what other package managers write; told apart below
		if s.at == mark+2 {
			replace := s.text[:mark] + s.text[mark+1:]
			return &wrong{at: span{mark, mark + 2}, message: fmt.Sprintf("%q is one sign too many", s.text[mark:mark+2]),
				why: condaWhy, fix: "write " + s.text[mark:mark+1], replace: replace}
		}
	}
}

func (s *scanner) condaTerm(depth int) *wrong {
	start := s.at
	if s.take("(") {
		if depth >= maxCondaParentheses {
			return &wrong{at: span{start, start + 1}, message: "parentheses are nested too deep", why: condaWhy, fix: "write the version more simply"}
		}
		if fault := s.condaGroup(depth + 1); fault != nil {
			return fault
		}
		s.space()
		if !s.take(")") {
			return &wrong{at: span{start, start + 1}, message: "the parenthesis does not close", why: condaWhy, fix: "close it"}
		}
		return nil
	}
	if s.take("*") {
		if s.done() || strings.ContainsRune(" \t,|)", rune(s.rest()[0])) {
			return nil
		}
		s.at = start
	}
	operator := s.takeAny(condaOperators...)
	s.space()
	from := s.at
	for !s.done() && (isAlphanumeric(s.text[s.at]) || strings.ContainsRune("._+-!*", rune(s.text[s.at]))) {
		s.at++
	}
	version := s.text[from:s.at]
	switch {
	case version == "" && !s.done() && (s.text[s.at] == '^' || s.text[s.at] == '~'):
		end := s.at
		for end < len(s.text) && !strings.ContainsRune(",| )", rune(s.text[end])) {
			end++
		}
		fault := &wrong{at: span{s.at, end}, message: fmt.Sprintf("%c is a comparison of other package managers", s.text[s.at]), why: condaWhy,
			fix: "write the two bounds it means"}
		if bounds := caretBounds(s.text[s.at:end]); bounds != "" {
			fault.fix = "write " + quote(bounds)
			fault.replace = s.text[:s.at] + bounds + s.text[end:]
		}
		return fault
	case version == "":
		end := min(max(s.at, start+1), len(s.text))
		if start >= end { // the text ends where a version should start: point at what came before
			start = max(end-1, 0)
		}
		message := "a version is missing"
		if operator != "" {
			message += " after " + operator
		} else if !s.done() {
			message = fmt.Sprintf("%q can not stand in a version", s.text[start:end])
		}
		return &wrong{at: span{start, end}, message: message, why: condaWhy, fix: "write a version"}
	case operator == "" && (version == "=" || !isDigit(version[0]) && version[0] != '*' && version[0] != 'v') && !strings.ContainsAny(version, "0123456789"):
		return &wrong{at: span{from, s.at}, message: fmt.Sprintf("%q is no version", version), why: condaWhy, fix: `write a version, or "*" for any`}
	case operator != "" && operator != "=" && operator != "==" && operator != "!=" && strings.HasSuffix(version, "*"):
		trimmed := strings.TrimSuffix(strings.TrimSuffix(version, "*"), ".")
		fault := &wrong{at: span{start, s.at}, message: fmt.Sprintf("a wildcard has no meaning after %s", operator), why: condaWhy, fix: "remove the .*"}
		if trimmed != "" && (operator == ">=" || operator == "<") {
			fault.replace = s.text[:start] + operator + trimmed + s.text[s.at:]
		}
		return fault
	case strings.Count(version, "!") > 1 || strings.Count(version, "+") > 1 || strings.Contains(version, "..") || strings.HasPrefix(version, "."):
		return &wrong{at: span{from, s.at}, message: fmt.Sprintf("%q is no version", version), why: condaWhy, fix: `write a version such as "1.2.3"`}
	}
	return nil
}
