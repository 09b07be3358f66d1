//go:build !linux

package probe

import "github.com/comfy-supervisor/comfy-supervisor/memory"

// groupLimit is Linux's; elsewhere nothing limits a user's processes together.
type groupLimit struct {
	limit, left    memory.Bytes
	path, pressure string
}

func readGroups(string) (groupLimit, error) { return groupLimit{}, nil }

// readPressure has no counterpart outside Linux.
func readPressure(string, string) (known bool, some, full float64) { return false, 0, 0 }
