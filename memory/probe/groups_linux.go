package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// groupLimit is the tightest memory limit above us.
type groupLimit struct {
	limit    memory.Bytes // 0: none
	left     memory.Bytes // of the group that has the least left
	path     string       // of the group with the lowest limit
	pressure string       // file with the pressure of our own group; empty: none
}

// unlimited is from where on a figure of cgroups v1 means "no limit": it writes the largest page-aligned number.
const unlimited = math.MaxInt64 / 2

// readGroups goes from our own cgroup to the root and takes the lowest limit on the way: a parent's limit holds for its
// children whatever theirs says. A machine without cgroups, or one that does not show them, has no limit.
func readGroups(root string) (groupLimit, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return groupLimit{}, nil
	}
	if err != nil {
		return groupLimit{}, err
	}
	var found groupLimit
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		own := path.Clean("/" + parts[2])
		switch {
		case parts[0] == "0" && parts[1] == "":
			base := filepath.Join(root, "sys/fs/cgroup")
			if _, err := os.Stat(filepath.Join(base, "unified")); err == nil {
				base = filepath.Join(base, "unified") // v1 and v2 side by side
			}
			if pressure := filepath.Join(base, own, "memory.pressure"); exists(pressure) {
				found.pressure = pressure
			}
			if err := found.walk(base, own, "memory.max", "memory.current", "inactive_file"); err != nil {
				return groupLimit{}, err
			}
		case hasController(parts[1], "memory"):
			base := filepath.Join(root, "sys/fs/cgroup/memory")
			if err := found.walk(base, own, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"); err != nil {
				return groupLimit{}, err
			}
		}
	}
	return found, nil
}

func hasController(list, name string) bool {
	for _, controller := range strings.Split(list, ",") {
		if controller == name {
			return true
		}
	}
	return false
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// walk looks at a group and its parents. In a container the path may name groups that are not mounted: those are passed
// over, and the root of what is mounted is the container's own group.
func (g *groupLimit) walk(base, own, limitFile, usageFile, reclaimable string) error {
	for group := own; ; group = path.Dir(group) {
		folder := filepath.Join(base, group)
		limit, limited, err := readFigure(filepath.Join(folder, limitFile))
		if err != nil {
			return err
		}
		if limited {
			usage, known, err := readFigure(filepath.Join(folder, usageFile))
			if err != nil {
				return err
			}
			left := limit
			if known {
				// page cache that was not used lately goes before anybody is killed
				left = limit - max(0, usage-readStatistic(filepath.Join(folder, "memory.stat"), reclaimable))
			}
			if g.limit == 0 || limit < g.limit {
				g.limit, g.path = limit, group
			}
			if g.left == 0 || left < g.left {
				g.left = max(1, left)
			}
		}
		if group == "/" {
			return nil
		}
	}
}

// readFigure reads one number; false: there is no file, or it says that there is no limit.
func readFigure(name string) (memory.Bytes, bool, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return 0, false, nil
	}
	figure, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%s holds %q, not a number of bytes: %w", name, word, err)
	}
	if figure >= unlimited {
		return 0, false, nil
	}
	return memory.Bytes(figure), true, nil
}

// readStatistic reads one line of memory.stat; 0 where it is missing.
func readStatistic(name, key string) memory.Bytes {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			figure, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err == nil {
				return memory.Bytes(figure)
			}
		}
	}
	return 0
}

// readPressure reads how much of the last ten seconds tasks stalled for memory, in percent: in our own cgroup where that
// is known, else on the whole machine.
func readPressure(root, group string) (known bool, some, full float64) {
	for _, name := range []string{group, filepath.Join(root, "proc/pressure/memory")} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // kernels without CONFIG_PSI, or with it switched off
		}
		for _, line := range strings.Split(string(text), "\n") {
			var kind string
			var tenSeconds float64
			if n, _ := fmt.Sscanf(line, "%s avg10=%f", &kind, &tenSeconds); n != 2 {
				continue
			}
			switch kind {
			case "some":
				known, some = true, tenSeconds
			case "full":
				full = tenSeconds
			}
		}
		if known {
			return true, some, full
		}
	}
	return false, 0, 0
}
