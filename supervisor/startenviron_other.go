//go:build !linux

package supervisor

import "github.com/comfy-supervisor/comfy-supervisor/spawn"

// startEnviron returns nil: the system does not show what environment a process was started with.
func startEnviron(spawn.Process) []string { return nil }
