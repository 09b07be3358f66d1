package pyworker_test

import (
	"runtime"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

func TestTheUnittestsOfComfyUIsSidePass(t *testing.T) {
	pythontest.Each(t, func(t *testing.T, python pythontest.Interpreter) {
		pythontest.Run(t, python.Path, suite(t, "tests/comfyui"))
	})
}

func TestTheRealPagerStartsAsFarAsItGoesWithoutAGPU(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("comfy-aimdo has wheels for few platforms")
	}
	newest := pythontest.Newest(t)
	for _, version := range []string{"0.4.11", "0.6.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := pythontest.Environment(t, newest, "comfy-aimdo=="+version)
			made := suite(t, "tests/with_aimdo")
			made.Environ = append(made.Environ, "TEST_AIMDO="+version)
			pythontest.Run(t, python, made)
		})
	}
}
