//go:build !windows && !(linux && cgo)

package probe

import (
	"errors"
	"fmt"
	"runtime"
)

// CardSupport says how this build reads cards.
const CardSupport = "no card readings: NVML needs Linux with cgo, or Windows"

// errNoNVML is why this build reads no cards.
var errNoNVML = errors.New("this build cannot load NVML; workers' own readings or our own books are used instead")

func openSource(Options) (source, error) {
	if runtime.GOOS == "linux" {
		return nil, fmt.Errorf("%w (it was built with CGO_ENABLED=0)", errNoNVML)
	}
	return nil, fmt.Errorf("%w (NVIDIA has no driver for %s)", errNoNVML, runtime.GOOS)
}
