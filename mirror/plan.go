package mirror

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// Source says who decided a value.
type Source string

// The sources, from the strongest.
const (
	FromManifest Source = "manifest"
	FromShell    Source = "operator's shell"
	FromHost     Source = "host"
	FromDefault  Source = "default"
)

// Input is everything that a worker's environment follows from.
type Input struct {
	// OS is the platform's name, as Go spells it.
	OS string
	// HostEnviron is the host's environment as it was when the host registered, as NAME=value.
	HostEnviron []string
	// ShellEnviron is the environment that the host was started with; what differs from it in HostEnviron the host set
	// itself. Nil where it is not known.
	ShellEnviron []string
	Host         HostState
	// EnvironmentVariables are [env_vars] of the pack's manifest, Activation is its [activation.env], in which names of
	// other variables stand for their values.
	EnvironmentVariables map[string]string
	Activation           map[string]string
	// Activated are the variables that the environment's activation scripts set, FirstFolders and LastFolders the folders
	// that they put on PATH, before everything else and after it.
	Activated                 map[string]string
	FirstFolders, LastFolders []string
	// SerializerFiles are the pack's serializer modules.
	SerializerFiles []string
	// Prefix is the directory of the worker's Python environment, Backend what built it: "uv" or "pixi".
	Prefix  string
	Backend string
	// Worker is the worker's id.
	Worker string
}

// Variable is one variable of a worker's environment.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Note says what a reader could not guess.
	Note string `json:"note,omitempty"`
	// Overridden are the values that this one outranks, the strongest first.
	Overridden []Overridden `json:"overridden,omitempty"`
}

// Overridden is a value that a stronger source outranks.
type Overridden struct {
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Flag is one attribute of comfy.cli_args.args that the worker sets before anything imports comfy.
type Flag struct {
	Name   string          `json:"name"`
	Value  json.RawMessage `json:"value"`
	Source Source          `json:"source"`
	Note   string          `json:"note,omitempty"`
}

// Withheld is a variable or flag that a worker does not get, with the reason.
type Withheld struct {
	Name   string `json:"name"`
	Flag   bool   `json:"flag,omitempty"` // a flag, not a variable
	Source Source `json:"source"`
	Reason string `json:"reason"`
}

// Pager says whether the worker shall start the pager, and who decided it.
type Pager struct {
	Enabled bool   `json:"enabled"`
	Source  Source `json:"source"`
	Reason  string `json:"reason"`
}

// Reflection is a worker's environment, complete, each list sorted by name.
type Reflection struct {
	Variables []Variable `json:"variables"`
	Flags     []Flag     `json:"flags"`
	Withheld  []Withheld `json:"withheld"`
	Pager     Pager      `json:"pager"`
}

// Plan works out a worker's environment.
func Plan(input Input) Reflection {
	b := newBuilder(input.OS, input.Prefix)
	b.addHostEnviron(input.HostEnviron, input.ShellEnviron)
	b.addActivated(input.Activated)
	b.addManifest(input.Activation, input.EnvironmentVariables)
	b.addIdentity(input)
	b.addPager(input.Host)
	b.addLogLevel(input.Host)
	flags := b.addFlags(input.Host)
	b.addPrefix(input)
	return Reflection{
		Variables: b.resolved(),
		Flags:     flags,
		Withheld:  b.keptBack(),
		Pager:     b.pager(),
	}
}

// Environ returns the variables as NAME=value, ready for a process.
func (r Reflection) Environ() []string {
	environ := make([]string, len(r.Variables))
	for i, variable := range r.Variables {
		environ[i] = variable.Name + "=" + variable.Value
	}
	return environ
}

// Lookup returns the variable of that exact name.
func (r Reflection) Lookup(name string) (Variable, bool) {
	at := sort.Search(len(r.Variables), func(i int) bool { return r.Variables[i].Name >= name })
	if at < len(r.Variables) && r.Variables[at].Name == name {
		return r.Variables[at], true
	}
	return Variable{}, false
}

// Kinds of rows.
const (
	RowVariable         = "variable"
	RowFlag             = "flag"
	RowWithheldVariable = "withheld variable"
	RowWithheldFlag     = "withheld flag"
)

// Row is one line of the plan as a table.
type Row struct {
	Kind   string
	Name   string
	Value  string // "" of what is withheld
	Source Source
	Note   string
}

// Rows is the plan as a table: variables, flags, and what is kept back with the reason as its note.
func (r Reflection) Rows() []Row {
	rows := make([]Row, 0, len(r.Variables)+len(r.Flags)+len(r.Withheld))
	for _, variable := range r.Variables {
		note := variable.Note
		for _, other := range variable.Overridden {
			note = joinNotes(note, fmt.Sprintf("instead of %q from %s", other.Value, other.Source))
		}
		rows = append(rows, Row{RowVariable, variable.Name, variable.Value, variable.Source, note})
	}
	for _, flag := range r.Flags {
		rows = append(rows, Row{RowFlag, flag.Name, string(flag.Value), flag.Source, flag.Note})
	}
	for _, withheld := range r.Withheld {
		kind := RowWithheldVariable
		if withheld.Flag {
			kind = RowWithheldFlag
		}
		rows = append(rows, Row{kind, withheld.Name, "", withheld.Source, withheld.Reason})
	}
	return rows
}

func joinNotes(first, second string) string {
	if first == "" {
		return second
	}
	return strings.Join([]string{first, second}, "; ")
}
