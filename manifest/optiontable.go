package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// options reads [options], or an environment's section of the settings file.
func (c *checker) options(t *table) Options {
	var o Options
	for _, e := range t.entries {
		if e.name == "memory" {
			if inner := c.wantTable(e, "[options.memory]", `vram = "8GiB" below [options.memory]`); inner != nil {
				c.memoryOptions(&o, inner)
			}
			continue
		}
		if key := findOption(e.name); key != nil {
			c.option(&o, key, e)
			continue
		}
		if slices.Contains(memoryNames, e.name) {
			c.problem(problem{at: e.key, severity: Warning, code: CodeMisplaced, message: fmt.Sprintf("[options] has no key %s", e.name),
				why: "it has no effect: caps have a section of their own", fix: "move it to [options.memory]"})
			continue
		}
		c.unknownKey(e, "[options]", optionNames, Warning, "it has no effect")
	}
	return o
}

func (c *checker) memoryOptions(o *Options, t *table) {
	for _, e := range t.entries {
		if key := findOption("memory." + e.name); key != nil {
			c.option(o, key, e)
			continue
		}
		c.unknownKey(e, "[options.memory]", memoryNames, Warning, "it has no effect: nothing is capped by it")
	}
}

// option reads one value.
func (c *checker) option(o *Options, key *OptionKey, e *entry) {
	v := e.value
	p := problem{at: v.span, severity: Error, code: CodeType, message: fmt.Sprintf("%s is %s", e.name, describe(v)),
		why: "it sets " + key.Doc, fix: fmt.Sprintf("write %s = %s", e.name, key.Example)}
	switch {
	case key.Kind == Limit && (v.kind == kindInteger || v.kind == kindFloat):
		p.code = CodeRange
		seconds, err := v.float()
		if err != nil {
			c.problem(p)
			return
		}
		limit, err := seconds2duration(seconds, v.text)
		if err != nil {
			p.message = e.name + ": " + err.Error()
			c.problem(p)
			return
		}
		*key.limit(o) = &limit
	case key.Kind == Cap && (v.kind == kindInteger || v.kind == kindFloat):
		p.message = fmt.Sprintf("%s is a number without a unit", e.name)
		p.why = "bytes and gigabytes can not be told apart"
		c.problem(p)
		return
	case v.kind != kindString:
		c.problem(p)
		return
	default:
		if err := key.Set(o, v.text); err != nil {
			c.badOption(key, e, err)
			return
		}
	}
	if limit := key.limit; limit != nil && e.name == "health_check_timeout" && **limit(o) == 0 {
		p.code, p.message = CodeRange, "a worker can not answer in no time"
		*limit(o) = nil
		c.problem(p)
	}
}

func (c *checker) badOption(key *OptionKey, e *entry, err error) {
	v := e.value
	if key.Kind == Choice {
		c.oneOf(e, e.name, key.Values)
		return
	}
	code := CodeValue
	if strings.Contains(err.Error(), "out of range") {
		code = CodeRange
	}
	c.problem(problem{at: c.inText(v, span{0, len(v.text)}), severity: Error, code: code, message: e.name + ": " + err.Error(),
		why: "it sets " + key.Doc, fix: fmt.Sprintf("write %s = %s", e.name, key.Example)})
}
