package pyworker_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
)

// onFakeCard is a suite whose processes find a miniature ComfyUI and a fake card of 24 GiB, of which the driver keeps 454 MiB.
func onFakeCard(t *testing.T, directory string, environ ...string) pythontest.Suite {
	t.Helper()
	folder := t.TempDir()
	library, err := fakecard.Build(filepath.Join(folder, "library"))
	if err != nil {
		t.Fatal(err)
	}
	card, err := library.Create(filepath.Join(folder, "cards"), fakecard.Spec{Name: "Fake", Total: 24 << 30, Driver: 454 << 20})
	if err != nil {
		t.Fatal(err)
	}
	local, err := library.Create(filepath.Join(folder, "local"), fakecard.Spec{Name: "Fake", Total: 24 << 30, ProcessLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(folder, "ComfyUI")
	if err := fakecard.LayTree(tree); err != nil {
		t.Fatal(err)
	}
	pack, err := filepath.Abs("../../testdata/packs/memory")
	if err != nil {
		t.Fatal(err)
	}
	made := suite(t, directory)
	made.Environ = append(made.Environ, card.Variable(), "FAKECARD_LIBRARY="+library.Path, "TEST_COMFYUI="+tree, "TEST_LOCAL_CARD="+local.File, "TEST_PACK="+pack)
	made.Environ = append(made.Environ, environ...)
	return made
}

func TestModelsOfTheMiniatureTreeMoveOnAFakeCard(t *testing.T) {
	for _, python := range pythontest.Interpreters(t) {
		for _, manager := range []string{"ledger", "pager"} {
			t.Run(fmt.Sprintf("python3.%d/%s", python.Minor, manager), func(t *testing.T) {
				t.Parallel()
				pythontest.Run(t, python.Path, onFakeCard(t, "tests/miniature", "TEST_MANAGER="+manager))
			})
		}
	}
}

func TestAWorkerSharesACard(t *testing.T) {
	interpreters := pythontest.Interpreters(t)
	newest := interpreters[len(interpreters)-1]
	for _, manager := range []string{"ledger", "pager"} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			pythontest.Run(t, newest.Path, onFakeCard(t, "tests/memory", "TEST_MANAGER="+manager))
		})
	}
}
