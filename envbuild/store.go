package envbuild

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/atomicwriter"
)

// storeFormat is the version of stamps and records.
const storeFormat = 1

// storeFolder is our own folder below the environment root; the rest of the root is another program's.
const storeFolder = "comfy-supervisor"

// Store is what was built on a machine: revisions, which never change once complete, and records that say
// which pack uses which.
//
//	<root>/comfy-supervisor/envs/<name>_<stack>/            one environment
//	    <plan hash>-<n>/                                    a revision: stamp.json, uv.lock, prefix/, or
//	                                                        pixi.lock and .pixi/envs/default/, or elsewhere,
//	                                                        the path of a prefix that comfy-env built
//	    current                                             the revision built last, by name
//	    lock, busy                                          held by a build, and while its processes live
//	    build.log                                           of the last build
//	<root>/comfy-supervisor/records/<name>_<stack>_<id>.json  one for each manifest and host stack
//	<root>/comfy-supervisor/locks/<name>_<stack>/<plan hash>.lock, .json   what a plan was resolved to
//	<root>/comfy-supervisor/uses/<name>_<stack>/<revision>  when a revision was used last
//	<root>/comfy-supervisor/hosts/<hash>.json               host facts that records refer to
type Store struct {
	root string // <root>/comfy-supervisor
}

// OpenStore returns the store below an environment root. Nothing is made until something is built.
func OpenStore(root string) (*Store, error) {
	if root == "" {
		return nil, errors.New("opening the environment store: no folder is set; set COMFY_ENV_ROOT")
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("opening the environment store: %w", err)
	}
	return &Store{root: filepath.Join(absolute, storeFolder)}, nil
}

func (s *Store) environments() string { return filepath.Join(s.root, "envs") }
func (s *Store) records() string      { return filepath.Join(s.root, "records") }
func (s *Store) hosts() string        { return filepath.Join(s.root, "hosts") }
func (s *Store) locks() string        { return filepath.Join(s.root, "locks") }

// stamp is written last into a revision: with it the revision is complete.
type stamp struct {
	Format      int               `json:"format"`
	PlanHash    string            `json:"plan_hash"`
	Recipe      Recipe            `json:"recipe"`
	Inputs      map[string]string `json:"inputs"`
	Interpreter string            `json:"interpreter"`    // base interpreter
	Python      string            `json:"python_version"` // its version
	Received    received          `json:"received"`
	Lines       []string          `json:"lines"`
	// Entries are the names in site-packages: one that is missing later was deleted behind its metadata.
	Entries []string  `json:"entries"`
	BuiltAt time.Time `json:"built_at"`
	Seconds float64   `json:"seconds"`
}

// record says which revision a pack's manifest has for hosts of one stack.
type record struct {
	Format         int               `json:"format"`
	Name           string            `json:"name"`
	Stack          string            `json:"stack"`
	HostStack      string            `json:"host_stack"`
	PackDirectory  string            `json:"pack_directory"`
	NodesDirectory string            `json:"nodes_directory"`
	Manifest       string            `json:"manifest"`
	ComfyUI        string            `json:"comfyui,omitempty"`
	PlanHash       string            `json:"plan_hash"`
	Backend        string            `json:"backend"`
	Inputs         map[string]string `json:"inputs"`
	Revision       string            `json:"revision"`
	Prefix         string            `json:"prefix"`
	PythonVersion  string            `json:"python_version"`
	Variables      map[string]string `json:"variables,omitempty"`
	Activation     map[string]string `json:"activation,omitempty"`
	Activated      map[string]string `json:"activated,omitempty"`
	PathFirst      []string          `json:"path_first,omitempty"`
	PathLast       []string          `json:"path_last,omitempty"`
	Options        json.RawMessage   `json:"options"`
	Host           string            `json:"host"`        // file name in hosts/
	HostPython     string            `json:"host_python"` // the host's interpreter
	// Superseded says that the same host has since been given an environment for another stack.
	Superseded bool      `json:"superseded,omitempty"`
	BuiltAt    time.Time `json:"built_at"`

	file    string // name of the record's own file
	content []byte // as it lies there
}

// recordName is the file name of a plan's record.
func recordName(plan *Plan) string {
	sum := sha256.Sum256([]byte(plan.Manifest + "\x00" + plan.HostStack))
	return plan.DirectoryName() + "_" + hex.EncodeToString(sum[:4]) + ".json"
}

// readRecord loads the record of a plan; a missing or unreadable one is nil: the build then writes it anew.
func (s *Store) readRecord(plan *Plan) *record {
	found, err := loadRecord(filepath.Join(s.records(), recordName(plan)))
	if err != nil || found.Manifest != plan.Manifest || found.HostStack != plan.HostStack {
		return nil
	}
	return found
}

func loadRecord(file string) (*record, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found record
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("reading the record %s: %w", file, err)
	}
	if found.Format != storeFormat {
		return nil, fmt.Errorf("the record %s has format %d, this program knows %d", file, found.Format, storeFormat)
	}
	found.file, found.content = filepath.Base(file), content
	return &found, nil
}

// writeRecord registers a plan's revision. It writes nothing where the same is registered already: before is the record
// that is there, nil for none.
func (s *Store) writeRecord(plan *Plan, before *record, revision string, mark *stamp, host string) error {
	options, err := json.Marshal(plan.Options)
	if err != nil {
		return fmt.Errorf("encoding the options of %s: %w", plan.Name, err)
	}
	entry := record{
		Format: storeFormat, Name: plan.Name, Stack: plan.Stack, HostStack: plan.HostStack,
		PackDirectory: plan.PackDirectory, NodesDirectory: plan.NodesDirectory, Manifest: plan.Manifest,
		ComfyUI: plan.facts.ComfyUI.Directory, PlanHash: plan.Hash, Backend: cmp.Or(mark.Received.Backend, plan.Recipe.Backend), Inputs: plan.Inputs, Revision: filepath.Base(revision),
		Prefix: prefixOf(revision), PythonVersion: mark.Python, Variables: plan.Variables, Options: options,
		Activation: plan.Activation, Activated: mark.Received.Activation, PathFirst: mark.Received.PathFirst, PathLast: mark.Received.PathLast,
		Host: host, HostPython: plan.facts.Python.Executable, BuiltAt: mark.BuiltAt,
	}
	content, err := json.MarshalIndent(entry, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", plan.Name, err)
	}
	content = append(content, '\n')
	file := filepath.Join(s.records(), recordName(plan))
	if before != nil && bytes.Equal(before.content, content) {
		return nil
	}
	if err := os.MkdirAll(s.records(), 0o755); err != nil {
		return fmt.Errorf("making the folder of records: %w", err)
	}
	if err := atomicwriter.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("registering %s: %w", plan.Name, err)
	}
	return nil
}

// recordNames lists the files of the records.
func (s *Store) recordNames() ([]string, error) {
	folder, err := os.Open(s.records())
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Readdirnames(-1)
}

// supersede marks the records by which a plan's manifest and host had an environment for another stack: that host's
// torch or Python has changed since. names are those of the records' files.
func (s *Store) supersede(plan *Plan, names []string) error {
	if plan.facts.Python.Executable == "" {
		return nil // a host on paper may be several machines
	}
	for _, name := range names {
		if !strings.HasPrefix(name, plan.Name+"_") || name == recordName(plan) {
			continue
		}
		file := filepath.Join(s.records(), name)
		other, err := loadRecord(file)
		if err != nil || other.Superseded || other.Manifest != plan.Manifest || other.HostPython != plan.facts.Python.Executable {
			continue
		}
		other.Superseded = true
		content, err := json.MarshalIndent(other, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the record of %s: %w", plan.Name, err)
		}
		if err := atomicwriter.WriteFile(file, append(content, '\n'), 0o600); err != nil {
			return fmt.Errorf("registering %s: %w", plan.Name, err)
		}
	}
	return nil
}

// directory is an environment's folder.
func (s *Store) directory(plan *Plan) string {
	return filepath.Join(s.environments(), plan.DirectoryName())
}

const (
	stampName   = "stamp.json"
	currentName = "current"
)

// readStamp loads a revision's stamp. fs.ErrNotExist means that the revision is not complete.
func readStamp(revision string) (*stamp, error) {
	content, err := os.ReadFile(filepath.Join(revision, stampName))
	if err != nil {
		return nil, err
	}
	var found stamp
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("reading the stamp of %s: %w", revision, err)
	}
	if found.Format != storeFormat {
		return nil, fmt.Errorf("the stamp of %s has format %d, this program knows %d", revision, found.Format, storeFormat)
	}
	return &found, nil
}

// write completes a revision.
func (m *stamp) write(revision string) error {
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the stamp of %s: %w", revision, err)
	}
	if err := atomicwriter.WriteFile(filepath.Join(revision, stampName), append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("completing %s: %w", revision, err)
	}
	return nil
}

// damage says what a complete revision has lost since it was built, "" when it has all.
func (m *stamp) damage(revision string) string {
	prefix := prefixOf(revision)
	if _, err := os.Stat(prefixPython(prefix)); err != nil {
		if _, err := os.Stat(m.Interpreter); err != nil {
			return fmt.Sprintf("the Python it was made from, %s, is gone", m.Interpreter)
		}
		return fmt.Sprintf("its interpreter %s is gone", prefixPython(prefix))
	}
	present, err := siteEntries(prefix, m.Python)
	if err != nil {
		return fmt.Sprintf("its packages can not be read: %v", err)
	}
	for _, entry := range m.Entries {
		if _, found := slices.BinarySearch(present, entry); !found {
			return fmt.Sprintf("%s was deleted from its packages", entry)
		}
	}
	return ""
}

// siteEntries lists site-packages, sorted, without what Python itself writes there.
func siteEntries(prefix, version string) ([]string, error) {
	folder, err := os.Open(sitePackages(prefix, version))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "__pycache__" })
	slices.Sort(names)
	return names, nil
}

// revisionNumber splits the name of a revision: "0123456789abcdef-2".
func revisionNumber(name string) (hash string, number int, ok bool) {
	hash, digits, found := strings.Cut(name, "-")
	number, err := strconv.Atoi(digits)
	return hash, number, found && err == nil && len(hash) == 16 && number > 0
}

// revisions lists an environment's revisions of one plan, complete or not, the newest first, and the number of
// the next. With hash "" it lists those of every plan.
func revisions(directory, hash string) (paths []string, next int, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("reading the revisions: %w", err)
	}
	numbers := map[string]int{}
	next = 1
	for _, entry := range entries {
		plan, number, ok := revisionNumber(entry.Name())
		if !ok || !entry.IsDir() || hash != "" && plan != hash {
			continue
		}
		path := filepath.Join(directory, entry.Name())
		paths, numbers[path] = append(paths, path), number
		next = max(next, number+1)
	}
	slices.SortFunc(paths, func(a, b string) int { return numbers[b] - numbers[a] })
	return paths, next, nil
}
