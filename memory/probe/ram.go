package probe

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/shirou/gopsutil/v3/common"
	"github.com/shirou/gopsutil/v3/mem"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Machine is what this machine, or the container that we run in, has of RAM. Sizes are bytes.
type Machine struct {
	memory.RAM
	// Physical is the machine's RAM whatever a container allows.
	Physical memory.Bytes `json:"physical"`
	// Limit is the lowest memory limit of a cgroup that we are in, and LimitedBy its path; 0: none.
	Limit     memory.Bytes `json:"limit"`
	LimitedBy string       `json:"limited_by,omitempty"`
	// DiskSwap is swap on disks, Compressed swap in compressed RAM (zram), which gives no memory.
	DiskSwap   memory.Bytes `json:"disk_swap"`
	Compressed memory.Bytes `json:"compressed"`
}

// PinSystem is what ComfyUI's own formula for pinned memory takes.
func (m *Machine) PinSystem(windows, pinning bool) memory.PinSystem {
	return memory.PinSystem{Windows: windows, Pinning: pinning, RAM: m.Physical, DiskSwap: m.DiskSwap, Limited: m.Limit > 0}
}

// ReadRAM looks at the machine's RAM. root is "/" outside tests.
func ReadRAM(ctx context.Context, root string) (Machine, error) {
	ctx = context.WithValue(ctx, common.EnvKey, common.EnvMap{common.HostProcEnvKey: filepath.Join(root, "proc"), common.HostSysEnvKey: filepath.Join(root, "sys")})
	figures, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Machine{}, fmt.Errorf("reading the machine's RAM: %w", err)
	}
	m := Machine{Physical: toRAM(figures.Total)}
	m.Total, m.Available = m.Physical, toRAM(figures.Available)
	if devices, err := mem.SwapDevicesWithContext(ctx); err == nil { // a machine without swap may have no list of it
		for _, device := range devices {
			size := toRAM(device.UsedBytes) + toRAM(device.FreeBytes)
			if strings.HasPrefix(filepath.Base(device.Name), "zram") {
				m.Compressed += size
			} else {
				m.DiskSwap += size
			}
		}
	}
	group, err := readGroups(root)
	if err != nil {
		return Machine{}, fmt.Errorf("reading the memory limits of our cgroups: %w", err)
	}
	if group.limit > 0 && group.limit < m.Physical {
		m.Limit, m.LimitedBy = group.limit, group.path
		m.Total = group.limit
		m.Available = max(0, min(m.Available, group.left))
	}
	m.PressureKnown, m.SomeStalled, m.FullyStalled = readPressure(root, group.pressure)
	return m, nil
}

// toRAM keeps absurd figures in range.
func toRAM(value uint64) memory.Bytes { return memory.Bytes(min(value, math.MaxInt64)) }
