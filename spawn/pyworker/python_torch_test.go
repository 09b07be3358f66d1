//go:build torch

package pyworker_test

import (
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/upstream"
)

func TestThePythonUnittestsThatNeedTorchPass(t *testing.T) {
	python := pythontest.Torch(t, upstream.Host) // which has both
	pythontest.Run(t, python, suite(t, "tests/with_torch"))
	pythontest.Run(t, python, suite(t, "tests/with_numpy"))
}

func TestAWorkerSharesMemoryInARealComfyUI(t *testing.T) {
	python := pythontest.Torch(t, upstream.Host)
	made := suite(t, "tests/with_comfyui")
	made.Environ = append(made.Environ, "TEST_COMFYUI="+upstream.ComfyUI(t))
	pythontest.Run(t, python, made)
}
