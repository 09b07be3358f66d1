package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/atomicwriter"
)

// maxFixPasses bounds how often a file is looked at anew after changes: one change can uncover the next.
const maxFixPasses = 20

// Fix changes everything in a manifest that is wrong and has exactly one right answer, and nothing else:
// comments and layout stay. It returns the new content and what was put right. Notes are no mistakes, and what
// works is never made to be refused: a misspelt key whose value is wrong as well stays without effect.
func Fix(platform, file string, content []byte) ([]byte, []Diagnostic) {
	var done []Diagnostic
	left := map[string]bool{}
	_, diagnostics := ParseFor(platform, file, content)
	for range maxFixPasses {
		mistakes := slices.DeleteFunc(slices.Clone(diagnostics), func(d Diagnostic) bool { return left[mistake(d)] })
		next, applied := applyEdits(content, mistakes)
		if len(applied) == 0 {
			break
		}
		_, after := ParseFor(platform, file, next)
		if !HasErrors(diagnostics) && HasErrors(after) {
			for _, d := range culprits(platform, file, content, applied) {
				left[mistake(d)] = true
			}
			continue
		}
		content, diagnostics = next, after
		done = append(done, applied...)
	}
	return content, done
}

// mistake tells diagnostics of a file apart while their places move.
func mistake(d Diagnostic) string { return string(d.Code) + "\x00" + d.Message + "\x00" + d.Text }

// maxCulprits bounds how many changes are tried one by one.
const maxCulprits = 50

// culprits finds the changes that make a file that works one that is refused. All of them, when no single one does.
func culprits(platform, file string, content []byte, applied []Diagnostic) []Diagnostic {
	var found []Diagnostic
	for _, d := range applied[:min(len(applied), maxCulprits)] {
		one, _ := applyEdits(content, []Diagnostic{d})
		if _, after := ParseFor(platform, file, one); HasErrors(after) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return applied
	}
	return found
}

// applyEdits makes the changes of all diagnostics that do not get in each other's way; of two that do, the
// first in the file wins and the other's turn comes when the file is looked at again.
func applyEdits(content []byte, diagnostics []Diagnostic) ([]byte, []Diagnostic) {
	var taken []Edit
	var applied []Diagnostic
	for _, d := range diagnostics {
		if len(d.Edits) == 0 || d.Severity == Note {
			continue
		}
		if merged, ok := mergeEdits(taken, d.Edits, len(content)); ok {
			taken = merged
			applied = append(applied, d)
		}
	}
	var out []byte
	last := 0
	for _, edit := range taken {
		out = append(out, content[last:edit.Start]...)
		out = append(out, edit.Text...)
		last = edit.End
	}
	return append(out, content[last:]...), applied
}

// mergeEdits adds the edits of one diagnostic to those taken, which are sorted. It refuses edits that touch one of
// those taken or overlap each other.
func mergeEdits(taken, edits []Edit, size int) ([]Edit, bool) {
	order := func(a, b Edit) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) }
	edits = slices.SortedFunc(slices.Values(edits), order)
	last := 0
	for _, edit := range edits {
		at, _ := slices.BinarySearchFunc(taken, edit, order)
		if edit.Start < last || edit.End < edit.Start || edit.End > size ||
			at < len(taken) && taken[at].Start <= edit.End || at > 0 && taken[at-1].End >= edit.Start {
			return nil, false
		}
		last = edit.End
	}
	for _, edit := range edits {
		at, _ := slices.BinarySearchFunc(taken, edit, order)
		taken = slices.Insert(taken, at, edit)
	}
	return taken, true
}

// Rewrite replaces a file's content so that a reader sees the old or the new one, whatever happens. Permissions
// stay, and a symbolic link stays one: what it leads to is rewritten.
func Rewrite(file string, content []byte) error {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return fmt.Errorf("rewriting %s: %w", file, err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("rewriting %s: %w", file, err)
	}
	err = atomicwriter.WriteFile(target, content, info.Mode().Perm())
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("rewriting %s: %w; the folder must be writable", file, err)
	case err != nil:
		return fmt.Errorf("rewriting %s: %w", file, err)
	}
	return nil
}

// Change is what Fix would make of one file.
type Change struct {
	File     string
	Old, New []byte
	Fixed    []Diagnostic
}

// Changes works out what Fix makes of the files of reports; files that stay as they are have none.
func Changes(platform string, reports []Report) []Change {
	var changes []Change
	for _, report := range reports {
		if !slices.ContainsFunc(report.Diagnostics, func(d Diagnostic) bool { return len(d.Edits) > 0 }) {
			continue
		}
		content, problem := ReadFile(report.File)
		if problem != nil { // it is in the report
			continue
		}
		if fixed, done := Fix(platform, report.File, content); len(done) > 0 {
			changes = append(changes, Change{File: report.File, Old: content, New: fixed, Fixed: done})
		}
	}
	return changes
}
