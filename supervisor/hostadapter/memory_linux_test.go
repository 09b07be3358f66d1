package hostadapter_test

import (
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
)

func TestAHostSharesACard(t *testing.T) {
	newest := pythontest.Newest(t)
	for _, manager := range []string{"ledger", "pager"} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			tree, environ, err := fakecard.Lay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			pack, err := filepath.Abs("../../testdata/packs/memory")
			if err != nil {
				t.Fatal(err)
			}
			suite := adapterSuite(t, "tests/memory")
			suite.Environ = append(suite.Environ, environ...)
			suite.Environ = append(suite.Environ, "TEST_COMFYUI="+tree, "TEST_PACK="+pack, "TEST_MANAGER="+manager)
			pythontest.Run(t, newest.Path, suite)
		})
	}
}
