//go:build !linux

package envbuild

import (
	"context"
	"os"
	"strings"

	"github.com/shirou/gopsutil/v3/process"
)

// processesIn finds the processes whose program or command line lies in prefixes.
func processesIn(ctx context.Context, prefixes []string) map[string][]int {
	found := map[string][]int{}
	if len(prefixes) == 0 {
		return found
	}
	processes, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return found
	}
	for _, one := range processes {
		if int(one.Pid) == os.Getpid() {
			continue
		}
		program, _ := one.ExeWithContext(ctx)
		command, _ := one.CmdlineWithContext(ctx)
		for _, prefix := range prefixes {
			inside := prefix + string(os.PathSeparator)
			if strings.HasPrefix(program, inside) || strings.Contains(command, inside) {
				found[prefix] = append(found[prefix], int(one.Pid))
			}
		}
	}
	return found
}
