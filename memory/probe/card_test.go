package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

func TestPlacesOnTheBusCompareWhateverTheirSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"00000000:65:00.0": "0000:65:00.0", "0000:65:00.0": "0000:65:00.0", "65:00.0": "0000:65:00.0", "0001:0A:1F.7": "0001:0a:1f.7",
		"00010000:01:00.0": "10000:01:00.0", " 65:0 ": "0000:65:00.0",
	} {
		if got, err := NormalizePCI(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "65", "gpu", "1:2:3:4", "zz:00.0", "0000:165:00.0"} {
		if got, err := NormalizePCI(text); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}

var rack = []Card{
	{UUID: "GPU-aaaa1111-0000", PCI: "0000:01:00.0", Name: "RTX 3090", Index: 0},
	{UUID: "GPU-aaaa2222-0000", PCI: "0000:02:00.0", Name: "RTX 3090", Index: 1},
	{UUID: "GPU-bbbb3333-0000", PCI: "0000:03:00.0", Name: "A100", Index: 2, Partitioned: true},
	{UUID: "MIG-cccc0001-0000", PCI: "0000:03:00.0", Name: "A100 MIG 3g.20gb", Index: 2, Parent: "GPU-bbbb3333-0000"},
	{UUID: "MIG-cccc0002-0000", PCI: "0000:03:00.0", Name: "A100 MIG 3g.20gb", Index: 2, Parent: "GPU-bbbb3333-0000"},
}

func TestACardIsFoundByWhatAProcessCallsIt(t *testing.T) {
	for identity, want := range map[string]string{
		"GPU-aaaa2222-0000": "GPU-aaaa2222-0000", "aaaa2222-0000": "GPU-aaaa2222-0000", "AAAA2222-0000": "GPU-aaaa2222-0000",
		"00000000:02:00.0": "GPU-aaaa2222-0000", "mig-cccc0002-0000": "MIG-cccc0002-0000",
	} {
		if card, ok := Find(rack, identity); !ok || card.UUID != want {
			t.Errorf("%q: %+v, %v", identity, card, ok)
		}
	}
	for _, identity := range []string{"", "GPU-", "03:00.0", "ffff"} { // an instance shares its place with the others
		if card, ok := Find(rack, identity); ok {
			t.Errorf("%q found %+v", identity, card)
		}
	}
}

func TestVisibleDevicesAreReadAsCUDAReadsThem(t *testing.T) {
	two := rack[:2]
	for _, test := range []struct {
		name    string
		cards   []Card
		environ string
		want    string
	}{
		{"unset", two, "", "GPU-aaaa1111-0000 GPU-aaaa2222-0000 certain"},
		{"reversed", two, "CUDA_VISIBLE_DEVICES=1,0", "GPU-aaaa2222-0000 GPU-aaaa1111-0000 certain"},
		{"the last of two settings", two, "CUDA_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=1", "GPU-aaaa2222-0000 certain"},
		{"empty hides all", two, "CUDA_VISIBLE_DEVICES=", "certain ignored"},
		{"-1 hides all", two, "CUDA_VISIBLE_DEVICES=-1", "certain ignored -1"},
		{"an unknown number ends the list", two, "CUDA_VISIBLE_DEVICES=1,7,0", "GPU-aaaa2222-0000 certain ignored 7"},
		{"a doubled one as well", two, "CUDA_VISIBLE_DEVICES=1,1,0", "GPU-aaaa2222-0000 certain ignored 1"},
		{"a UUID cut short", two, "CUDA_VISIBLE_DEVICES=GPU-aaaa2", "GPU-aaaa2222-0000 certain"},
		{"cut so short that it could be both", two, "CUDA_VISIBLE_DEVICES=GPU-aaaa", "certain ignored GPU-aaaa"},
		{"numbers of unlike cards are not certain", rack[:3], "CUDA_VISIBLE_DEVICES=0", "GPU-aaaa1111-0000"},
		{"but by the bus they are", rack[:3], "CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID", "GPU-aaaa1111-0000 certain"},
		{"and by UUID", rack[:3], "CUDA_VISIBLE_DEVICES=GPU-aaaa1111-0000", "GPU-aaaa1111-0000 certain"},
		{"a partitioned card is its first instance", rack, "CUDA_VISIBLE_DEVICES=2 CUDA_DEVICE_ORDER=PCI_BUS_ID", "MIG-cccc0001-0000 certain"},
		{"one instance and nothing else", rack, "CUDA_VISIBLE_DEVICES=MIG-cccc0002-0000,MIG-cccc0001-0000", "MIG-cccc0002-0000 certain"},
		{"an instance hides whole cards", rack, "CUDA_VISIBLE_DEVICES=GPU-aaaa1111-0000,MIG-cccc0002-0000", "MIG-cccc0002-0000 certain"},
	} {
		visible := VisibleCards(test.cards, strings.Fields(test.environ))
		var words []string
		for _, card := range visible.Cards {
			words = append(words, card.UUID)
		}
		if visible.Certain {
			words = append(words, "certain")
		}
		if visible.Ignored != "" || test.environ == "CUDA_VISIBLE_DEVICES=" {
			words = append(words, strings.TrimSpace("ignored "+visible.Ignored))
		}
		if got := strings.Join(words, " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestAReadingChargesPartiesByTheirProcesses(t *testing.T) {
	worker := memory.Party{Session: "s", Environment: "e", Generation: 1}
	card := Card{UUID: "GPU-1", Total: 24 * memory.GiB, Free: 10 * memory.GiB, Attributed: true,
		Processes: []ProcessBytes{{10, memory.GiB}, {11, 2 * memory.GiB}, {99, 5 * memory.GiB}}}
	parties := func(pid int) (memory.Party, bool) { return worker, pid < 20 }
	reading := card.Reading(false, parties)
	if got := fmt.Sprintf("%s %d %s %s", reading.Processes[worker], len(reading.Processes), reading.Device, reading.Source); got != "3.00 GiB 1 GPU-1 driver" {
		t.Errorf("%s", got)
	}
	card.Attributed = false
	if reading := card.Reading(true, parties); reading.Processes != nil || !reading.ProcessLocal {
		t.Errorf("%+v", reading)
	}
}
