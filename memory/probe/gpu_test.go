//go:build gpu && (linux || windows)

package probe

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
)

// holdsMemory takes a gibibyte of the first card with torch, says so, and gives it back when its input ends.
const holdsMemory = `
import sys, torch
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
print(torch.cuda.get_device_properties(0).uuid if hasattr(torch.cuda.get_device_properties(0), "uuid") else "", free, total, flush=True)
sys.stdin.read()
`

// TestTheCardsOfThisMachineAreRead needs a card: go test -tags gpu ./memory/probe -run TestTheCards -v. With
// COMFY_SUPERVISOR_TEST_TORCH_PYTHON, an interpreter with a CUDA torch, it also looks at what a process takes.
func TestTheCardsOfThisMachineAreRead(t *testing.T) {
	cards, err := Open(context.Background(), Options{Library: os.Getenv("COMFY_SUPERVISOR_NVML_LIBRARY"), OwnPIDs: os.Getenv("COMFY_SUPERVISOR_NVML_PIDS") == "ours"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cards.Close(); err != nil {
			t.Error(err)
		}
	}()
	var took []time.Duration
	var list []Card
	for range 200 {
		began := time.Now()
		if list, err = cards.Read(context.Background()); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("a reading takes %s (median), %s (99 of 100)", took[100], took[198])
	for i := range list {
		card := &list[i]
		t.Logf("%+v", *card)
		if card.Err != nil || !card.Partitioned && (card.Total <= 0 || card.Free < 0 || card.Free > card.Total) {
			t.Errorf("card %d: %+v", card.Index, card)
		}
	}
	python := os.Getenv("COMFY_SUPERVISOR_TEST_TORCH_PYTHON")
	if len(list) == 0 || python == "" {
		return
	}
	watchAProcess(t, cards, python)
}

func watchAProcess(t *testing.T, cards *Cards, python string) {
	read := func(device string) *Card {
		list, err := cards.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if list[i].Device() == device {
				return &list[i]
			}
		}
		t.Fatalf("the card %s is gone", device)
		return nil
	}
	list, err := cards.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	visible := VisibleCards(list, os.Environ())
	if len(visible.Cards) == 0 {
		t.Fatal("this process sees no card")
	}
	device := visible.Cards[0].Device()
	before := read(device)
	command := exec.Command(python, "-c", holdsMemory)
	input, output := processtest.Start(t, command)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Split(strings.TrimSpace(line), " ")
	if card, ok := Find(list, fields[0]); fields[0] != "" && (!ok || card.Device() != device) {
		t.Errorf("the process calls its card %s, by its variables it is %s", fields[0], device)
	}
	during := read(device)
	t.Logf("before %s free, with a process that took 1 GiB %s; it read %v; context and libraries %s", before.Free, during.Free, fields[1:], before.Free-during.Free-memory.GiB)
	if before.Free-during.Free < memory.GiB {
		t.Errorf("its gibibyte is not seen")
	}
	if during.Attributed && !slices.ContainsFunc(during.Processes, func(p ProcessBytes) bool { return p.PID == command.Process.Pid && p.Bytes >= memory.GiB }) {
		t.Errorf("it is not in the driver's list: %v", during.Processes)
	}
	_ = input.Close()
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	if after := read(device); before.Free-after.Free > memory.GiB/2 {
		t.Errorf("its bytes are not back: %s", fmt.Sprint(after.Free))
	}
}
