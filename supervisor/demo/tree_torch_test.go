//go:build torch

package demo

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comfy-supervisor/comfy-supervisor/testdata/upstream"
)

func TestEveryNameOfTheMiniatureTreeIsInTheRealOneWithTheSameSignature(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile(subsetFile)
	if err != nil {
		t.Fatal(err)
	}
	upstreams := strings.Split(python(t, anyPython(t), append([]string{shapeScript, upstream.ComfyUI(t)}, treeFiles(t)...)...), "\n")
	for name := range strings.Lines(string(listed)) {
		if name = strings.TrimSpace(name); !slices.Contains(upstreams, name) {
			t.Errorf("ComfyUI %s has no %s", upstream.ComfyUIVersion, name)
		}
	}
}

func TestTheMiniatureTreeAnswersAsTheRealOneDoes(t *testing.T) {
	t.Parallel()
	interpreter, tree := anyPython(t), upstream.ComfyUI(t)
	for _, flags := range [][]string{
		nil,
		{"--cpu", "--fast", "autotune", "--verbose", "DETAIL", "--verbose", "DEBUG", "log.txt", "--reserve-vram", "1.5"},
		{"--highvram", "--fast", "--high-ram", "--force-fp16", "--preview-method", "taesd", "--async-offload", "--directml"},
	} {
		answers := func(tree string) (answers map[string]any, flagValues map[string]any) {
			printed := python(t, interpreter, append([]string{answerScript, tree, t.TempDir()}, flags...)...)
			if err := json.Unmarshal([]byte(printed), &answers); err != nil {
				t.Fatalf("%s printed %q: %v", answerScript, printed, err)
			}
			flagValues, _ = answers["flags"].(map[string]any)
			delete(answers, "flags")
			return answers, flagValues
		}
		miniature, miniatureFlags := answers(treeFolder)
		real, realFlags := answers(tree)
		for _, question := range slices.Sorted(maps.Keys(real)) {
			if difference := cmp.Diff(real[question], miniature[question]); difference != "" {
				t.Errorf("flags %v, %s (-real +miniature):\n%s", flags, question, difference)
			}
		}
		maps.DeleteFunc(realFlags, func(name string, _ any) bool { _, has := miniatureFlags[name]; return !has })
		if difference := cmp.Diff(realFlags, miniatureFlags); difference != "" {
			t.Errorf("values of the flags %v (-real +miniature):\n%s", flags, difference)
		}
	}
}

func TestTheMiniatureTreeLoadsAndEvictsAsTheRealOneDoes(t *testing.T) {
	t.Parallel()
	var real, miniature map[string]any
	for _, tree := range []struct {
		interpreter, folder string
		answers             *map[string]any
	}{{upstream.Host(t), upstream.ComfyUI(t), &real}, {anyPython(t), treeFolder, &miniature}} {
		printed := python(t, tree.interpreter, memoryScript, tree.folder)
		if err := json.Unmarshal([]byte(printed[strings.LastIndex(strings.TrimSpace(printed), "\n")+1:]), tree.answers); err != nil {
			t.Fatalf("%s printed %q: %v", memoryScript, printed, err)
		}
	}
	if len(real) < 6 {
		t.Fatalf("%d questions were answered", len(real))
	}
	for _, question := range slices.Sorted(maps.Keys(real)) {
		if difference := cmp.Diff(real[question], miniature[question]); difference != "" {
			t.Errorf("%s (-real +miniature):\n%s", question, difference)
		}
	}
}
