package manifest

import (
	"fmt"
	"strings"
)

// markerNames are the variables of PEP 508 markers.
var markerNames = []string{
	"python_version", "python_full_version", "os_name", "sys_platform", "platform_release", "platform_system",
	"platform_version", "platform_machine", "platform_python_implementation", "implementation_name",
	"implementation_version", "extra",
}

// markerOperators, the longer of two that start alike first.
var markerOperators = []string{"===", "~=", "==", "!=", "<=", ">=", "<", ">"}

const (
	markerWhy = "PEP 508 markers compare a variable with a quoted text, joined by and, or and parentheses"
	// maxMarkerParentheses bounds how deep parentheses may nest in a marker.
	maxMarkerParentheses = 20
)

// checkMarker reads a PEP 508 environment marker.
func checkMarker(text string) *wrong {
	s := scanner{text: text}
	if fault := s.markerOr(0); fault != nil {
		return fault
	}
	s.space()
	if !s.done() {
		return &wrong{at: span{s.at, len(text)}, message: fmt.Sprintf("%q can not stand here", s.rest()), why: markerWhy,
			fix: "join comparisons with and, or"}
	}
	return nil
}

// word reads a bare word when it is the given one.
func (s *scanner) word(word string) bool {
	mark := s.at
	if s.take(word) && (s.done() || !isAlphanumeric(s.text[s.at]) && s.text[s.at] != '_') && s.text[mark:s.at] == word {
		return true
	}
	s.at = mark
	return false
}

func (s *scanner) markerOr(depth int) *wrong {
	for {
		if fault := s.markerAnd(depth); fault != nil {
			return fault
		}
		if s.space(); !s.word("or") {
			return nil
		}
	}
}

func (s *scanner) markerAnd(depth int) *wrong {
	for {
		if fault := s.markerTerm(depth); fault != nil {
			return fault
		}
		if s.space(); !s.word("and") {
			return nil
		}
	}
}

func (s *scanner) markerTerm(depth int) *wrong {
	s.space()
	start := s.at
	if s.take("(") {
		if depth >= maxMarkerParentheses {
			return &wrong{at: span{start, start + 1}, message: "parentheses are nested too deep", why: markerWhy, fix: "write the marker more simply"}
		}
		if fault := s.markerOr(depth + 1); fault != nil {
			return fault
		}
		if s.space(); !s.take(")") {
			return &wrong{at: span{start, start + 1}, message: "the parenthesis does not close", why: markerWhy, fix: "close it"}
		}
		return nil
	}
	left, fault := s.markerOperand()
	if fault != nil {
		return fault
	}
	s.space()
	operator := s.at
	switch {
	case s.takeAny(markerOperators...) != "", s.word("in"):
	case s.word("not"):
		if s.space(); !s.word("in") {
			return &wrong{at: span{operator, s.at}, message: `"not" without "in"`, why: markerWhy, fix: `write "not in" or "!="`}
		}
	default:
		end := min(operator+1, len(s.text))
		return &wrong{at: span{min(operator, max(end-1, 0)), end}, message: "a comparison is missing", why: markerWhy,
			fix: "compare with ==, !=, <, <=, >, >=, ~=, in or not in"}
	}
	s.space()
	right, fault := s.markerOperand()
	if fault != nil {
		return fault
	}
	if left == right {
		return &wrong{at: span{start, s.at}, message: "the comparison needs a variable on one side and a quoted text on the other", why: markerWhy,
			fix: "quote the side that is a value"}
	}
	return nil
}

// markerOperand reads a variable (true) or a quoted text (false).
func (s *scanner) markerOperand() (variable bool, fault *wrong) {
	start := s.at
	if quoted := s.takeAny(`"`, `'`); quoted != "" {
		end := strings.Index(s.rest(), quoted)
		if end < 0 {
			return false, &wrong{at: span{start, len(s.text)}, message: "the quote does not close", why: markerWhy, fix: "close it"}
		}
		s.at += end + 1
		return false, nil
	}
	for !s.done() && (isAlphanumeric(s.text[s.at]) || s.text[s.at] == '_' || s.text[s.at] == '.') {
		s.at++
	}
	name := s.text[start:s.at]
	if name == "" {
		at := span{start, min(start+1, len(s.text))}
		if at.empty() {
			at.start = max(0, len(s.text)-1)
		}
		return false, &wrong{at: at, message: "a variable or a quoted text is missing", why: markerWhy,
			fix: `write a comparison such as sys_platform == "linux"`}
	}
	for _, known := range markerNames {
		if name == known {
			return true, nil
		}
	}
	fix := "known are " + strings.Join(markerNames, ", ")
	fault = &wrong{at: span{start, s.at}, message: fmt.Sprintf("%s is no variable of markers", name), why: markerWhy}
	if near := nearest(name, markerNames); near != "" {
		fix = "write " + near
		fault.replace = s.text[:start] + near + s.text[s.at:]
	}
	fault.fix = fix
	return false, fault
}
