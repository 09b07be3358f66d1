package pyworker_test

import (
	"fmt"
	"runtime"
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

func TestTheRealPagerStartsAsFarAsItGoesWithoutAGPU(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("comfy-aimdo has wheels for few platforms")
	}
	interpreters := pythontest.Interpreters(t)
	for _, version := range []string{"0.4.11", "0.6.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := pythontest.Environment(t, interpreters[len(interpreters)-1], "comfy-aimdo=="+version)
			pythontest.Run(t, python, suite(t, "tests/with_aimdo"))
		})
	}
}
