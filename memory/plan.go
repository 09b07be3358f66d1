package memory

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Unit says what a term counts.
type Unit string

// The units of terms.
const (
	UnitBytes        Unit = "bytes"
	UnitMilliseconds Unit = "milliseconds"
	UnitCount        Unit = "count"
	UnitText         Unit = "text"
)

// Term is one named quantity of a decision. A decision carries every term it used, so that explaining it later needs
// nothing else.
type Term struct {
	Name  string `json:"name"`
	Unit  Unit   `json:"unit"`
	Value int64  `json:"value,omitempty"` // in Unit; 0 for texts
	Text  string `json:"text,omitempty"`  // for texts, and a remark elsewhere
}

// Amount is a term in bytes.
func Amount(name string, value Bytes) Term {
	return Term{Name: name, Unit: UnitBytes, Value: int64(value)}
}

// Span is a term in time, kept in milliseconds.
func Span(name string, value time.Duration) Term {
	return Term{Name: name, Unit: UnitMilliseconds, Value: value.Milliseconds()}
}

// Count is a term without a dimension.
func Count(name string, value int) Term {
	return Term{Name: name, Unit: UnitCount, Value: int64(value)}
}

// Fact is a term in words.
func Fact(name, text string) Term {
	return Term{Name: name, Unit: UnitText, Text: text}
}

// String prints "name 1.50 GiB", "name 60s", "name 3" or "name text".
func (t Term) String() string {
	var value string
	switch t.Unit {
	case UnitBytes:
		value = Bytes(t.Value).String()
	case UnitMilliseconds:
		value = (time.Duration(t.Value) * time.Millisecond).String()
	case UnitText:
		return t.Name + " " + t.Text
	default:
		value = strconv.FormatInt(t.Value, 10)
	}
	if t.Text != "" {
		value += " (" + t.Text + ")"
	}
	return t.Name + " " + value
}

// Terms is the sum behind a decision, in the order in which it was computed.
type Terms []Term

// String prints the terms separated by commas.
func (t Terms) String() string {
	parts := make([]string, len(t))
	for i, term := range t {
		parts[i] = term.String()
	}
	return strings.Join(parts, ", ")
}

// Amount finds a term in bytes by its name; false when there is none.
func (t Terms) Amount(name string) (Bytes, bool) {
	for _, term := range t {
		if term.Name == name && term.Unit == UnitBytes {
			return Bytes(term.Value), true
		}
	}
	return 0, false
}

// ActionKind is what is asked of a party. The names are those that travel to workers and hosts.
type ActionKind string

// What can be asked, from the cheapest to the dearest for whoever is asked.
const (
	// PartialRelease takes a number of bytes of one device from an idle worker through its own manager; its models stay
	// and fault back.
	PartialRelease ActionKind = "partial_release"
	// ReleasePins gives a number of pinned bytes back to the system.
	ReleasePins ActionKind = "release_pins"
	// FreeMemory runs a host's own free_memory with Bytes as memory_required.
	FreeMemory ActionKind = "free_memory"
	// FullRelease gives back everything that can be rebuilt.
	FullRelease ActionKind = "full_release"
	// EndIdle ends a process that keeps memory which no release can move.
	EndIdle ActionKind = "end_idle"
	// Reap ends a process that has been idle for long.
	Reap ActionKind = "reap"
)

// Action is one thing to ask of one party.
type Action struct {
	Kind   ActionKind `json:"kind"`
	Party  Party      `json:"party"`
	Device string     `json:"device,omitempty"` // empty: every device
	Bytes  Bytes      `json:"bytes,omitempty"`  // how much is asked; 0 for actions that take all
	// For is who asked for it: a host keeps that party's stand-ins loaded. Zero: nobody in particular.
	For Party `json:"for,omitzero"`
	// Keep names the models that stay on the device, for upstream's keep_loaded: what they are needed for comes sooner.
	Keep  []string `json:"keep,omitempty"`
	Cause string   `json:"cause"` // a stable code, such as "idle" or "card_tight"
	Terms Terms    `json:"terms"`
}

// String prints the action in one line.
func (a Action) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s of %s", a.Kind, a.Party)
	if a.Bytes != 0 {
		fmt.Fprintf(&text, ", %s", a.Bytes)
	}
	if a.Device != "" {
		fmt.Fprintf(&text, " on %s", a.Device)
	}
	if a.For != (Party{}) {
		fmt.Fprintf(&text, " for %s", a.For)
	}
	if len(a.Keep) > 0 {
		fmt.Fprintf(&text, ", keeping %s", strings.Join(a.Keep, " and "))
	}
	fmt.Fprintf(&text, ", because %s: %s", a.Cause, a.Terms)
	return text.String()
}

// Plan is what to do now. The zero plan is "nothing".
type Plan struct {
	Actions []Action `json:"actions,omitempty"`
	// Next is when the decision is worth asking for again if nothing happens until then; zero: never.
	Next time.Time `json:"next,omitzero"`
}

// String prints one action a line.
func (p Plan) String() string {
	lines := make([]string, 0, len(p.Actions)+1)
	for _, action := range p.Actions {
		lines = append(lines, action.String())
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing to do")
	}
	return strings.Join(lines, "\n")
}

// JSON prints the plan for machines.
func (p Plan) JSON() string {
	text, err := json.Marshal(p)
	if err != nil { // the types above always encode
		return fmt.Sprintf("{%q:%q}", "error", err.Error())
	}
	return string(text)
}
