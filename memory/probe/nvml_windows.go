package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

// CardSupport says how this build reads cards.
const CardSupport = "NVML through nvml.dll"

// dllNVML is NVML through nvml.dll. Struct layouts are those of nvml.h.
type dllNVML struct {
	dll   *windows.DLL
	found map[string]*windows.Proc
}

// NVML's codes that are told apart.
const (
	nvmlSuccess          = 0
	nvmlInvalidArgument  = 2
	nvmlNotSupported     = 3
	nvmlNotFound         = 6
	nvmlInsufficientSize = 7
	nvmlGPUIsLost        = 15
)

type nvmlPCI struct {
	legacy                                         [16]byte
	domain, bus, device, pciDevice, pciSubSystemID uint32
	busID                                          [32]byte
}

type nvmlMemory struct{ total, free, used uint64 }

type nvmlMemory2 struct {
	version                     uint32
	total, reserved, free, used uint64
}

type nvmlProcess struct {
	pid                          uint32
	used                         uint64
	gpuInstance, computeInstance uint32
}

// nvmlCode is NVML's error code.
type nvmlCode uintptr

func (c nvmlCode) Error() string { return fmt.Sprintf("NVML error %d", uintptr(c)) }

func openSource(options Options) (source, error) {
	dll, err := loadNVML(options.Library)
	if err != nil {
		return nil, err
	}
	d := &dllNVML{dll, map[string]*windows.Proc{}}
	if err := missingFunctions(d.has); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dll.Name, err), dll.Release())
	}
	if err := d.call([]string{"nvmlInit_v2", "nvmlInit"}); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", dll.Name, err), dll.Release())
	}
	return &nvmlSource[uintptr]{calls: d, ownPIDs: true}, nil
}

// loadNVML looks where the driver puts its library: the system folder, or for older drivers their own.
func loadNVML(path string) (*windows.DLL, error) {
	candidates := []string{path}
	if path == "" {
		system, err := windows.GetSystemDirectory()
		if err != nil {
			return nil, fmt.Errorf("finding nvml.dll: %w", err)
		}
		candidates = []string{filepath.Join(system, "nvml.dll")}
		if programs := os.Getenv("ProgramW6432"); programs != "" {
			candidates = append(candidates, filepath.Join(programs, "NVIDIA Corporation", "NVSMI", "nvml.dll"))
		}
	}
	var failures []error
	for _, candidate := range candidates {
		dll, err := windows.LoadDLL(candidate)
		if err == nil {
			return dll, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("loading nvml.dll: %w", errors.Join(failures...))
}

func (d *dllNVML) has(name string) bool {
	if d.found[name] != nil {
		return true
	}
	procedure, err := d.dll.FindProc(name)
	if err == nil {
		d.found[name] = procedure
	}
	return err == nil
}

// call calls the first of several spellings that is there. Arguments that are pointers stay where they are until it
// returns, which the directive sees to: on a stack that grows meanwhile they would move.
//
//go:uintptrescapes
func (d *dllNVML) call(spellings []string, arguments ...uintptr) error {
	for _, name := range spellings {
		if d.has(name) {
			code, _, _ := d.found[name].Call(arguments...)
			if code != nvmlSuccess {
				return nvmlCode(code)
			}
			return nil
		}
	}
	return errNotThere
}

func (d *dllNVML) close() error {
	return errors.Join(d.call([]string{"nvmlShutdown"}), d.dll.Release())
}

func (d *dllNVML) count() (int, error) {
	var count uint32
	err := d.call([]string{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, uintptr(unsafe.Pointer(&count)))
	return int(count), err
}

func (d *dllNVML) card(index int) (device uintptr, err error) {
	err = d.call([]string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, uintptr(index), uintptr(unsafe.Pointer(&device)))
	return device, err
}

func (d *dllNVML) identity(device uintptr) (uuid, pci, name string, err error) {
	var uuidText, nameText [96]byte
	var place nvmlPCI
	if err := d.call([]string{"nvmlDeviceGetUUID"}, device, uintptr(unsafe.Pointer(&uuidText[0])), uintptr(len(uuidText))); err != nil {
		return "", "", "", err
	}
	if err := d.call([]string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"}, device, uintptr(unsafe.Pointer(&place))); err != nil {
		return "", "", "", err
	}
	if err := d.call(functionName, device, uintptr(unsafe.Pointer(&nameText[0])), uintptr(len(nameText))); err == nil {
		name = windows.ByteSliceToString(nameText[:])
	}
	pci = windows.ByteSliceToString(place.busID[:])
	if pci == "" { // before v3
		pci = windows.ByteSliceToString(place.legacy[:])
	}
	return windows.ByteSliceToString(uuidText[:]), pci, name, nil
}

func (d *dllNVML) memory(device uintptr) (total, free, reserved uint64, err error) {
	all := nvmlMemory2{version: uint32(unsafe.Sizeof(nvmlMemory2{})) | 2<<24}
	switch err := d.call(functionReserved, device, uintptr(unsafe.Pointer(&all))); {
	case err == nil:
		return all.total, all.free, all.reserved, nil
	case errors.Is(err, nvmlCode(nvmlGPUIsLost)):
		return 0, 0, 0, err
	}
	var figures nvmlMemory
	err = d.call([]string{"nvmlDeviceGetMemoryInfo"}, device, uintptr(unsafe.Pointer(&figures)))
	return figures.total, figures.free, 0, err
}

func (d *dllNVML) processes(device uintptr) ([]ProcessBytes, error) {
	// Only the newest layout is read: under WDDM the older ones know no more than that a process is there.
	newest := functionProcesses[:1]
	room := uint32(64)
	for range 4 { // processes may come while it is asked again
		list := make([]nvmlProcess, room)
		count := room
		err := d.call(newest, device, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&list[0])))
		if errors.Is(err, nvmlCode(nvmlInsufficientSize)) {
			room = count*2 + 1
			continue
		}
		if err != nil {
			return nil, err
		}
		processes := make([]ProcessBytes, min(count, room))
		for i := range processes {
			processes[i] = processBytes(list[i].pid, list[i].used)
		}
		return processes, nil
	}
	return nil, errNotThere
}

func (d *dllNVML) instances(device uintptr) ([]uintptr, error) {
	if !anyOf(d.has, functionMIGCount) || !anyOf(d.has, functionMIGInstance) {
		return nil, errNotThere
	}
	var current, pending, count uint32
	err := d.call(functionMIG, device, uintptr(unsafe.Pointer(&current)), uintptr(unsafe.Pointer(&pending)))
	if errors.Is(err, nvmlCode(nvmlNotSupported)) || err == nil && current == 0 {
		return nil, errNotThere
	}
	if err != nil {
		return nil, err
	}
	if err := d.call(functionMIGCount, device, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	var instances []uintptr
	for index := range count {
		var instance uintptr
		err := d.call(functionMIGInstance, device, uintptr(index), uintptr(unsafe.Pointer(&instance)))
		switch {
		case errors.Is(err, nvmlCode(nvmlNotFound)), errors.Is(err, nvmlCode(nvmlInvalidArgument)):
			continue // not every place is taken
		case err != nil:
			return nil, err
		}
		instances = append(instances, instance)
	}
	return instances, nil
}
