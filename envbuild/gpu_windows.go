package envbuild

import "golang.org/x/sys/windows/registry"

// driverServices are the services of display drivers; while a card is driven, the service's Enum key counts it.
var driverServices = []struct{ service, kind string }{
	{"nvlddmkm", "nvidia"},
	{"amdkmdag", "amd"},
	{"amduw23g", "amd"},
	{"amdwddmg", "amd"},
	{"igfxn", "intel"},
	{"igfxnd", "intel"},
}

// probeGPU reads the drivers' registration: Services\<driver>\Enum lists the devices that it drives now. No
// driver library is loaded.
func probeGPU(string) []GPUDevice {
	var devices []GPUDevice
	for _, driver := range driverServices {
		path := `SYSTEM\CurrentControlSet\Services\` + driver.service + `\Enum`
		key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
		if err != nil {
			continue // this driver is not installed
		}
		count, _, err := key.GetIntegerValue("Count")
		key.Close()
		if err == nil && count > 0 {
			devices = append(devices, GPUDevice{Kind: driver.kind, Source: `HKLM\` + path})
		}
	}
	return devices
}

// probeDriver tells nothing here: only NVIDIA's driver on Linux is asked.
func probeDriver(string) string { return "" }
