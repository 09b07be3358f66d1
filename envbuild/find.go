package envbuild

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// Environment is one that was built and can be used.
type Environment struct {
	Name           string            `json:"name"`
	Stack          string            `json:"stack"`
	HostStack      string            `json:"host_stack"`
	Revision       string            `json:"revision"`
	Prefix         string            `json:"prefix"`
	Python         string            `json:"python"` // its interpreter
	PythonVersion  string            `json:"python_version"`
	PackDirectory  string            `json:"pack_directory"`
	NodesDirectory string            `json:"nodes_directory"`
	Manifest       string            `json:"manifest"`
	ComfyUI        string            `json:"comfyui,omitempty"`
	Variables      map[string]string `json:"variables,omitempty"` // the manifest's, for the worker
	// Activation is the manifest's [activation.env], in which names of other variables stand for their values. Activated
	// are the variables that the activation scripts set, PathFirst and PathLast the folders that they put on PATH, before
	// everything else and after it.
	Activation map[string]string `json:"activation,omitempty"`
	Activated  map[string]string `json:"activated,omitempty"`
	PathFirst  []string          `json:"path_first,omitempty"`
	PathLast   []string          `json:"path_last,omitempty"`
	Options    manifest.Options  `json:"options"`
	Facts      Facts             `json:"facts"` // of the host it was built for
	BuiltAt    time.Time         `json:"built_at"`
	PlanHash   string            `json:"plan_hash"`
	Backend    string            `json:"backend"` // BackendUV or BackendPixi
}

// Query narrows a search.
type Query struct {
	ComfyUI  string // folder of the asking host's ComfyUI, "" for none: its packs come first
	Stack    string // the asking host's stack, or an environment's own
	AnyStack bool   // environments of every stack count
}

// NotFoundError says that no environment has a name.
type NotFoundError struct {
	Name    string
	Nearest []string // names that exist, the most similar first
	Stacks  []string // stacks for which the name exists, none of them the asked one
	Wanted  string   // the stack that was asked for
}

func (e *NotFoundError) Error() string {
	switch {
	case len(e.Stacks) > 0:
		return fmt.Sprintf("environment %q is built for %s and not for %s, which this host needs; run `comfy-supervisor build` for this host",
			e.Name, strings.Join(e.Stacks, ", "), e.Wanted)
	case len(e.Nearest) > 0:
		return fmt.Sprintf("no environment %q; the nearest name is %q", e.Name, e.Nearest[0])
	}
	return fmt.Sprintf("no environment %q: none has been built; run `comfy-supervisor build`", e.Name)
}

// shownCandidates bounds what an error tells; a list of environments has one for each of its candidates.
const shownCandidates = 10

// AmbiguousError says that a name stands for several environments.
type AmbiguousError struct {
	Name       string
	Candidates []Environment
}

func (e *AmbiguousError) Error() string {
	var lines strings.Builder
	fmt.Fprintf(&lines, "environment %q is ambiguous; name the ComfyUI or the stack:", e.Name)
	for i, candidate := range e.Candidates {
		if i == shownCandidates && len(e.Candidates) > shownCandidates+1 {
			fmt.Fprintf(&lines, "\n  and %d more", len(e.Candidates)-i)
			break
		}
		fmt.Fprintf(&lines, "\n  %s  %s", candidate.Stack, candidate.PackDirectory)
	}
	return lines.String()
}

// NotBuiltError says that a pack asks for an environment that is not there.
type NotBuiltError struct {
	Name          string
	PackDirectory string
	Reason        string
}

func (e *NotBuiltError) Error() string {
	return fmt.Sprintf("environment %q of %s is not built (%s); run `comfy-supervisor build %s`", e.Name, e.PackDirectory, e.Reason, e.PackDirectory)
}

// Find returns the environment of a name: among the packs of the query's ComfyUI first, then among all that
// are recorded for its stack. The errors for a name are *NotFoundError, *AmbiguousError and *NotBuiltError.
func (s *Store) Find(name string, query Query) (Environment, error) {
	read, err := s.read()
	if err != nil {
		return Environment{}, err
	}
	return read.find(name, query)
}

// reading is what one reading of the records gave, and what was read besides for more than one of them.
type reading struct {
	store   *Store
	entries []*record
	hosts   map[string]Facts             // by file
	packs   map[string]map[string]string // by ComfyUI: the packs' folders by the names of their environments
}

func (s *Store) read() (*reading, error) {
	entries, err := s.load()
	if err != nil {
		return nil, err
	}
	return &reading{store: s, entries: entries, hosts: map[string]Facts{}, packs: map[string]map[string]string{}}, nil
}

func (r *reading) find(name string, query Query) (Environment, error) {
	named := slices.DeleteFunc(slices.Clone(r.entries), func(entry *record) bool { return entry.Name != name })
	var found []*record
	if query.ComfyUI != "" {
		inside := slices.DeleteFunc(slices.Clone(named), func(entry *record) bool { return !belongsTo(entry.PackDirectory, query.ComfyUI) })
		found = slices.DeleteFunc(slices.Clone(inside), func(entry *record) bool { return !query.matches(entry) })
		if len(found) == 0 {
			if pack := r.packOf(query.ComfyUI, name); pack != "" {
				reason := "nothing was built from its manifest"
				if len(inside) > 0 {
					reason = fmt.Sprintf("it is built for %s, this host needs %s", inside[0].HostStack, query.Stack)
				}
				return Environment{}, &NotBuiltError{Name: name, PackDirectory: pack, Reason: reason}
			}
		}
	}
	if len(found) == 0 {
		found = slices.DeleteFunc(slices.Clone(named), func(entry *record) bool { return !query.matches(entry) })
	}
	// A pack that has been moved or deleted keeps its record; it is no candidate beside one that exists.
	if present := slices.DeleteFunc(slices.Clone(found), func(entry *record) bool { return !exists(entry.Manifest) }); len(present) > 0 {
		found = present
	} else if len(found) > 1 {
		found = found[:1] // none of them is a choice; the error is the same for all
	}
	if current := slices.DeleteFunc(slices.Clone(found), func(entry *record) bool { return entry.Superseded }); len(current) > 0 {
		found = current
	}
	found = sameManifests(found)
	if len(found) == 0 {
		return Environment{}, notFound(name, named, r.entries, query)
	}
	if len(found) > 1 {
		ambiguous := &AmbiguousError{Name: name}
		for _, entry := range found {
			ambiguous.Candidates = append(ambiguous.Candidates, r.environment(entry))
		}
		return Environment{}, ambiguous
	}
	environment := r.environment(found[0])
	if !exists(environment.Manifest) {
		return Environment{}, &NotBuiltError{Name: name, PackDirectory: environment.PackDirectory, Reason: "the pack's manifest is gone"}
	}
	if _, err := readStamp(r.store.revisionOf(environment)); err != nil {
		return Environment{}, &NotBuiltError{Name: name, PackDirectory: environment.PackDirectory, Reason: "its revision is gone: " + err.Error()}
	}
	if !exists(environment.Python) {
		return Environment{}, &NotBuiltError{Name: name, PackDirectory: environment.PackDirectory, Reason: "its interpreter " + environment.Python + " is gone"}
	}
	return environment, nil
}

// sameManifests keeps one record of each manifest: a pack that was built under two names of its folder, a link's and
// its own, is one. The record written last counts.
func sameManifests(entries []*record) []*record {
	var kept []*record
	for _, entry := range entries {
		at := slices.IndexFunc(kept, func(other *record) bool {
			return other.HostStack == entry.HostStack && sameFolder(other.Manifest, entry.Manifest)
		})
		switch {
		case at < 0:
			kept = append(kept, entry)
		case entry.BuiltAt.After(kept[at].BuiltAt):
			kept[at] = entry
		}
	}
	return kept
}

// Listed is an environment of a list.
type Listed struct {
	Environment
	Problem error // why it can not be used: what Find says of its name and stack
}

// List returns the environments of the query's stack, ordered by name and pack, wherever their packs are. The records are
// read once for all of them.
func (s *Store) List(query Query) ([]Listed, error) {
	read, err := s.read()
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, entry := range read.entries {
		if query.matches(entry) {
			_, problem := read.find(entry.Name, Query{ComfyUI: query.ComfyUI, Stack: entry.Stack})
			list = append(list, Listed{read.environment(entry), problem})
		}
	}
	return list, nil
}

// matches reports whether a record serves the query's stack.
func (q Query) matches(entry *record) bool {
	if q.AnyStack || q.Stack == "" {
		return true
	}
	return entry.HostStack == q.Stack || entry.Stack == q.Stack
}

// load reads all records. One that can not be read never hides the others: the next build writes it anew.
func (s *Store) load() ([]*record, error) {
	files, err := os.ReadDir(s.records())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the environments' records: %w", err)
	}
	var entries []*record
	for _, file := range files {
		if strings.HasPrefix(file.Name(), ".") || !strings.HasSuffix(file.Name(), ".json") {
			continue
		}
		if entry, err := loadRecord(filepath.Join(s.records(), file.Name())); err == nil {
			entries = append(entries, entry)
		}
	}
	slices.SortFunc(entries, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PackDirectory, b.PackDirectory), cmp.Compare(a.Stack, b.Stack))
	})
	return entries, nil
}

// environment turns a record into what others see.
func (r *reading) environment(entry *record) Environment {
	environment := Environment{
		Name: entry.Name, Stack: entry.Stack, HostStack: entry.HostStack, Revision: entry.Revision, Prefix: entry.Prefix,
		Python: prefixPython(entry.Prefix), PythonVersion: entry.PythonVersion, PackDirectory: entry.PackDirectory,
		NodesDirectory: entry.NodesDirectory, Manifest: entry.Manifest, ComfyUI: entry.ComfyUI, Variables: entry.Variables,
		Activation: entry.Activation, Activated: entry.Activated, PathFirst: entry.PathFirst, PathLast: entry.PathLast,
		BuiltAt: entry.BuiltAt, PlanHash: entry.PlanHash, Backend: entry.Backend,
	}
	// Options and facts were written by this program; what can not be read is as if it had not been set.
	_ = json.Unmarshal(entry.Options, &environment.Options)
	facts, known := r.hosts[entry.Host]
	if !known {
		facts, _ = LoadFacts(filepath.Join(r.store.hosts(), entry.Host))
		r.hosts[entry.Host] = facts
	}
	environment.Facts = facts
	return environment
}

// belongsTo reports whether a pack is one of a ComfyUI's, links resolved.
func belongsTo(pack, comfyui string) bool {
	nodes := filepath.Join(comfyui, "custom_nodes")
	return sameFolder(filepath.Dir(pack), nodes) || sameFolder(filepath.Join(nodes, filepath.Base(pack)), pack)
}

func sameFolder(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	left, err := os.Stat(a)
	if err != nil {
		return false
	}
	right, err := os.Stat(b)
	return err == nil && os.SameFile(left, right)
}

// packOf is the folder of a ComfyUI's pack whose manifest has that environment name, "" for none.
func (r *reading) packOf(comfyui, name string) string {
	packs, known := r.packs[comfyui]
	if !known {
		packs = map[string]string{}
		found, _ := manifest.Discover(comfyui)
		for _, candidate := range slices.Backward(found) { // the first of a name counts
			packs[candidate.Name] = candidate.PackDirectory
		}
		r.packs[comfyui] = packs
	}
	return packs[name]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// notFound builds the error for a name that nothing answers to.
func notFound(name string, named, all []*record, query Query) error {
	missing := &NotFoundError{Name: name, Wanted: query.Stack}
	for _, entry := range named {
		if !slices.Contains(missing.Stacks, entry.HostStack) {
			missing.Stacks = append(missing.Stacks, entry.HostStack)
		}
	}
	type near struct {
		name     string
		distance int
	}
	var candidates []near
	for _, entry := range all {
		if entry.Name != name && !slices.ContainsFunc(candidates, func(n near) bool { return n.name == entry.Name }) {
			candidates = append(candidates, near{entry.Name, editDistance(name, entry.Name)})
		}
	}
	slices.SortStableFunc(candidates, func(a, b near) int { return a.distance - b.distance })
	for _, candidate := range candidates[:min(3, len(candidates))] {
		missing.Nearest = append(missing.Nearest, candidate.name)
	}
	return missing
}

// editDistance counts the insertions, deletions and replacements between two names.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
