package probe

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// tree lays out files below a root of its own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	meminfo = "MemTotal:       67108864 kB\nMemFree:        33554432 kB\nMemAvailable:   50331648 kB\nBuffers: 0 kB\nCached: 0 kB\n"
	swaps   = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 8388608 1048576 100\n/dev/nvme0n1p3 partition 4194304 0 -2\n"
)

func TestRAMIsWhatTheTightestCgroupLeaves(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cgroups are Linux's")
	}
	for _, test := range []struct {
		name                    string
		files                   map[string]string
		total, available, limit memory.Bytes
		by                      string
	}{
		{"no cgroups at all", nil, 64 * memory.GiB, 48 * memory.GiB, 0, ""},
		{"v2 without a limit", map[string]string{"proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n"},
			64 * memory.GiB, 48 * memory.GiB, 0, ""},
		{"v2, a parent's limit holds", map[string]string{
			"proc/self/cgroup":                             "0::/pod/box\n",
			"sys/fs/cgroup/pod/box/memory.max":             "34359738368\n",
			"sys/fs/cgroup/pod/box/memory.current":         "1073741824\n",
			"sys/fs/cgroup/pod/memory.max":                 "17179869184\n",
			"sys/fs/cgroup/pod/memory.current":             "12884901888\n",
			"sys/fs/cgroup/pod/memory.stat":                "anon 5\ninactive_file 2147483648\n",
			"sys/fs/cgroup/pod/box/memory.stat":            "inactive_file 0\n",
			"sys/fs/cgroup/pod/box/unrelated/memory.max":   "1\n",
			"sys/fs/cgroup/other/memory.max":               "1\n",
			"sys/fs/cgroup/cgroup.controllers":             "memory\n",
			"sys/fs/cgroup/pod/box/memory.swap.max":        "0\n",
			"sys/fs/cgroup/pod/box/memory.swap.current":    "0\n",
			"sys/fs/cgroup/pod/box/memory.events":          "oom 0\n",
			"sys/fs/cgroup/pod/box/memory.pressure":        "some avg10=12.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=3.25 avg60=0.00 avg300=0.00 total=1\n",
			"proc/pressure/memory":                         "some avg10=99.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=1\n",
			"sys/fs/cgroup/pod/box/memory.unrelated.limit": "1\n",
		}, 16 * memory.GiB, 6 * memory.GiB, 16 * memory.GiB, "/pod"},
		{"v1, in a container whose path is not mounted", map[string]string{
			"proc/self/cgroup":                            "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "8589934592\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":  "4294967296\n",
			"sys/fs/cgroup/memory/memory.stat":            "total_inactive_file 1073741824\n",
			"sys/fs/cgroup/unified/cgroup.controllers":    "\n",
			"sys/fs/cgroup/cpu/docker/abc/cpu.shares":     "1024\n",
			"sys/fs/cgroup/memory/memory.soft_limit_junk": "x\n",
		}, 8 * memory.GiB, 5 * memory.GiB, 8 * memory.GiB, "/"},
		{"v1 without a limit", map[string]string{"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
			64 * memory.GiB, 48 * memory.GiB, 0, ""},
		{"a limit above the machine is none", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1099511627776\n"},
			64 * memory.GiB, 48 * memory.GiB, 0, ""},
		{"more in use than the limit leaves nothing", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
			"sys/fs/cgroup/memory.current": "2147483648\n"}, memory.GiB, 1, memory.GiB, "/"},
	} {
		files := map[string]string{"proc/meminfo": meminfo, "proc/swaps": swaps}
		for name, text := range test.files {
			files[name] = text
		}
		machine, err := ReadRAM(context.Background(), tree(t, files))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if machine.Total != test.total || machine.Available != test.available || machine.Limit != test.limit || machine.LimitedBy != test.by {
			t.Errorf("%s: total %s, available %s, limit %s by %q", test.name, machine.Total, machine.Available, machine.Limit, machine.LimitedBy)
		}
		if machine.DiskSwap != 4*memory.GiB || machine.Compressed != 8*memory.GiB {
			t.Errorf("%s: %s of swap on disks, %s of zram", test.name, machine.DiskSwap, machine.Compressed)
		}
		if _, own := test.files["proc/pressure/memory"]; own && (machine.SomeStalled != 12.5 || machine.FullyStalled != 3.25 || !machine.PressureKnown) {
			t.Errorf("%s: our own group's pressure is %v, %v", test.name, machine.SomeStalled, machine.FullyStalled)
		}
		if system := machine.PinSystem(false, true); system.Limited != (test.limit > 0) || system.RAM != 64*memory.GiB || system.DiskSwap != 4*memory.GiB {
			t.Errorf("%s: %+v", test.name, system)
		}
	}
}

func TestALimitThatIsNoNumberIsAnErrorThatNamesItsFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cgroups are Linux's")
	}
	root := tree(t, map[string]string{"proc/meminfo": meminfo, "proc/swaps": swaps, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "lots\n"})
	if _, err := ReadRAM(context.Background(), root); err == nil {
		t.Error("it was read")
	} else {
		t.Log(err)
	}
}

func TestThisMachinesRAMIsRead(t *testing.T) {
	machine, err := ReadRAM(context.Background(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if machine.Total <= 0 || machine.Available <= 0 || machine.Available > machine.Total || machine.Total > machine.Physical {
		t.Errorf("%+v", machine)
	}
}
