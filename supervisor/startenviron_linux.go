package supervisor

import (
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/spawn"
)

// startEnviron returns the environment that a process was started with, as far as the system still has it: what its
// own environment has beyond that, the process set itself. Nil where it is not known.
func startEnviron(process spawn.Process) []string {
	if process.IsZero() {
		return nil
	}
	content, err := spawn.ReadProcessFile(process.PID, "environ")
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00")
}
