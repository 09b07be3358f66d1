package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Found is one environment manifest that can be used: it lies where packs' nodes are looked for.
type Found struct {
	PackDirectory  string // the pack, a folder of custom_nodes
	NodesDirectory string // the folder that holds the manifest: <pack>/nodes or <pack>/nodes/<subdir>
	File           string
	Name           string // of the environment; see EnvironmentName
}

// Discover finds the environment manifests of a pack folder, of a custom_nodes folder, or of a whole
// ComfyUI (a folder that holds custom_nodes). Paths in the result start with directory as given, in
// alphabetical order. Folders whose name starts with "." or "_" or ends in ".disabled" are skipped.
//
// The diagnostics are about the places of the files, not their content: two files that derive one name,
// files that lie where nothing looks, folders that can not be read. What could be found is returned with them.
func Discover(directory string) ([]Found, []Diagnostic) {
	return DiscoverAll([]string{directory})
}

// DiscoverAll is Discover over several folders; names must differ across all of them. A folder that is
// reached twice is searched once.
func DiscoverAll(directories []string) ([]Found, []Diagnostic) {
	d := discovery{byName: map[string]Found{}}
	for _, directory := range directories {
		if nodes := filepath.Join(directory, "custom_nodes"); isDirectory(nodes) {
			d.packs(nodes)
		} else if filepath.Base(absolute(directory)) == "custom_nodes" {
			d.packs(directory)
		} else {
			d.pack(directory)
		}
	}
	return d.found, d.problems
}

// skippedFolder reports whether ComfyUI tools treat a folder of this name as switched off or private.
func skippedFolder(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || strings.HasSuffix(name, ".disabled")
}

type discovery struct {
	found    []Found
	problems []Diagnostic
	byName   map[string]Found
}

func (d *discovery) packs(customNodes string) {
	entries, err := os.ReadDir(customNodes)
	if err != nil {
		d.problem(customNodes, Error, CodeUnreadable, readProblem("the folder", err),
			"the packs in it are unknown", "make the folder readable for this user")
		return
	}
	for _, entry := range entries {
		path := filepath.Join(customNodes, entry.Name())
		if skippedFolder(entry.Name()) || !d.folder(path, entry) {
			continue
		}
		d.pack(path)
	}
}

func (d *discovery) pack(pack string) {
	d.misplaced(filepath.Join(pack, EnvironmentFile),
		"a "+EnvironmentFile+" in the pack's own folder is never read",
		"an environment holds the nodes of the folder its manifest lies in, and those are <pack>/nodes or <pack>/nodes/<subdir>",
		fmt.Sprintf("move it to %s", filepath.Join(pack, "nodes", EnvironmentFile)))
	nodes := filepath.Join(pack, "nodes")
	if !isDirectory(nodes) {
		return
	}
	d.manifest(pack, nodes)
	d.misplaced(filepath.Join(nodes, RootFile), "a "+RootFile+" below the pack's own folder is never read",
		"it describes the pack as a whole", fmt.Sprintf("move it to %s", filepath.Join(pack, RootFile)))
	entries, err := os.ReadDir(nodes)
	if err != nil {
		d.problem(nodes, Error, CodeUnreadable, readProblem("the folder", err),
			"the manifests in it are unknown", "make the folder readable for this user")
		return
	}
	for _, entry := range entries {
		path := filepath.Join(nodes, entry.Name())
		if entry.Name() == EnvironmentFile || skippedFolder(entry.Name()) || !d.folder(path, entry) {
			continue
		}
		d.manifest(pack, path)
	}
}

// folder reports whether an entry is a directory, through symbolic links too. A link that leads nowhere is
// no folder; one that leads in a circle is worth a word.
func (d *discovery) folder(path string, entry fs.DirEntry) bool {
	if entry.IsDir() {
		return true
	}
	if entry.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.problem(path, Warning, CodeUnreadable, readProblem("the link", err), "what it should lead to is left out",
			"remove the link or let it lead to a folder")
	}
	return err == nil && info.IsDir()
}

// manifest takes up the manifest of one folder, if it has one.
func (d *discovery) manifest(pack, folder string) {
	file := filepath.Join(folder, EnvironmentFile)
	if _, err := os.Lstat(file); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.problem(file, Error, CodeUnreadable, readProblem("the file", err), "", "make the folder readable for this user")
		}
		return
	}
	found := Found{PackDirectory: pack, NodesDirectory: folder, File: file, Name: EnvironmentName(pack, file)}
	if found.Name == "" {
		d.problem(file, Error, CodeNoName, "no environment name can be made from these folder names",
			"names consist of the letters a-z, digits and dashes of the pack's and the manifest's folder",
			"give the pack's folder a name with such characters")
		return
	}
	if first, taken := d.byName[found.Name]; taken {
		if first.File == file {
			return
		}
		d.problem(file, Error, CodeDuplicateName,
			fmt.Sprintf("the environment name %q is already derived from %s", found.Name, first.File),
			"both would be built into one place, each undoing the other's work",
			fmt.Sprintf("rename one of the folders %s and %s", duplicateFolder(first), duplicateFolder(found)))
		d.problems[len(d.problems)-1].Related = []Place{{File: first.File, Position: Position{Line: 1, Column: 1}}}
		return
	}
	d.byName[found.Name] = found
	d.found = append(d.found, found)
}

// duplicateFolder is the folder whose renaming changes a manifest's environment name most naturally.
func duplicateFolder(found Found) string {
	if filepath.Base(found.NodesDirectory) == "nodes" {
		return found.PackDirectory
	}
	return found.NodesDirectory
}

// misplaced warns about a file that lies where nothing looks for it.
func (d *discovery) misplaced(file, message, why, fix string) {
	if info, err := os.Lstat(file); err == nil && !info.IsDir() {
		d.problem(file, Warning, CodeMisplacedFile, message, why, fix)
	}
}

func (d *discovery) problem(file string, severity Severity, code Code, message, why, fix string) {
	d.problems = append(d.problems, Diagnostic{File: file, Position: Position{Line: 1, Column: 1}, Length: 1,
		Severity: severity, Code: code, Message: message, Why: why, Fix: fix})
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// absolute is for looking at the last element of a path such as "."; the path itself will do where the
// working directory is gone.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// readProblem is the system's reason without the path, which the diagnostic has already.
func readProblem(what string, err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Sprintf("%s can not be read: %v", what, err)
}
