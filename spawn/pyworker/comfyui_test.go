package pyworker_test

import (
	"fmt"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

func TestTheUnittestsOfComfyUIsSidePass(t *testing.T) {
	for _, python := range pythontest.Interpreters(t) {
		t.Run(fmt.Sprintf("python3.%d", python.Minor), func(t *testing.T) {
			t.Parallel()
			pythontest.Run(t, python.Path, suite(t, "tests/comfyui"))
		})
	}
}
