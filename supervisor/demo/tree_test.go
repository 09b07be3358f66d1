package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

const (
	treeFolder   = "../../testdata/comfyui"
	shapeScript  = "../../testdata/comfyui_shape.py"
	subsetFile   = treeFolder + "/SUBSET.txt"
	answerScript = "../../testdata/comfyui_behaviour.py"
	memoryScript = "../../testdata/comfyui_memory.py"
)

// python runs a script and returns what it printed. Nothing is written beside the sources.
func python(t *testing.T, interpreter string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), interpreter, append([]string{"-B"}, arguments...)...)
	var said strings.Builder
	command.Stderr = &said
	answer, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", interpreter, strings.Join(arguments, " "), err, said.String())
	}
	return string(answer)
}

// anyPython is an interpreter that ComfyUI could run on.
func anyPython(t *testing.T) string {
	t.Helper()
	return pythontest.Interpreters(t)[0].Path
}

// treeFiles are the Python files of the miniature tree, relative to it.
func treeFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(treeFolder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".py" {
			var relative string
			relative, err = filepath.Rel(treeFolder, path)
			files = append(files, relative)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s: %v", len(files), treeFolder, err)
	}
	return files
}

func TestTheMiniatureTreeIsWhatItsListSays(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile(subsetFile)
	if err != nil {
		t.Fatal(err)
	}
	defined := python(t, anyPython(t), shapeScript, treeFolder)
	if difference := cmp.Diff(strings.Split(string(listed), "\n"), strings.Split(defined, "\n")); difference != "" {
		t.Errorf("%s and the tree differ (-list +tree); write the list with comfyui_shape.py:\n%s", subsetFile, difference)
	}
}
