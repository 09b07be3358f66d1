package envbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/sys/atomicwriter"
)

// factsFormat is the version of the JSON form of Facts.
const factsFormat = 1

// Facts is what an environment depends on of the host, the ComfyUI process that will use it.
type Facts struct {
	Format int         `json:"format"`
	Python PythonFacts `json:"python"`
	// Packages are the installed versions that environments follow: the pager's two packages, the torch
	// family, numpy. A package that is not installed has no entry.
	Packages map[string]string `json:"packages"`
	Torch    TorchFacts        `json:"torch"`
	ComfyUI  ComfyUIFacts      `json:"comfyui"`
	GPU      GPUFacts          `json:"gpu"`
	Platform PlatformFacts     `json:"platform"`
	// Environ are the variables of the process that asked, the base of workers in the operator's session.
	Environ map[string]string `json:"environ,omitempty"`
}

// PythonFacts is the host's interpreter.
type PythonFacts struct {
	Version        string `json:"version"`         // "3.12.1"
	Executable     string `json:"executable"`      // as given, absolute
	BaseExecutable string `json:"base_executable"` // the interpreter a virtual environment was made from, else Executable
	// SitePackages are the folders its packages were read from.
	SitePackages []string `json:"site_packages,omitempty"`
}

// TorchFacts is the host's torch; Version is empty where there is none.
type TorchFacts struct {
	Version string `json:"version"` // as torch/version.py has it, "2.10.0+cu128"
	Build   string `json:"build"`   // build kind: "cpu", "cu128", "rocm6.4", "xpu"
}

// ComfyUIFacts is the ComfyUI tree; both fields are empty where none was named.
type ComfyUIFacts struct {
	Version   string `json:"version"`
	Directory string `json:"directory"`
}

// GPUFacts says which accelerator the operating system knows of, from device nodes or the driver's registration.
type GPUFacts struct {
	Present bool `json:"present"`
	// Kind is "nvidia", "amd", "intel" or "apple": of several, the one the host's torch is built for, else the first.
	Kind string `json:"kind,omitempty"`
	// Devices are all that were found, each with where.
	Devices []GPUDevice `json:"devices,omitempty"`
	// Driver is the version of NVIDIA's driver, "" where there is none or the system does not tell it.
	Driver string `json:"driver,omitempty"`
}

// GPUDevice is one accelerator.
type GPUDevice struct {
	Kind   string `json:"kind"`
	Source string `json:"source"` // the path or registry key that shows it
}

// PlatformFacts names the operating system and processor in Go's words.
type PlatformFacts struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// TorchFamily are the packages that every environment takes from the host, exactly.
var TorchFamily = []string{"torch", "torchvision", "torchaudio"}

// HostPins are the packages that every environment gets at the host's version, whether or not its pack asked.
var HostPins = []string{"comfy-aimdo", "comfy-kitchen"}

// followed are all packages whose version is a host fact.
var followed = slices.Concat(HostPins, TorchFamily, []string{"numpy"})

// FactsSource says where host facts come from.
type FactsSource struct {
	File    string // a JSON file; when set, Python is not looked at
	Python  string // the host's interpreter; "" looks for one in ComfyUI's folder and on PATH
	ComfyUI string // the ComfyUI folder, "" for none
	Environ []string
	Cache   string // folder for what interpreters were asked before; "" asks each time
}

// ReadFacts collects the host's facts. It starts no process where the interpreter is a virtual environment
// or was asked before, and never imports torch.
func ReadFacts(ctx context.Context, source FactsSource) (Facts, error) {
	if source.File != "" {
		facts, err := LoadFacts(source.File)
		if err != nil {
			return Facts{}, err
		}
		if source.ComfyUI != "" {
			if facts.ComfyUI, err = readComfyUI(source.ComfyUI); err != nil {
				return Facts{}, err
			}
		}
		if facts.Environ == nil {
			facts.Environ = environMap(source.Environ)
		}
		return facts, nil
	}
	facts := Facts{
		Format:   factsFormat,
		Packages: map[string]string{},
		Platform: PlatformFacts{OS: runtime.GOOS, Arch: runtime.GOARCH},
		Environ:  environMap(source.Environ),
	}
	var err error
	if source.ComfyUI != "" {
		if facts.ComfyUI, err = readComfyUI(source.ComfyUI); err != nil {
			return Facts{}, err
		}
	}
	python := source.Python
	if python == "" {
		if python, err = hostInterpreter(facts.ComfyUI.Directory, source.Environ); err != nil {
			return Facts{}, err
		}
	}
	if python, err = resolveExecutable(python, source.Environ); err != nil {
		return Facts{}, fmt.Errorf("looking for the host's interpreter: %w", err)
	}
	prober := prober{cache: source.Cache}
	host, err := prober.interpreter(ctx, python)
	if err != nil {
		return Facts{}, fmt.Errorf("reading the facts of the host's interpreter: %w", err)
	}
	facts.Python = PythonFacts{Version: host.Version, Executable: host.Executable,
		BaseExecutable: host.BaseExecutable, SitePackages: host.SitePackages}
	if facts.Packages, err = installedVersions(host.SitePackages, followed); err != nil {
		return Facts{}, fmt.Errorf("reading the packages of %s: %w", host.Executable, err)
	}
	if version, installed := facts.Packages["torch"]; installed {
		if facts.Torch, err = readTorch(host.SitePackages, version); err != nil {
			return Facts{}, err
		}
	}
	facts.GPU = preferGPU(probeGPU("/"), facts.Torch.Build)
	facts.GPU.Driver = probeDriver("/")
	return facts, nil
}

// LoadFacts reads facts from a JSON file as SaveFacts writes it.
func LoadFacts(file string) (Facts, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Facts{}, fmt.Errorf("reading host facts: %w", err)
	}
	var facts Facts
	if err := json.Unmarshal(content, &facts); err != nil {
		return Facts{}, fmt.Errorf("reading host facts %s: %w; write the file with `comfy-supervisor facts --json`", file, err)
	}
	if err := facts.validate(); err != nil {
		return Facts{}, fmt.Errorf("host facts %s: %w", file, err)
	}
	return facts, nil
}

// validate fills what a hand-written file may leave out and refuses what nothing can be built from.
func (f *Facts) validate() error {
	if f.Format > factsFormat {
		return fmt.Errorf("their format is %d and this program knows up to %d; use the program that wrote them", f.Format, factsFormat)
	}
	f.Format = factsFormat
	if f.Packages == nil {
		f.Packages = map[string]string{}
	}
	if !isPythonVersion(f.Python.Version) {
		return fmt.Errorf("python.version is %q; it must be a version such as \"3.12.1\"", f.Python.Version)
	}
	if f.Platform.OS == "" {
		f.Platform.OS = runtime.GOOS
	}
	if f.Platform.Arch == "" {
		f.Platform.Arch = runtime.GOARCH
	}
	packaged := f.Packages["torch"]
	switch {
	case f.Torch.Version == "" && packaged != "":
		f.Torch.Version = packaged
	case f.Torch.Version != "" && packaged == "":
		f.Packages["torch"] = f.Torch.Version
	}
	if f.Torch.Version != "" && f.Torch.Build == "" {
		return errors.New(`torch.build is missing; it is the build kind such as "cpu" or "cu128"`)
	}
	return nil
}

// SaveFacts writes facts to <directory>/<hash>.json, readable by this user alone, and returns the path. The
// hash is of everything but the variables, so one host has one file. What is there already is not written again.
func SaveFacts(directory string, facts Facts) (string, error) {
	facts.Format = factsFormat
	host := facts
	host.Environ = nil
	key, err := json.Marshal(host)
	if err != nil {
		return "", fmt.Errorf("encoding host facts: %w", err)
	}
	content, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding host facts: %w", err)
	}
	content = append(content, '\n')
	sum := sha256.Sum256(key)
	path := filepath.Join(directory, hex.EncodeToString(sum[:8])+".json")
	if present, err := os.ReadFile(path); err == nil && string(present) == string(content) {
		return path, nil
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", fmt.Errorf("making the folder for host facts: %w", err)
	}
	if err := atomicwriter.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing host facts: %w", err)
	}
	return path, nil
}

// volatile variables say where a command was typed, not what the host is.
var volatile = []string{"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES", "WINDOWID", "COMFY_SUPERVISOR_WORKER"}

// environMap turns NAME=value lines into a map, without what differs from one prompt of a shell to the next.
func environMap(environ []string) map[string]string {
	if environ == nil {
		return nil
	}
	variables := make(map[string]string, len(environ))
	for _, line := range environ {
		name, value, found := strings.Cut(line, "=")
		if !found || name == "" || slices.Contains(volatile, name) {
			continue
		}
		variables[name] = value
	}
	return variables
}

// hostInterpreter is where a ComfyUI without a named interpreter keeps its own: the Windows portable's
// embedded one, or a virtual environment in its folder. Without any, the python of PATH.
func hostInterpreter(comfyui string, environ []string) (string, error) {
	if comfyui != "" {
		for _, place := range []string{
			filepath.Join("..", "python_embeded", "python.exe"),
			filepath.Join(".venv", "bin", "python"),
			filepath.Join("venv", "bin", "python"),
			filepath.Join(".venv", "Scripts", "python.exe"),
			filepath.Join("venv", "Scripts", "python.exe"),
		} {
			candidate := filepath.Join(comfyui, place)
			if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
				return candidate, nil
			}
		}
	}
	if active := environValue(environ, "VIRTUAL_ENV"); active != "" {
		candidate := prefixPython(active)
		if _, err := os.Stat(candidate); err == nil {
			return candidate, nil
		}
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := resolveExecutable(name, environ); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no host interpreter: neither ComfyUI's folder nor PATH has a Python; name the one that runs ComfyUI with --python")
}

// readComfyUI reads the version of a ComfyUI tree from its text.
func readComfyUI(directory string) (ComfyUIFacts, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return ComfyUIFacts{}, fmt.Errorf("resolving the ComfyUI folder: %w", err)
	}
	info, err := os.Stat(directory)
	if err != nil {
		return ComfyUIFacts{}, fmt.Errorf("opening the ComfyUI folder: %w", err)
	}
	if !info.IsDir() {
		return ComfyUIFacts{}, fmt.Errorf("%s is not a folder; --comfyui names the folder that holds ComfyUI's main.py", directory)
	}
	facts := ComfyUIFacts{Directory: directory}
	for _, file := range []string{"comfyui_version.py", "pyproject.toml"} {
		content, err := os.ReadFile(filepath.Join(directory, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ComfyUIFacts{}, fmt.Errorf("reading ComfyUI's version: %w", err)
		}
		if version := assignedVersion(string(content)); version != "" {
			facts.Version = version
			break
		}
	}
	return facts, nil
}

// assignedVersion finds the first `version = "..."` or `__version__ = "..."` line of Python or TOML text.
func assignedVersion(text string) string {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || (strings.TrimSpace(name) != "__version__" && strings.TrimSpace(name) != "version") {
			continue
		}
		value, _, _ = strings.Cut(value, "#")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if value != "" {
			return value
		}
	}
	return ""
}
