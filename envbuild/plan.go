package envbuild

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// planFormat changes when the same plan would be built differently: every environment is then built anew.
const planFormat = 1

// Names of the backends.
const (
	BackendUV   = "uv"
	BackendPixi = "pixi"
)

// Plan is everything that is decided before an environment is built. It is made from values alone, is the
// same for the same values, and can be printed.
type Plan struct {
	Name      string `json:"name"`
	Stack     string `json:"stack"`      // of this environment
	HostStack string `json:"host_stack"` // of the host it is built for; differs where the manifest picks another Python

	PackDirectory  string `json:"pack_directory"`
	NodesDirectory string `json:"nodes_directory"`
	Manifest       string `json:"manifest"`

	Recipe Recipe `json:"recipe"`
	Hash   string `json:"hash"` // of the recipe

	// Inputs are what the recipe was derived from, by name: what differs between two plans says why.
	Inputs map[string]string `json:"inputs"`
	// Lines say what was decided or replaced, each with its reason.
	Lines []string `json:"lines"`

	// Variables, Activation and Options are for the worker; they change nothing on disk. Names in the values of
	// Activation stand for other variables.
	Variables  map[string]string `json:"variables,omitempty"`
	Activation map[string]string `json:"activation,omitempty"`
	Options    manifest.Options  `json:"options"`

	facts      Facts
	registered *record // what is recorded of the manifest and the host's stack, as of the last look; nil for nothing
}

// Recipe is the part of a plan that decides what lies in the environment's prefix. Its hash names the revision.
type Recipe struct {
	Format   int      `json:"format"`
	Platform string   `json:"platform"` // linux/amd64
	Backend  string   `json:"backend"`
	Python   string   `json:"python"` // "3.12", or "3.12.1" where the manifest says so
	Torch    string   `json:"torch"`  // build kind asked for, "" without torch
	Index    string   `json:"index"`  // where the torch family comes from, "" for the default index
	Family   []string `json:"family"` // torch family with versions, "torch==2.10.0"
	Pins     []string `json:"pins"`
	// Requirements are the pack's own, in PEP 508 form, sorted by name.
	Requirements []string `json:"requirements"`
	// Sources say where single packages come from, by normalised name.
	Sources map[string]Source `json:"sources,omitempty"`
	// CUDA are the wheels to take from the CUDA wheel index.
	CUDA      []string      `json:"cuda,omitempty"`
	CUDAIndex string        `json:"cuda_index,omitempty"`
	Installer InstallerPlan `json:"installer"`
	// Conda is what comes from conda channels; nil with the uv backend.
	Conda *CondaPlan `json:"conda,omitempty"`
	// Scripts are the manifest's activation scripts; with the pixi backend they are in Conda.
	Scripts []string `json:"scripts,omitempty"`
	// Local are hashes of the local files that requirements name, by path.
	Local map[string]string `json:"local,omitempty"`
}

// empty reports that nothing is to be installed.
func (r Recipe) empty() bool {
	return r.Conda == nil && len(r.Family)+len(r.Pins)+len(r.Requirements)+len(r.CUDA) == 0
}

// Source is where one package comes from; one of Index, URL, Git and Path is set.
type Source struct {
	Index        string `json:"index,omitempty"`
	URL          string `json:"url,omitempty"`
	Git          string `json:"git,omitempty"`
	Branch       string `json:"branch,omitempty"`
	Tag          string `json:"tag,omitempty"`
	Rev          string `json:"rev,omitempty"`
	LFS          bool   `json:"lfs,omitempty"`
	Path         string `json:"path,omitempty"`
	Editable     bool   `json:"editable,omitempty"`
	Subdirectory string `json:"subdirectory,omitempty"`
}

// InstallerPlan is [pypi-options] in the installer's terms.
type InstallerPlan struct {
	DefaultIndex     string   `json:"default_index,omitempty"`
	ExtraIndexes     []string `json:"extra_indexes,omitempty"`
	FindLinks        []string `json:"find_links,omitempty"`
	NoBuild          bool     `json:"no_build,omitempty"`
	NoBuildPackages  []string `json:"no_build_packages,omitempty"`
	NoBinary         bool     `json:"no_binary,omitempty"`
	NoBinaryPackages []string `json:"no_binary_packages,omitempty"`
	NoIsolation      []string `json:"no_isolation,omitempty"`
	IndexStrategy    string   `json:"index_strategy,omitempty"`
	Prerelease       string   `json:"prerelease,omitempty"`
	ExcludeNewer     string   `json:"exclude_newer,omitempty"`
	Overrides        []string `json:"overrides,omitempty"`
}

// Endpoints are the settings that a plan depends on. An empty one means the product's default.
type Endpoints struct {
	// TorchIndex is the base of the torch project's indexes; "{build}" in it stands for the build kind, which
	// is otherwise appended. "default" takes torch from the default index.
	TorchIndex string
	CUDAWheels string
	Backend    string // "uv" or "pixi"; "" lets the manifest decide
}

// seal computes the plan's hash, over the recipe's content and nothing else.
func (p *Plan) seal() error {
	content, err := json.Marshal(p.Recipe)
	if err != nil {
		return fmt.Errorf("encoding the plan of %s: %w", p.Name, err)
	}
	sum := sha256.Sum256(content)
	p.Hash = hex.EncodeToString(sum[:8])
	return nil
}

// DirectoryName is the name of the environment's folder in the store.
func (p *Plan) DirectoryName() string { return p.Name + "_" + p.Stack }

// say adds a line to what the plan tells.
func (p *Plan) say(format string, arguments ...any) {
	p.Lines = append(p.Lines, fmt.Sprintf(format, arguments...))
}

// absolute makes a path of the manifest absolute: it counts from the manifest's folder.
func (p *Plan) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(p.NodesDirectory, path)
}

// String names the place for people.
func (s Source) String() string {
	place := cmp.Or(s.Index, s.URL, s.Git, s.Path)
	for _, at := range []string{s.Rev, s.Tag, s.Branch} {
		if at != "" {
			place += " at " + at
			break
		}
	}
	if s.Editable {
		place += " (editable)"
	}
	return place
}
