package envbuild

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/atomicwriter"
)

// interpreter is what a Python says of itself.
type interpreter struct {
	Version        string   `json:"version"`
	Executable     string   `json:"executable"`
	BaseExecutable string   `json:"base_executable"`
	SitePackages   []string `json:"site_packages"`
	Implementation string   `json:"implementation"`
	Bits           int      `json:"bits"`
}

// probeTimeout bounds the start of an interpreter that is asked; cold ones on slow disks take seconds.
const probeTimeout = 60 * time.Second

// probeProgram prints one JSON line. The user's own site folder counts as it does for a ComfyUI that is started
// with this interpreter: before the installation's, and not in an isolated virtual environment.
const probeProgram = `
import json, os, site, struct, sys, sysconfig
paths = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
paths += getattr(site, "getsitepackages", lambda: [])()
if sys.prefix == sys.base_prefix or sys.base_prefix in "".join(paths):
    paths.insert(0 if sys.prefix == sys.base_prefix else len(paths), site.getusersitepackages())
unique = []
for path in paths:
    if path and path not in unique:
        unique.append(path)
print(json.dumps({"version": "%d.%d.%d" % tuple(sys.version_info[:3]), "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", None) or sys.executable, "site_packages": unique,
    "implementation": sys.implementation.name, "bits": 8 * struct.calcsize("P")}))
`

// prober learns about interpreters, from files where it can and by running them once where it must.
type prober struct {
	cache string // folder of answers by the binary's hash; "" keeps none
}

// interpreter describes the Python at path, an absolute path.
func (p prober) interpreter(ctx context.Context, path string) (interpreter, error) {
	if found, ok, err := readVirtualEnvironment(path); err != nil || ok {
		return found, err
	}
	return p.ask(ctx, path)
}

// ask runs an interpreter, or answers from the cache when this very binary was run before.
func (p prober) ask(ctx context.Context, path string) (interpreter, error) {
	key, err := binaryKey(path)
	if err != nil {
		return interpreter{}, err
	}
	cached := ""
	if p.cache != "" && key != "" {
		cached = filepath.Join(p.cache, "interpreters", key+".json")
		if content, err := os.ReadFile(cached); err == nil {
			var found interpreter
			if json.Unmarshal(content, &found) == nil && isPythonVersion(found.Version) {
				return found, nil
			}
		}
	}
	found, err := runProbe(ctx, path)
	if err != nil {
		return interpreter{}, err
	}
	if cached != "" {
		content, err := json.Marshal(found)
		if err != nil {
			return interpreter{}, fmt.Errorf("encoding what %s said: %w", path, err)
		}
		// A cache that can not be written costs the next build one start of this interpreter, no more.
		if os.MkdirAll(filepath.Dir(cached), 0o700) == nil {
			_ = atomicwriter.WriteFile(cached, content, 0o600)
		}
	}
	return found, nil
}

// runProbe starts the interpreter. -I keeps PYTHON* variables and the working directory out.
func runProbe(ctx context.Context, path string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, "-I", "-c", probeProgram)
	command.Env = probeEnviron(os.Environ())
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		reason := lastLine(stderr.String())
		if reason == "" {
			reason = err.Error()
		}
		if strings.Contains(stderr.String(), "unknown option -I") || strings.Contains(stderr.String(), "Unknown option: -I") {
			reason = "it is a Python 2"
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason = fmt.Sprintf("no answer within %v", probeTimeout)
		}
		return interpreter{}, fmt.Errorf("%s does not run as a Python 3: %s", path, reason)
	}
	var found interpreter
	if err := json.Unmarshal([]byte(lastLine(stdout.String())), &found); err != nil || !isPythonVersion(found.Version) {
		return interpreter{}, fmt.Errorf("%s does not answer as a Python does; it printed %q", path, shorten(stdout.String(), 200))
	}
	if found.Executable == "" {
		found.Executable = path
	}
	if found.BaseExecutable == "" {
		found.BaseExecutable = found.Executable
	}
	return found, nil
}

// probeEnviron leaves out the variables by which an interpreter would describe another one than itself.
func probeEnviron(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, line := range environ {
		if strings.HasPrefix(line, "PYTHON") || strings.HasPrefix(line, "__PYVENV_LAUNCHER__") {
			continue
		}
		kept = append(kept, line)
	}
	return append(kept, "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1", "PYTHONIOENCODING=utf-8")
}

// binaryKey is a hash of the interpreter's path and bytes: what it answered stays true as long as they are
// the same. It is empty for a script, a pyenv shim say, which may start another Python tomorrow.
func binaryKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("opening the interpreter: %w", err)
	}
	defer file.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(file, head); err != nil {
		return "", fmt.Errorf("reading the interpreter %s: %w", path, err)
	}
	if string(head) == "#!" {
		return "", nil
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "1\x00%s\x00", path)
	hash.Write(head)
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("reading the interpreter %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// readVirtualEnvironment describes a virtual environment from its files alone. It reports false for an
// interpreter that is none, or whose files leave a question open.
func readVirtualEnvironment(path string) (interpreter, bool, error) {
	// As CPython looks for it: beside the executable's name as started, then one folder up.
	directory := filepath.Dir(path)
	var prefix string
	var content []byte
	for _, candidate := range []string{directory, filepath.Dir(directory)} {
		text, err := os.ReadFile(filepath.Join(candidate, "pyvenv.cfg"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return interpreter{}, false, fmt.Errorf("reading a virtual environment: %w", err)
		}
		prefix, content = candidate, text
		break
	}
	if prefix == "" {
		return interpreter{}, false, nil
	}
	if _, err := os.Stat(path); err != nil {
		return interpreter{}, false, fmt.Errorf("the virtual environment %s has lost its interpreter: %w; make it again", prefix, err)
	}
	values := parseVirtualEnvironment(string(content))
	version := values["version_info"]
	if version == "" {
		version = values["version"]
	}
	version = numericVersion(version)
	if !isPythonVersion(version) || strings.EqualFold(values["include-system-site-packages"], "true") || values["home"] == "" {
		return interpreter{}, false, nil
	}
	base, ok := baseExecutable(path, values)
	if !ok {
		return interpreter{}, false, nil
	}
	found := interpreter{Version: version, Executable: path, BaseExecutable: base,
		Implementation: strings.ToLower(values["implementation"]), Bits: strconv.IntSize}
	if found.Implementation == "" {
		found.Implementation = "cpython"
	}
	for _, site := range []string{sitePackages(prefix, version), strings.Replace(sitePackages(prefix, version), "lib", "lib64", 1)} {
		if info, err := os.Stat(site); err == nil && info.IsDir() {
			if real, err := filepath.EvalSymlinks(site); err == nil && len(found.SitePackages) == 1 {
				if first, err := filepath.EvalSymlinks(found.SitePackages[0]); err == nil && first == real {
					continue // lib64 is usually a link to lib
				}
			}
			found.SitePackages = append(found.SitePackages, site)
		}
	}
	return found, len(found.SitePackages) > 0, nil
}

// baseExecutable is the interpreter that a virtual environment was made from.
func baseExecutable(path string, values map[string]string) (string, bool) {
	if recorded := values["base-executable"]; recorded != "" { // virtualenv writes it
		if _, err := os.Stat(recorded); err == nil {
			return recorded, true
		}
	}
	home := values["home"]
	names := []string{filepath.Base(path)}
	if minor := minorVersion(numericVersion(cmp.Or(values["version_info"], values["version"]))); minor != "" {
		names = append(names, "python"+minor)
	}
	names = append(names, "python3", "python")
	for _, name := range names {
		if runtime.GOOS == "windows" && !strings.HasSuffix(strings.ToLower(name), ".exe") {
			name += ".exe"
		}
		candidate := filepath.Join(home, name)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
			return candidate, true
		}
	}
	return "", false
}

// parseVirtualEnvironment reads `key = value` lines; keys are lower case.
func parseVirtualEnvironment(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, "=")
		if found {
			values[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return values
}

// sitePackages is the packages folder of a virtual environment.
func sitePackages(prefix, version string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(prefix, "Lib", "site-packages")
	}
	return filepath.Join(prefix, "lib", "python"+minorVersion(version), "site-packages")
}

// prefixPython is the interpreter of a virtual environment or a conda prefix.
func prefixPython(prefix string) string {
	if runtime.GOOS == "windows" {
		if exists(filepath.Join(prefix, condaMetadata)) {
			return condaPython(prefix)
		}
		return filepath.Join(prefix, "Scripts", "python.exe")
	}
	return filepath.Join(prefix, "bin", "python")
}

// resolveExecutable makes a name or path absolute, looking a bare name up on the PATH of environ.
func resolveExecutable(name string, environ []string) (string, error) {
	if strings.ContainsAny(name, `/\`) {
		path, err := filepath.Abs(name)
		if err != nil {
			return "", fmt.Errorf("resolving %s: %w", name, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		if info.IsDir() {
			return "", fmt.Errorf("%s is a folder; name the interpreter itself, such as %s", path, prefixPython(path))
		}
		return path, nil
	}
	for _, candidate := range pathCandidates(name, environ) {
		return candidate, nil
	}
	return "", fmt.Errorf("%q is not on PATH", name)
}

// pathCandidates lists the executables of that name on the PATH of environ, in order.
func pathCandidates(name string, environ []string) []string {
	var found []string
	for _, directory := range filepath.SplitList(environValue(environ, "PATH")) {
		if directory == "" || !filepath.IsAbs(directory) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			found = append(found, path)
		}
	}
	return found
}
