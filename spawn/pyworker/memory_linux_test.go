package pyworker_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
)

// onFakeCard is a suite whose processes find a miniature ComfyUI and a fake card.
func onFakeCard(t *testing.T, directory, manager string) pythontest.Suite {
	t.Helper()
	tree, environ, err := fakecard.Lay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pack, err := filepath.Abs("../../testdata/packs/memory")
	if err != nil {
		t.Fatal(err)
	}
	made := suite(t, directory)
	made.Environ = append(made.Environ, environ...)
	made.Environ = append(made.Environ, "TEST_COMFYUI="+tree, "TEST_PACK="+pack, "TEST_MANAGER="+manager)
	return made
}

func TestModelsOfTheMiniatureTreeMoveOnAFakeCard(t *testing.T) {
	for _, python := range pythontest.Interpreters(t) {
		for _, manager := range []string{"ledger", "pager"} {
			t.Run(fmt.Sprintf("python3.%d/%s", python.Minor, manager), func(t *testing.T) {
				t.Parallel()
				pythontest.Run(t, python.Path, onFakeCard(t, "tests/miniature", manager))
			})
		}
	}
}

func TestAWorkerSharesACard(t *testing.T) {
	newest := pythontest.Newest(t)
	for _, manager := range []string{"ledger", "pager"} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			pythontest.Run(t, newest.Path, onFakeCard(t, "tests/memory", manager))
		})
	}
}
