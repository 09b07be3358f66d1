package spawn

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep ends the processes of this user that carry the ID of a worker without a live launcher, whoever's worker it was,
// and looks again until it finds none. Workers in live are spared without a further look. It returns what it killed;
// an error names what did not end.
func Sweep(ctx context.Context, live map[string]bool) (killed []Process, err error) {
	ticker := time.NewTicker(killRound)
	defer ticker.Stop()
	seen := make(map[Process]bool)
	for {
		suspects, err := markedProcesses(WorkerVariable)
		if err != nil {
			return killed, fmt.Errorf("looking for processes of dead launchers: %w", err)
		}
		launchers, err := markedProcesses(launcherVariable) // second: a launcher starts before its worker
		if err != nil {
			return killed, fmt.Errorf("looking for processes of dead launchers: %w", err)
		}
		var strays []treeMember
		for id, members := range suspects {
			if !live[id] && len(launchers[id]) == 0 {
				strays = append(strays, members...)
			}
		}
		if len(strays) == 0 {
			return killed, nil
		}
		if err := signalMembers(strays, unix.SIGKILL); err != nil {
			return killed, fmt.Errorf("killing processes of dead launchers: %w", err)
		}
		for _, stray := range strays {
			if process := stray.identity(); !seen[process] {
				seen[process] = true
				killed = append(killed, process)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return killed, fmt.Errorf("%d processes of dead launchers do not end, such as %v: %w", len(strays), strays[0].identity(), ctx.Err())
		}
	}
}

// markedProcesses finds this user's processes that carry a worker's ID in a variable, by ID.
func markedProcesses(variable string) (map[string][]treeMember, error) {
	table, err := readProcessTable()
	if err != nil {
		return nil, err
	}
	found := make(map[string][]treeMember)
	for pid, member := range table {
		if pid == os.Getpid() || member.uid != uint32(os.Geteuid()) {
			continue
		}
		if id := environmentValue(pid, variable); validWorkerID(id) {
			found[id] = append(found[id], member)
		}
	}
	return found, nil
}

// findLaunchers finds the live launchers of a tree's worker.
func findLaunchers(tree *Tree) ([]Process, error) {
	marked, err := markedProcesses(launcherVariable)
	if err != nil {
		return nil, fmt.Errorf("looking for the launcher of worker %s: %w", tree.Worker, err)
	}
	var launchers []Process
	for _, member := range marked[tree.Worker] {
		launchers = append(launchers, member.identity())
	}
	return launchers, nil
}
