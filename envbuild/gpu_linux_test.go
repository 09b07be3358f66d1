package envbuild

import (
	"path/filepath"
	"testing"
)

func TestCardsAreFoundByTheNodesOfTheirDrivers(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":                        {nil, nil},
		"one NVIDIA card":                {map[string]string{"dev/nvidiactl": "", "dev/nvidia0": "", "proc/driver/nvidia/gpus/0000:01:00.0/information": ""}, []string{"nvidia"}},
		"two NVIDIA cards":               {map[string]string{"dev/nvidia0": "", "dev/nvidia1": ""}, []string{"nvidia", "nvidia"}},
		"a container without the card":   {map[string]string{"proc/driver/nvidia/gpus/0000:01:00.0/information": ""}, nil},
		"a driver without a card":        {map[string]string{"dev/nvidiactl": "", "dev/nvidia-uvm": ""}, nil},
		"WSL":                            {map[string]string{"dev/dxg": "", "usr/lib/wsl/lib/libcuda.so.1": ""}, []string{"nvidia"}},
		"WSL without NVIDIA":             {map[string]string{"dev/dxg": ""}, nil},
		"an AMD card beside a processor": {map[string]string{"dev/kfd": "", "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 16\nsimd_count 0\n", "sys/class/kfd/kfd/topology/nodes/1/properties": "cpu_cores_count 0\nsimd_count 96\n"}, []string{"amd"}},
		"an Intel card":                  {map[string]string{"sys/class/drm/renderD128/device/vendor": "0x8086\n"}, []string{"intel"}},
		"another maker's display":        {map[string]string{"sys/class/drm/renderD128/device/vendor": "0x1af4\n"}, nil},
	} {
		root := t.TempDir()
		for path, content := range one.files {
			writeFile(t, filepath.Join(root, path), content)
		}
		devices := probeGPU(root)
		var kinds []string
		for _, device := range devices {
			kinds = append(kinds, device.Kind)
		}
		if len(kinds) != len(one.want) || len(kinds) > 0 && kinds[0] != one.want[0] {
			t.Errorf("%s: %+v, want %v", name, devices, one.want)
		}
	}
}

func TestTheDriversVersionIsReadFromItsRegistration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.2.0\n": "535.104.05",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@x)\n":                               "570.124.06",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build\n":                                         "580.65.06",
		"something else\n": "",
		"":                 "",
	} {
		root := t.TempDir()
		writeFile(t, filepath.Join(root, "proc/driver/nvidia/version"), text)
		if got := probeDriver(root); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := probeDriver(t.TempDir()); got != "" {
		t.Errorf("without a driver: %q", got)
	}
}
