package envbuild

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// processesIn finds the processes that run from prefixes: by their command line, or by what they have mapped, which
// no process can hide. Other users' processes show only the former.
func processesIn(ctx context.Context, prefixes []string) map[string][]int {
	found := map[string][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil || len(prefixes) == 0 {
		return found
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || ctx.Err() != nil {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		program, _, _ := bytes.Cut(command, []byte{0})
		maps, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "maps"))
		for _, prefix := range prefixes {
			inside := []byte(prefix + "/")
			if bytes.HasPrefix(program, inside) || bytes.Contains(maps, inside) {
				found[prefix] = append(found[prefix], pid)
			}
		}
	}
	return found
}
