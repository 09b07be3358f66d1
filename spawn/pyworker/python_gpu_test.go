//go:build gpu

package pyworker_test

import (
	"path/filepath"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/upstream"
)

// On a machine with an NVIDIA card: go test -tags gpu ./spawn/pyworker -run RealCard -v
func TestAWorkerSharesARealCard(t *testing.T) {
	pack, err := filepath.Abs("tests/with_comfyui/pack")
	if err != nil {
		t.Fatal(err)
	}
	for _, manager := range []string{"ledger", "pager"} { // one after the other: they measure the card
		t.Run(manager, func(t *testing.T) {
			made := suite(t, "tests/with_gpu")
			made.Environ = append(made.Environ, "TEST_COMFYUI="+upstream.ComfyUI(t), "TEST_PACK="+pack, "TEST_MANAGER="+manager)
			pythontest.Run(t, pythontest.Torch(t, upstream.Host), made)
		})
	}
}
