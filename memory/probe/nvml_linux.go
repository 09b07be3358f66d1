//go:build linux && cgo

package probe

import (
	"bytes"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// CardSupport says how this build reads cards.
const CardSupport = "NVML through go-nvml"

// initialPIDNamespace is how the kernel names the namespace that NVML's PIDs belong to (PROC_PID_INIT_INO).
const initialPIDNamespace = "pid:[4026531836]"

// goNVML is NVML through go-nvml, which binds lazily: a function that the library lacks ends the process when it is
// called, and stays bound to the first library that had it. So a process opens one library, and looks first.
type goNVML struct {
	library nvml.Interface
	has     func(string) bool
}

func openSource(options Options) (source, error) {
	path := options.Library
	if path == "" {
		path = "libnvidia-ml.so.1"
	}
	probe := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := probe.Open(); err != nil {
		return nil, fmt.Errorf("loading %s: %w", path, err)
	}
	// It stays open: its functions are bound into this process from the first call on.
	has := func(name string) bool { return probe.Lookup(name) == nil }
	if err := missingFunctions(has); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	library := nvml.New(nvml.WithLibraryPath(path))
	if code := library.Init(); code != nvml.SUCCESS {
		return nil, fmt.Errorf("starting %s: %w", path, code)
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	ownPIDs := options.OwnPIDs || err == nil && namespace == initialPIDNamespace
	return &nvmlSource[nvml.Device]{calls: &goNVML{library, has}, ownPIDs: ownPIDs}, nil
}

func (g *goNVML) close() error { return failure(g.library.Shutdown()) }

func (g *goNVML) count() (int, error) {
	count, code := g.library.DeviceGetCount()
	return count, failure(code)
}

func (g *goNVML) card(index int) (nvml.Device, error) {
	device, code := g.library.DeviceGetHandleByIndex(index)
	return device, failure(code)
}

func (g *goNVML) identity(device nvml.Device) (uuid, pci, name string, err error) {
	uuid, code := device.GetUUID()
	if code != nvml.SUCCESS {
		return "", "", "", code
	}
	place, code := device.GetPciInfo()
	if code != nvml.SUCCESS {
		return "", "", "", code
	}
	if anyOf(g.has, functionName) {
		if name, code = device.GetName(); code != nvml.SUCCESS {
			name = "" // a card without a name is still a card
		}
	}
	return uuid, text(place.BusId[:]), name, nil
}

func (g *goNVML) memory(device nvml.Device) (total, free, reserved uint64, err error) {
	if anyOf(g.has, functionReserved) {
		if all, code := device.GetMemoryInfo_v2(); code == nvml.SUCCESS {
			return all.Total, all.Free, all.Reserved, nil
		} else if code == nvml.ERROR_GPU_IS_LOST {
			return 0, 0, 0, code
		}
	}
	figures, code := device.GetMemoryInfo()
	return figures.Total, figures.Free, 0, failure(code)
}

func (g *goNVML) processes(device nvml.Device) ([]ProcessBytes, error) {
	if !anyOf(g.has, functionProcesses) {
		return nil, errNotThere
	}
	list, code := device.GetComputeRunningProcesses()
	if code != nvml.SUCCESS {
		return nil, code
	}
	processes := make([]ProcessBytes, len(list))
	for i, process := range list {
		processes[i] = processBytes(process.Pid, process.UsedGpuMemory)
	}
	return processes, nil
}

func (g *goNVML) instances(device nvml.Device) ([]nvml.Device, error) {
	if !anyOf(g.has, functionMIG) || !anyOf(g.has, functionMIGCount) || !anyOf(g.has, functionMIGInstance) {
		return nil, errNotThere
	}
	current, _, code := device.GetMigMode()
	if code == nvml.ERROR_NOT_SUPPORTED || code == nvml.SUCCESS && current != nvml.DEVICE_MIG_ENABLE {
		return nil, errNotThere
	}
	if code != nvml.SUCCESS {
		return nil, code
	}
	count, code := device.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		return nil, code
	}
	var instances []nvml.Device
	for index := range count {
		instance, code := device.GetMigDeviceHandleByIndex(index)
		if code == nvml.ERROR_NOT_FOUND || code == nvml.ERROR_INVALID_ARGUMENT {
			continue // not every place is taken
		}
		if code != nvml.SUCCESS {
			return nil, code
		}
		instances = append(instances, instance)
	}
	return instances, nil
}

// failure is a code as an error, nil for success.
func failure(code nvml.Return) error {
	if code == nvml.SUCCESS {
		return nil
	}
	return code
}

// text is a C string in an array.
func text(characters []int8) string {
	raw := make([]byte, len(characters))
	for i, character := range characters {
		raw[i] = byte(character)
	}
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}
