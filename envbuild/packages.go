package envbuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// installedVersions reads the versions of the named packages (normalised names) from the metadata folders of
// site-packages. The first folder that has a package wins, as it does for Python's import.
func installedVersions(sites, names []string) (map[string]string, error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	versions := map[string]string{}
	for _, site := range sites {
		entries, err := os.ReadDir(site)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name, version, ok := metadataName(entry.Name())
			if !ok || !wanted[name] {
				continue
			}
			if _, earlier := versions[name]; earlier {
				continue
			}
			if written := metadataVersion(filepath.Join(site, entry.Name())); written != "" {
				version = written
			}
			versions[name] = version
		}
	}
	return versions, nil
}

// metadataName splits the name of a metadata folder: "torch-2.10.0+cu128.dist-info" is torch, 2.10.0+cu128.
func metadataName(entry string) (name, version string, ok bool) {
	base, isDist := strings.CutSuffix(entry, ".dist-info")
	if !isDist {
		var isEgg bool
		if base, isEgg = strings.CutSuffix(entry, ".egg-info"); !isEgg {
			return "", "", false
		}
	}
	name, version, found := strings.Cut(base, "-")
	if !found || name == "" || strings.HasPrefix(name, "~") { // pip's name for a package it is replacing
		return "", "", false
	}
	version, _, _ = strings.Cut(version, "-py") // egg-info: name-version-py3.12
	return normalizeName(name), version, true
}

// metadataVersion is the Version field of a metadata folder, "" where it can not be read.
func metadataVersion(folder string) string {
	for _, file := range []string{"METADATA", "PKG-INFO"} {
		content, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSpace(line)
			if line == "" {
				break // the description follows
			}
			if value, found := strings.CutPrefix(line, "Version:"); found {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// torchAssignment matches `cuda: Optional[str] = '12.8'` and `__version__ = '2.10.0+cu128'` of torch/version.py.
var torchAssignment = regexp.MustCompile(`(?m)^(__version__|cuda|hip|rocm|xpu)\s*(?::[^=\n]*)?=\s*(?:['"]([^'"\n]*)['"]|None)`)

// readTorch reads the version and the build kind from the text of torch/version.py; metadata does not have
// the kind. packaged is the version that the metadata names.
func readTorch(sites []string, packaged string) (TorchFacts, error) {
	for _, site := range sites {
		content, err := os.ReadFile(filepath.Join(site, "torch", "version.py"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return TorchFacts{}, fmt.Errorf("reading torch's build kind: %w", err)
		}
		values := map[string]string{}
		for _, match := range torchAssignment.FindAllStringSubmatch(string(content), -1) {
			values[match[1]] = match[2]
		}
		facts := TorchFacts{Version: values["__version__"], Build: torchBuild(values)}
		if facts.Version == "" {
			facts.Version = packaged
		}
		return facts, nil
	}
	return TorchFacts{}, fmt.Errorf("torch %s is installed by its metadata, but torch/version.py is in none of %s; install torch again",
		packaged, strings.Join(sites, ", "))
}

// torchBuild names the build as torch's project names its indexes: cpu, cu128, rocm6.4, xpu.
func torchBuild(values map[string]string) string {
	switch {
	case values["cuda"] != "":
		return "cu" + strings.ReplaceAll(minorVersion(values["cuda"]), ".", "")
	case values["hip"] != "" || values["rocm"] != "":
		// The local version names ROCm's release; `hip` counts the HIP runtime, which follows it closely.
		if _, local, found := strings.Cut(values["__version__"], "+rocm"); found && numericPrefix.MatchString(local) {
			return "rocm" + minorOrPatch(numericPrefix.FindString(local))
		}
		if version := minorVersion(values["rocm"]); version != "" {
			return "rocm" + version
		}
		return "rocm" + minorVersion(values["hip"])
	case values["xpu"] != "" || strings.HasSuffix(values["__version__"], "+xpu"):
		return "xpu"
	}
	return "cpu"
}

// minorOrPatch keeps "6.4" and "6.2.4": some ROCm indexes are named by three numbers, none by 6.4.0.
func minorOrPatch(version string) string { return strings.TrimSuffix(version, ".0.0") }
