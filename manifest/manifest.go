package manifest

import (
	"time"
)

// File names of the two manifests.
const (
	EnvironmentFile = "comfy-env.toml"
	RootFile        = "comfy-env-root.toml"
)

// DefaultHealthCheckTimeout applies when a manifest does not set options.health_check_timeout.
const DefaultHealthCheckTimeout = 5 * time.Second

// Manifest is what one file says. Of a root file only File, Root, Digest, NodePacks and Types are set.
type Manifest struct {
	File   string // as given to Parse
	Root   bool   // it is a comfy-env-root.toml
	Digest string // SHA-256 of the file's bytes, in hexadecimal

	// Python is the version of the interpreter, "3.11" or "3.11.9"; empty means the host's.
	Python string
	// PythonAt is where it is written.
	PythonAt Position
	// CUDAPackages are the wheels to take from the CUDA wheel index, in the file's order.
	CUDAPackages []CUDAPackage
	// EnvVars are the variables of the worker's process.
	EnvVars map[string]string
	Options Options

	PyPIDependencies []Requirement
	Dependencies     []CondaDependency // without python when that only repeats Python
	HostDependencies []CondaDependency
	Constraints      []CondaDependency
	// BuildDependencies are what [build-dependencies] holds.
	BuildDependencies  []CondaDependency
	PyPIOptions        PyPIOptions
	Activation         Activation
	SystemRequirements map[string]any
	Channels           []Channel // workspace.channels
	ExcludeNewer       string    // exclude-newer, as written
	PyPIExcludeNewer   string    // pypi-exclude-newer, as written
	Targets            []Target  // in the file's order

	// PassThrough holds every table and key that is pixi's, as plain values (string, int64, float64, bool,
	// time text, []any, map[string]any), without what is consumed here and without the torch family.
	PassThrough map[string]any

	// Stripped are the requirements left out because the host dictates them: the torch family and the pins.
	Stripped []Stripped

	NodePacks []NodePack        // root file
	Types     map[string]string // root file: socket type to "builtin" or "custom"
}

// CUDAPackage is one entry of [cuda] packages.
type CUDAPackage struct {
	Name    string // as written
	Version string // version specifier, "" for any
	At      Position
}

// Requirement is one Python package of a [pypi-dependencies] table or of pypi-options.dependency-overrides.
type Requirement struct {
	Name    string   // as written
	Version string   // PEP 440 specifiers, "" for any
	Extras  []string // as written
	Marker  string   // PEP 508 marker, "" for always
	Index   string   // URL of the index to take it from, "" for the configured ones

	URL          string // direct reference to an archive
	Git          string // repository URL
	Branch       string
	Tag          string
	Rev          string
	Path         string // local folder or archive, relative to the manifest's folder
	Editable     bool   // with Path
	Subdirectory string // with Git, URL or Path
	LFS          bool   // with Git

	At Position
}

// Stripped is an entry that was taken out of a table because the host decides it.
type Stripped struct {
	Name   string // as written
	Table  string // "pypi-dependencies", "target.linux-64.dependencies", "cuda.packages"
	Reason string
	At     Position

	path []string // Table's parts
}

// CondaDependency is one package of a [dependencies] table and its kin: a conda match specification.
type CondaDependency struct {
	Name    string
	Version string // conda version specification, "*" for any
	Build   string
	Channel string
	Other   map[string]any // the remaining keys of a table entry (url, path, git, sha256 ...)
	At      Position
}

// Channel is one entry of workspace.channels.
type Channel struct {
	Name     string
	Priority int64
}

// Activation is what [activation] asks for when the environment is entered.
type Activation struct {
	Scripts   []string // relative to the manifest's folder
	Env       map[string]string
	ScriptsAt Position
}

// PyPIOptions is [pypi-options].
type PyPIOptions struct {
	IndexURL               string
	ExtraIndexURLs         []string
	FindLinks              []FindLink
	NoBuild                PackageSet
	NoBinary               PackageSet
	NoBuildIsolation       PackageSet
	IndexStrategy          string // "", "first-index", "unsafe-first-match", "unsafe-best-match"
	PrereleaseMode         string // "", "disallow", "allow", "if-necessary", "explicit", "if-necessary-or-explicit"
	SkipWheelFilenameCheck bool
	DependencyOverrides    []Requirement
}

// FindLink is one entry of pypi-options.find-links: a folder or a page with links to archives.
type FindLink struct {
	Path string
	URL  string
}

// PackageSet says for which packages an option holds.
type PackageSet struct {
	All      bool
	Packages []string
}

// Target is one [target.SELECTOR] table.
type Target struct {
	Selector           string // "linux-64", "win", "unix" ...
	PyPIDependencies   []Requirement
	Dependencies       []CondaDependency
	HostDependencies   []CondaDependency
	BuildDependencies  []CondaDependency
	Constraints        []CondaDependency
	Activation         Activation
	SystemRequirements map[string]any
	At                 Position
}

// NodePack is one entry of a root file's [node_packs]: another pack that this one needs.
type NodePack struct {
	Name     string
	GitHub   string // owner/name or a URL
	Tag      string
	Branch   string
	Commit   string
	Registry string
	Version  string
	At       Position
}
