package manifest

import (
	"fmt"
)

// FileValue is one key of a settings file.
type FileValue struct {
	Name string
	Text string   // of a string: its text; of a number or boolean: as written
	List []string // of a list of strings
	At   Position

	at   span // of the value
	file *document
}

// SettingsFile is what a settings file says: flat keys, and a section of options for each environment.
type SettingsFile struct {
	Values       []FileValue
	Environments map[string]Options
	// At says where each environment's section starts.
	At map[string]Position
}

// ParseSettings reads a settings file. It is strict: keys that are not among known, wrong sections and values
// that are no scalars or lists of strings are errors. What a value may be is the caller's to check; Refuse
// makes the diagnostic.
func ParseSettings(file string, content []byte, known []string) (*SettingsFile, []Diagnostic) {
	text, shift, problems := decode(content)
	c := &checker{m: &Manifest{}, platform: HostPlatform()}
	settings := &SettingsFile{Environments: map[string]Options{}, At: map[string]Position{}}
	if text == nil {
		c.doc = &document{lines: newLines(content), root: &table{}}
	} else {
		c.doc = readDocument(text)
	}
	c.problems = problems
	names := map[string]bool{}
	for _, name := range known {
		names[name] = true
	}
	for _, e := range c.doc.root.entries {
		switch {
		case e.name == "environments":
			c.environmentSections(e, settings)
		case !names[e.name]:
			c.unknownKey(e, "the settings file", append(known, "environments"), Error, "a misspelt setting would silently not hold")
		default:
			c.fileValue(e, settings)
		}
	}
	for i := range c.problems { // what has no effect in a manifest is a mistake in the operator's own file
		if c.problems[i].code != CodeEncoding {
			c.problems[i].severity = Error
		}
	}
	return settings, c.diagnostics(file, shift)
}

func (c *checker) fileValue(e *entry, settings *SettingsFile) {
	v := FileValue{Name: e.name, Text: e.value.text, At: c.position(e.value.span), at: e.value.span, file: c.doc}
	switch e.value.kind {
	case kindTable:
		c.problem(problem{at: e.key, severity: Error, code: CodeType, message: fmt.Sprintf("%s is a section, not a value", quoteName(e.name)),
			fix: fmt.Sprintf(`write %s = "value"`, quoteName(e.name))})
		return
	case kindArray:
		for _, item := range c.wantStrings(e, quoteName(e.name), e.name+` = ["value"]`) {
			v.List = append(v.List, item.text)
		}
	}
	settings.Values = append(settings.Values, v)
}

func (c *checker) environmentSections(e *entry, settings *SettingsFile) {
	t := c.wantTable(e, "[environments]", `[environments."pack-nodes"] with its keys below it`)
	if t == nil {
		return
	}
	for _, environment := range t.entries {
		if inner := c.wantTable(environment, "[environments."+quoteName(environment.name)+"]", `call_silence = "10m" below it`); inner != nil {
			settings.Environments[environment.name] = c.options(inner)
			settings.At[environment.name] = c.position(environment.key)
		}
	}
}

// Refuse makes the diagnostic for a value that its reader does not take.
func (v FileValue) Refuse(file, message, why, fix string) Diagnostic {
	text, length := v.file.offending(v.at)
	return Diagnostic{File: file, Position: v.At, Length: length, Severity: Error, Code: CodeValue, Message: message, Why: why, Fix: fix,
		Text: text, Source: string(v.file.text(v.At.Line - 1))}
}
