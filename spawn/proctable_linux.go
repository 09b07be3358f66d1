package spawn

import (
	"bytes"
	"os"
	"strconv"
)

// processTable is all processes as /proc showed them at one time.
type processTable map[int]procStat

func readProcessTable() (processTable, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	table := make(processTable, len(pids))
	for _, pid := range pids {
		stat, err := readStat(pid)
		if err != nil {
			continue // it ended meanwhile, or hidepid hides it: then it is not ours
		}
		table[pid] = stat
	}
	return table, nil
}

func listPIDs() ([]int, error) {
	var names []string
	var err error
	processTurns.Do(func() {
		var folder *os.File
		if folder, err = os.Open("/proc"); err == nil {
			defer folder.Close()
			names, err = folder.Readdirnames(-1)
		}
	})
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// below reports whether a process descends from another one.
func (t processTable) below(pid, ancestor int) bool {
	for range len(t) + 1 { // a torn view could hold a cycle
		stat, there := t[pid]
		if !there || stat.parent <= 0 {
			return false
		}
		if stat.parent == ancestor {
			return true
		}
		pid = stat.parent
	}
	return false
}

// environmentValue finds a variable in a process's environment as it was when the program started. It is empty for
// processes of other users, zombies and kernel threads.
func environmentValue(pid int, name string) string {
	content, err := ReadProcessFile(pid, "environ")
	if err != nil {
		return ""
	}
	return valueIn(content, name)
}

func valueIn(environ []byte, name string) string {
	prefix := []byte(name + "=")
	for len(environ) > 0 {
		var variable []byte
		variable, environ, _ = bytes.Cut(environ, []byte{0})
		if value, found := bytes.CutPrefix(variable, prefix); found {
			return string(value)
		}
	}
	return ""
}
