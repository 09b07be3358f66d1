package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Sweep ends the processes of this user that carry the ID of a worker without a live launcher, whoever's worker it was,
// and looks again until it finds none. Workers in live are spared without a further look. It returns what it killed;
// an error names what did not end.
func Sweep(ctx context.Context, live map[string]bool) (killed []Process, err error) {
	return sweep(ctx, WorkerVariable, launcherVariable, live)
}

// sweep takes the names of the variables, so that tests can have marks of their own on a machine where others sweep.
func sweep(ctx context.Context, workerMark, launcherMark string, live map[string]bool) (killed []Process, err error) {
	for {
		strays, err := findStrays(workerMark, launcherMark, live)
		if err != nil {
			return killed, fmt.Errorf("looking for processes of dead launchers: %w", err)
		}
		if len(strays) == 0 {
			return killed, nil
		}
		err = killMembers(strays)
		for _, stray := range strays {
			if process := stray.identity(); !process.Alive() {
				killed = append(killed, process)
			}
		}
		if err != nil {
			return killed, fmt.Errorf("killing processes of dead launchers: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return killed, fmt.Errorf("%d processes of dead launchers do not end, such as %v: %w", len(strays), strays[0].identity(), err)
		}
	}
}

func findStrays(workerMark, launcherMark string, live map[string]bool) ([]procStat, error) {
	suspects, err := markedProcesses(workerMark, live)
	if err != nil || len(suspects) == 0 {
		return nil, err
	}
	// A launcher starts before its worker. Looked for second, the launcher of every worker seen above is found if it
	// lives, however new it is.
	launchers, err := markedProcesses(launcherMark, nil)
	if err != nil {
		return nil, err
	}
	var strays []procStat
	for id, members := range suspects {
		if len(launchers[id]) == 0 {
			strays = append(strays, members...)
		}
	}
	return strays, nil
}

// findLaunchers finds the live launchers of a tree's worker.
func findLaunchers(tree *Tree) ([]Process, error) {
	marked, err := markedProcesses(launcherVariable, nil)
	if err != nil {
		return nil, fmt.Errorf("looking for the launcher of worker %s: %w", tree.Worker, err)
	}
	var launchers []Process
	for _, stat := range marked[tree.Worker] {
		launchers = append(launchers, stat.identity())
	}
	return launchers, nil
}

// markedProcesses finds this user's processes that carry a worker's ID in a variable, by ID.
func markedProcesses(variable string, except map[string]bool) (map[string][]procStat, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	found := make(map[string][]procStat)
	for _, pid := range pids {
		if pid == self {
			continue
		}
		id := environmentValue(pid, variable)
		if !validWorkerID(id) || except[id] || !ownedByUser(pid) {
			continue
		}
		stat, err := readStat(pid)
		switch {
		case errors.Is(err, ErrProcessGone), err == nil && stat.ended():
		case err != nil:
			return nil, err
		default:
			found[id] = append(found[id], stat)
		}
	}
	return found, nil
}

// ownedByUser reports whether a process is this user's; root can read everybody's environment.
func ownedByUser(pid int) bool {
	var stat unix.Stat_t
	return unix.Stat("/proc/"+strconv.Itoa(pid), &stat) == nil && int(stat.Uid) == os.Geteuid()
}
