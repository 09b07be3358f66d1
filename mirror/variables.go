package mirror

import (
	"fmt"
	"sort"
	"strings"
)

// Ranks of what is offered for a variable; the highest wins, among equals the last.
const (
	rankDefault = iota
	rankHost
	rankShell
	rankManifest
	rankFact // what only we can know; nobody outranks it
)

// longestVariable is the longest NAME=value in bytes that Linux passes to a process (MAX_ARG_STRLEN less its zero).
const longestVariable = 128<<10 - 1

type offer struct {
	value  string
	source Source
	note   string
	rank   int
}

// builder collects what is offered for each variable. On Windows the names of variables have no case.
type builder struct {
	os       string
	prefix   string
	names    map[string]string // by key
	offers   map[string][]offer
	withheld []Withheld
}

func newBuilder(os, prefix string) *builder {
	return &builder{os: os, prefix: prefix, names: make(map[string]string), offers: make(map[string][]offer)}
}

func (b *builder) key(name string) string {
	if b.os == "windows" {
		return strings.ToUpper(name)
	}
	return name
}

func (b *builder) offer(name, value string, rank int, source Source, note string) {
	key := b.key(name)
	if _, known := b.names[key]; !known {
		b.names[key] = name
	}
	b.offers[key] = append(b.offers[key], offer{value: value, source: source, note: note, rank: rank})
}

// drop forgets every offer for a variable.
func (b *builder) drop(name string) {
	delete(b.names, b.key(name))
	delete(b.offers, b.key(name))
}

// value returns the winning offer.
func (b *builder) value(name string) (offer, bool) {
	ranked := b.ranked(b.key(name))
	if len(ranked) == 0 {
		return offer{}, false
	}
	return ranked[0], true
}

// ranked returns the offers of a key, the winner first.
func (b *builder) ranked(key string) []offer {
	offers := b.offers[key]
	ranked := make([]offer, 0, len(offers))
	for i := len(offers) - 1; i >= 0; i-- {
		ranked = append(ranked, offers[i])
	}
	sort.SliceStable(ranked, func(i, j int) bool { return ranked[i].rank > ranked[j].rank })
	return ranked
}

func (b *builder) withhold(name string, source Source, reason string) {
	b.withheld = append(b.withheld, Withheld{Name: name, Source: source, Reason: reason})
}

func (b *builder) withholdFlag(name string, source Source, reason string) {
	b.withheld = append(b.withheld, Withheld{Name: name, Flag: true, Source: source, Reason: reason})
}

// addHostEnviron offers the host's own environment, less what would break a worker.
func (b *builder) addHostEnviron(host, shell []string) {
	started := make(map[string]string, len(shell))
	for _, entry := range shell {
		if name, value, ok := splitEntry(entry); ok {
			if _, twice := started[b.key(name)]; !twice {
				started[b.key(name)] = value
			}
		}
	}
	for _, entry := range host {
		name, value, ok := splitEntry(entry)
		if !ok || len(b.offers[b.key(name)]) > 0 {
			continue // of doubled names the first counts, as for getenv
		}
		source, rank := FromHost, rankHost
		// Nothing in ComfyUI sets these, so they are the operator's even where the start is not known.
		if before, known := started[b.key(name)]; known && before == value || strings.HasPrefix(name, "COMFY_ENV_") {
			source, rank = FromShell, rankShell
		}
		if reason := inheritedReason(b.key(name)); reason != "" {
			b.withhold(name, source, reason)
			continue
		}
		if reason := unusableReason(name, value); reason != "" {
			b.withhold(name, source, reason)
			continue
		}
		b.offer(name, value, rank, source, "")
	}
}

// addActivated offers what activation scripts set.
func (b *builder) addActivated(variables map[string]string) {
	b.addTable(variables, "the environment's activation scripts")
}

// addManifest offers the pack's own variables. [env_vars] outranks [activation.env], and both what scripts set.
func (b *builder) addManifest(activation, environmentVariables map[string]string) {
	b.addTable(b.expandActivation(activation), "[activation.env]")
	b.addTable(environmentVariables, "[env_vars]")
}

// addTable offers variables of the pack's.
func (b *builder) addTable(variables map[string]string, note string) {
	for _, name := range sortedNames(variables) {
		value := variables[name]
		reason := forbiddenReason(b.key(name))
		if reason == "" {
			reason = unusableReason(name, value)
		}
		if reason != "" {
			b.withhold(name, FromManifest, reason)
			continue
		}
		b.offer(name, value, rankManifest, FromManifest, note)
	}
}

// addIdentity offers what says where the worker is and that it is one.
func (b *builder) addIdentity(input Input) {
	fact := func(name, value string, source Source) {
		if value != "" {
			b.offer(name, value, rankFact, source, "")
		}
	}
	fact(variableComfyUI, input.Host.ComfyUIDirectory, FromHost)
	fact(variableUser, input.Host.UserDirectory, FromHost)
	fact(variableWorker, input.Worker, FromDefault)
	fact(variableIsolated, "1", FromDefault)
	fact(variableSerializers, strings.Join(input.SerializerFiles, b.listSeparator()), FromManifest)
	b.offer("PYTHONNOUSERSITE", "1", rankDefault, FromDefault, "packages of the user's own site would shadow the environment's")
	b.offer("PYTHONIOENCODING", "utf-8:backslashreplace", rankDefault, FromDefault, "its output is read as UTF-8")
}

func (b *builder) resolved() []Variable {
	variables := make([]Variable, 0, len(b.names))
	for key, name := range b.names {
		ranked := b.ranked(key)
		variable := Variable{Name: name, Value: ranked[0].value, Source: ranked[0].source, Note: ranked[0].note}
		for _, other := range ranked[1:] {
			if other.value != variable.Value {
				variable.Overridden = append(variable.Overridden, Overridden{Value: other.value, Source: other.source})
			}
		}
		variables = append(variables, variable)
	}
	sort.Slice(variables, func(i, j int) bool { return variables[i].Name < variables[j].Name })
	return variables
}

func (b *builder) keptBack() []Withheld {
	sort.SliceStable(b.withheld, func(i, j int) bool {
		if b.withheld[i].Flag != b.withheld[j].Flag {
			return b.withheld[j].Flag
		}
		return b.withheld[i].Name < b.withheld[j].Name
	})
	return b.withheld
}

// splitEntry splits NAME=value. Windows' hidden variables of drives ("=C:=C:\x") have no name.
func splitEntry(entry string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(entry, "=")
	return name, value, ok && name != ""
}

// unusableReason says why no process could be given this variable.
func unusableReason(name, value string) string {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return "not a name that a variable can have"
	case strings.ContainsRune(value, 0):
		return "its value holds a zero byte"
	case len(name)+1+len(value) > longestVariable:
		return fmt.Sprintf("longer than the %d bytes that a process can be given", longestVariable)
	}
	return ""
}

func sortedNames[V any](table map[string]V) []string {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
