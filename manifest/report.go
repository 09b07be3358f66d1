package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Report is what there is to say about one file.
type Report struct {
	File        string
	Diagnostics []Diagnostic
}

// OK reports that nothing refuses the file.
func (r Report) OK() bool { return !HasErrors(r.Diagnostics) }

// JSONReport is a report as machines read it.
type JSONReport struct {
	File        string           `json:"file"`
	OK          bool             `json:"ok"`
	Diagnostics []JSONDiagnostic `json:"diagnostics"`
}

// JSONDiagnostic is a diagnostic as machines read it. The message says what is wrong and why it matters.
type JSONDiagnostic struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Line     int      `json:"line"`
	Column   int      `json:"column"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix"`
}

// JSON turns reports into what machines read. It is never null.
func JSON(reports []Report) []JSONReport {
	list := make([]JSONReport, 0, len(reports))
	for _, report := range reports {
		entry := JSONReport{File: report.File, OK: report.OK(), Diagnostics: make([]JSONDiagnostic, 0, len(report.Diagnostics))}
		for _, d := range report.Diagnostics {
			message := d.Message
			if d.Why != "" {
				message += ": " + d.Why
			}
			for _, related := range d.Related {
				message += fmt.Sprintf(" (see also %s:%d:%d)", related.File, related.Line, related.Column)
			}
			entry.Diagnostics = append(entry.Diagnostics, JSONDiagnostic{Severity: d.Severity, Code: d.Code, Line: d.Line, Column: d.Column,
				Message: strings.ToValidUTF8(message, "\ufffd"), Fix: strings.ToValidUTF8(d.Fix, "\ufffd")})
		}
		list = append(list, entry)
	}
	return list
}

// Check looks at manifests for a platform (see ParseFor): files as they are; of packs, custom_nodes folders and
// whole ComfyUIs what Discover finds and the root files; of any other folder every manifest below it. A path
// that does not exist is an error; what is wrong with files that do is in the reports, one for each file.
func Check(platform string, paths []string) ([]Report, error) {
	c := collector{platform: platform, index: map[string]int{}}
	var folders []string
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("checking %s: there is no such file or folder", path)
		case err == nil && info.IsDir() && filepath.Base(path) != EnvironmentFile && filepath.Base(path) != RootFile:
			folders = append(folders, path)
		default:
			c.file(path)
		}
	}
	c.folders(folders)
	return c.reports, nil
}

// collector gathers the reports, one for each file however often it is met.
type collector struct {
	platform string
	reports  []Report
	index    map[string]int
}

func (c *collector) report(file string) *Report {
	key := filepath.Clean(file)
	at, known := c.index[key]
	if !known {
		at = len(c.reports)
		c.index[key] = at
		c.reports = append(c.reports, Report{File: file})
	}
	return &c.reports[at]
}

func (c *collector) file(file string) {
	if _, known := c.index[filepath.Clean(file)]; known {
		return
	}
	report := c.report(file)
	content, problem := ReadFile(file)
	if problem != nil {
		report.Diagnostics = append(report.Diagnostics, *problem)
		return
	}
	_, diagnostics := ParseFor(c.platform, file, content)
	report.Diagnostics = append(report.Diagnostics, diagnostics...)
}

// folders looks at the packs of one install together, because their environments must not share a name.
func (c *collector) folders(folders []string) {
	var packs, others []string
	for _, folder := range folders {
		if holdsPacks(folder) {
			packs = append(packs, folder)
		} else {
			others = append(others, folder)
		}
	}
	var problems []Diagnostic
	for _, group := range byInstall(packs) {
		found, odd := DiscoverAll(group)
		for _, one := range found {
			c.file(one.File)
		}
		problems = append(problems, odd...)
	}
	for _, pack := range packs {
		for _, root := range rootFiles(pack) {
			c.file(root)
		}
	}
	for _, folder := range others {
		problems = append(problems, c.tree(folder)...)
	}
	for _, problem := range problems {
		report := c.report(problem.File)
		if !slices.ContainsFunc(report.Diagnostics, func(d Diagnostic) bool { return d.Code == problem.Code && d.Code == CodeUnreadable }) {
			report.Diagnostics = append(report.Diagnostics, problem)
			sortDiagnostics(report.Diagnostics)
		}
	}
	slices.SortStableFunc(c.reports, func(a, b Report) int { return strings.Compare(a.File, b.File) })
}

// byInstall groups folders by the custom_nodes folder they are, hold or lie in: two installs may well have the
// same packs.
func byInstall(folders []string) [][]string {
	var groups [][]string
	index := map[string]int{}
	for _, folder := range folders {
		install := absolute(folder)
		if nodes := filepath.Join(install, "custom_nodes"); isDirectory(nodes) {
			install = nodes
		} else if filepath.Base(install) != "custom_nodes" {
			install = filepath.Dir(install)
		}
		at, known := index[install]
		if !known {
			at = len(groups)
			index[install] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], folder)
	}
	return groups
}

// holdsPacks tells a pack, a custom_nodes folder or a ComfyUI from any other folder.
func holdsPacks(folder string) bool {
	if filepath.Base(absolute(folder)) == "custom_nodes" {
		return true
	}
	for _, sign := range []string{"custom_nodes", "nodes", "__init__.py", EnvironmentFile, RootFile} {
		if _, err := os.Lstat(filepath.Join(folder, sign)); err == nil {
			return true
		}
	}
	return false
}

// rootFiles are the root manifests of a pack, or of all packs of a folder.
func rootFiles(folder string) []string {
	if nodes := filepath.Join(folder, "custom_nodes"); isDirectory(nodes) {
		folder = nodes
	} else if filepath.Base(absolute(folder)) != "custom_nodes" {
		if _, err := os.Lstat(filepath.Join(folder, RootFile)); err != nil {
			return nil
		}
		return []string{filepath.Join(folder, RootFile)}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // Discover has reported it
	}
	var files []string
	for _, entry := range entries {
		file := filepath.Join(folder, entry.Name(), RootFile)
		if skippedFolder(entry.Name()) {
			continue
		}
		if _, err := os.Lstat(file); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// tree looks at every manifest below a folder. Links are not followed, so it ends.
func (c *collector) tree(folder string) []Diagnostic {
	var problems []Diagnostic
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			problems = append(problems, Diagnostic{File: path, Position: Position{Line: 1, Column: 1}, Length: 1, Severity: Error, Code: CodeUnreadable,
				Message: readProblem("the folder", err), Why: "the manifests in it are unknown", Fix: "make it readable for this user"})
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
		case name == EnvironmentFile || name == RootFile:
			c.file(path)
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir() && path != folder && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "__pycache__" || name == "site-packages"):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		problems = append(problems, Diagnostic{File: folder, Position: Position{Line: 1, Column: 1}, Length: 1, Severity: Error, Code: CodeUnreadable,
			Message: readProblem("the folder", err), Why: "the manifests in it are unknown", Fix: "make it readable for this user"})
	}
	return problems
}
