package envbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// require turns the pack's own requirements into the recipe's.
func (p *Plan) require(merged merged) error {
	recipe := &p.Recipe
	for _, requirement := range merged.requirements {
		name := normalizeName(requirement.Name)
		if slices.Contains(HostPins, name) || slices.Contains(TorchFamily, name) {
			continue // decided already; the manifest's parser lists them as stripped
		}
		recipe.Requirements = append(recipe.Requirements, requirementText(requirement))
		source := Source{
			Index: requirement.Index, URL: requirement.URL, Git: requirement.Git, Branch: requirement.Branch,
			Tag: requirement.Tag, Rev: requirement.Rev, LFS: requirement.LFS, Subdirectory: requirement.Subdirectory,
		}
		if requirement.Path != "" {
			source.Path, source.Editable = p.absolute(requirement.Path), requirement.Editable
			hash, err := hashLocal(source.Path, source.Editable)
			if err != nil {
				return fmt.Errorf("%s:%d: the path of %s: %w", p.Manifest, requirement.At.Line, requirement.Name, err)
			}
			if recipe.Local == nil {
				recipe.Local = map[string]string{}
			}
			recipe.Local[source.Path] = hash
		}
		if source == (Source{}) {
			continue
		}
		if recipe.Sources == nil {
			recipe.Sources = map[string]Source{}
		}
		recipe.Sources[name] = source
	}
	return nil
}

// requirementText is PEP 508's form of name, extras, version and marker; where it comes from is said apart.
func requirementText(requirement manifest.Requirement) string {
	var text strings.Builder
	text.WriteString(normalizeName(requirement.Name))
	if len(requirement.Extras) > 0 {
		text.WriteString("[" + strings.Join(requirement.Extras, ",") + "]")
	}
	if version := strings.TrimSpace(requirement.Version); version != "" && version != "*" {
		if numericPrefix.MatchString(version) {
			version = "==" + version
		}
		text.WriteString(version)
	}
	if requirement.Marker != "" {
		text.WriteString(" ; " + requirement.Marker)
	}
	return text.String()
}

// directText is PEP 508's form with the place in it, for overrides, which have no table of sources.
func (p *Plan) directText(requirement manifest.Requirement) string {
	place := ""
	switch {
	case requirement.URL != "":
		place = requirement.URL
	case requirement.Git != "":
		place = "git+" + requirement.Git
		for _, at := range []string{requirement.Rev, requirement.Tag, requirement.Branch} {
			if at != "" {
				place += "@" + at
				break
			}
		}
	case requirement.Path != "":
		place = "file://" + filepath.ToSlash(p.absolute(requirement.Path))
	}
	if place == "" {
		return requirementText(requirement)
	}
	if requirement.Subdirectory != "" {
		place += "#subdirectory=" + requirement.Subdirectory
	}
	bare := requirement
	bare.Version, bare.Marker = "", ""
	text := requirementText(bare) + " @ " + place
	if requirement.Marker != "" {
		text += " ; " + requirement.Marker
	}
	return text
}

// installer takes up [pypi-options].
func (p *Plan) installer(merged merged) {
	options := merged.options
	installer := &p.Recipe.Installer
	installer.DefaultIndex = options.IndexURL
	installer.ExtraIndexes = options.ExtraIndexURLs
	for _, link := range options.FindLinks {
		if link.Path != "" {
			installer.FindLinks = append(installer.FindLinks, p.absolute(link.Path))
		} else {
			installer.FindLinks = append(installer.FindLinks, link.URL)
		}
	}
	installer.NoBuild, installer.NoBuildPackages = options.NoBuild.All, options.NoBuild.Packages
	installer.NoBinary, installer.NoBinaryPackages = options.NoBinary.All, options.NoBinary.Packages
	installer.NoIsolation = options.NoBuildIsolation.Packages
	if options.NoBuildIsolation.All {
		installer.NoIsolation = []string{"*"}
	}
	installer.IndexStrategy, installer.Prerelease = options.IndexStrategy, options.PrereleaseMode
	installer.ExcludeNewer = merged.excludeNewer
	for _, override := range options.DependencyOverrides {
		installer.Overrides = append(installer.Overrides, p.directText(override))
	}
}

// builtFolders are left out of the hash of a local project: tools write them, not people.
var builtFolders = []string{".git", "__pycache__", "build", "dist", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

// hashLocal hashes what an installation of a local path depends on: an archive's bytes; of a folder every
// file's name and bytes; of an editable folder the files that say what it needs, since its code is read in place.
func hashLocal(path string, editable bool) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	if !info.IsDir() {
		if err := hashFile(hash, path); err != nil {
			return "", err
		}
		return hex.EncodeToString(hash.Sum(nil)), nil
	}
	if editable {
		for _, name := range []string{"pyproject.toml", "setup.py", "setup.cfg"} {
			fmt.Fprintf(hash, "%s\x00", name)
			if err := hashFile(hash, filepath.Join(path, name)); err != nil && !os.IsNotExist(err) {
				return "", err
			}
		}
		return hex.EncodeToString(hash.Sum(nil)), nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if file != path && (slices.Contains(builtFolders, entry.Name()) || strings.HasSuffix(entry.Name(), ".egg-info")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || strings.HasSuffix(entry.Name(), ".pyc") {
			return nil
		}
		relative, err := filepath.Rel(path, file)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s\x00", filepath.ToSlash(relative))
		return hashFile(hash, file)
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// hashFile adds a file's length and bytes.
func hashFile(hash io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(hash, "%d\x00", info.Size())
	_, err = io.Copy(hash, file)
	return err
}
