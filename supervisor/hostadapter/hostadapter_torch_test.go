//go:build torch

package hostadapter_test

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

func TestWorkersModelsAreInTheListOfARealComfyUI(t *testing.T) {
	suite := adapterSuite(t, "tests/with_comfyui")
	suite.Environ = append(suite.Environ, "TEST_COMFYUI="+upstream.ComfyUI(t))
	pythontest.Run(t, pythontest.Torch(t, upstream.Host), suite)
}
