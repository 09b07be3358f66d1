//go:build torch

package hostadapter_test

import (
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

func TestThePythonUnittestsThatNeedTorchPass(t *testing.T) {
	python := pythontest.Torch(t)
	pythontest.Run(t, python, suite(t, "tests/with_torch"))
	pythontest.Run(t, python, suite(t, "tests/with_numpy"))
}
