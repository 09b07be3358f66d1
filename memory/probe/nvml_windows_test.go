package probe

import (
	"context"
	"os"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// The library is testdata/fakecard/windows/nvml.c, built where these tests were cross-compiled:
//
//	x86_64-w64-mingw32-gcc -shared -o nvml.dll testdata/fakecard/windows/nvml.c
//	GOOS=windows go test -c ./memory/probe
//	COMFY_SUPERVISOR_TEST_NVML_DLL='Z:\path\to\nvml.dll' wine64 probe.test.exe
const dllVariable = "COMFY_SUPERVISOR_TEST_NVML_DLL"

func TestNVMLIsCalledThroughItsDLL(t *testing.T) {
	library := os.Getenv(dllVariable)
	if library == "" {
		t.Skip(dllVariable + " names no library")
	}
	cards, err := Open(context.Background(), Options{Library: library})
	if err != nil {
		t.Fatal(err)
	}
	list, err := cards.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 {
		t.Fatalf("%d cards: %+v", len(list), list)
	}
	first, second := list[0], list[1]
	if first.UUID != "GPU-fa4ecad0-0000-4000-9000-000000000001" || first.PCI != "0000:01:00.0" || first.Name != "Fake 1" || first.Err != nil {
		t.Errorf("identity %+v", first)
	}
	if first.Total != 8*memory.GiB || first.Reserved != 256*memory.MiB || first.Free != 7*memory.GiB-256*memory.MiB {
		t.Errorf("figures %+v", first)
	}
	if !first.Attributed || len(first.Processes) != 100 || first.Processes[99] != (ProcessBytes{1099, 8 * memory.MiB}) {
		t.Errorf("processes %d %+v", len(first.Processes), first.Processes)
	}
	if second.Attributed || len(second.Processes) != 0 || second.Free != 6*memory.GiB-256*memory.MiB {
		t.Errorf("a card whose driver does not tell what processes hold: %+v", second)
	}
	if err := cards.Close(); err != nil {
		t.Error(err)
	}
}

func TestAMachineWithoutNVMLSaysWhatItLookedFor(t *testing.T) {
	if _, err := Open(context.Background(), Options{Library: `C:\nowhere\nvml.dll`}); err == nil {
		t.Error("a library that is not there was opened")
	} else {
		t.Log(err)
	}
}
