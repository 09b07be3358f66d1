package memory

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// The recorded answers come from a real ComfyUI 0.30.0. To ask one again:
//
//	COMFY_SUPERVISOR_TEST_COMFYUI=/path/to/ComfyUI go test ./memory -run Upstream [-update]
const recorded = "testdata/upstream_0.30.0.json"

var update = flag.Bool("update", false, "write the answers of the ComfyUI in COMFY_SUPERVISOR_TEST_COMFYUI to "+recorded)

// upstreamCase is one question to ComfyUI; the names are those of testdata/upstream_oracle.py.
type upstreamCase struct {
	Kind          string          `json:"kind"`
	ReserveFlag   *float64        `json:"reserve_vram,omitempty"`
	Reserve       *float64        `json:"reserve,omitempty"`
	Windows       bool            `json:"windows,omitempty"`
	Card          Bytes           `json:"card,omitempty"`
	RAM           Bytes           `json:"ram,omitempty"`
	NVIDIA        bool            `json:"nvidia"`
	Pinning       bool            `json:"pinning"`
	Free          Bytes           `json:"free"`
	TorchIdle     Bytes           `json:"torch_idle,omitempty"`
	HighVRAM      bool            `json:"high_vram,omitempty"`
	Required      float64         `json:"required"`
	ForDynamic    bool            `json:"for_dynamic"`
	DisableSmart  bool            `json:"disable_smart,omitempty"`
	Models        []upstreamModel `json:"models,omitempty"`
	Model         *upstreamModel  `json:"model,omitempty"`
	Activation    float64         `json:"activation"`
	Minimum       *float64        `json:"minimum"`
	PinSize       Bytes           `json:"pin_size,omitempty"`
	Pinned        Bytes           `json:"pinned,omitempty"`
	Ceiling       *float64        `json:"ceiling,omitempty"`
	Available     Bytes           `json:"available,omitempty"`
	CacheHeadroom Bytes           `json:"cache_headroom,omitempty"`
	FastDisk      bool            `json:"fast_disk,omitempty"`
	HighRAM       bool            `json:"high_ram,omitempty"`
	Shape         []int           `json:"shape,omitempty"`
	Compact       bool            `json:"compact,omitempty"`
	ElementSize   int             `json:"element_size,omitempty"`
	Factor        float64         `json:"factor,omitempty"`
}

type upstreamModel struct {
	Size       Bytes `json:"size"`
	Loaded     Bytes `json:"loaded"`
	References int   `json:"references"`
	Dynamic    bool  `json:"dynamic"`
	Keep       bool  `json:"keep"`
}

type upstreamAnswer struct {
	Reserve       float64    `json:"reserve"`
	Minimum       float64    `json:"minimum_inference"`
	Ceiling       float64    `json:"ceiling"`
	HostBuffer    Bytes      `json:"host_buffer"`
	Unloads       [][2]Bytes `json:"unloads,omitempty"`
	Emptied       bool       `json:"emptied,omitempty"`
	Asked         []float64  `json:"asked,omitempty"`
	Budget        *float64   `json:"budget,omitempty"`
	FreePins      *float64   `json:"free_pins,omitempty"`
	Registrations *float64   `json:"registrations,omitempty"`
	Estimate      float64    `json:"estimate,omitempty"`
}

type recording struct {
	Cases   []upstreamCase   `json:"cases"`
	Answers []upstreamAnswer `json:"answers"`
}

// upstreamCases draws the same questions at every run.
func upstreamCases() []upstreamCase {
	random := rand.New(rand.NewPCG(30, 0))
	bytesUpTo := func(most Bytes) Bytes { return Bytes(random.Int64N(int64(most) + 1)) }
	flip := func() bool { return random.IntN(2) == 0 }
	pointer := func(value float64) *float64 { return &value }
	model := func() upstreamModel {
		size := bytesUpTo(12 * GiB)
		loaded := Bytes(0)
		if flip() {
			loaded = bytesUpTo(size)
		}
		return upstreamModel{Size: size, Loaded: loaded, References: 2 + random.IntN(3), Dynamic: flip(), Keep: random.IntN(4) == 0}
	}
	var cases []upstreamCase
	for i := range 200 {
		question := upstreamCase{
			Kind: []string{"free", "free", "load", "pins", "estimate"}[i%5], Windows: flip(), NVIDIA: random.IntN(4) > 0, Pinning: random.IntN(5) > 0,
			Card: bytesUpTo(48 * GiB), RAM: bytesUpTo(256 * GiB),
		}
		switch random.IntN(4) {
		case 0:
			question.ReserveFlag = pointer([]float64{0, -0.5, 0.7, 1.3, 2}[random.IntN(5)])
		case 1:
			question.Reserve = pointer(float64(random.Int64N(int64(4*GiB))) - float64(GiB))
		}
		switch question.Kind {
		case "free":
			question.Free, question.TorchIdle = bytesUpTo(8*GiB), bytesUpTo(3*GiB)
			question.Required = random.Float64() * float64(24*GiB)
			question.ForDynamic, question.HighVRAM, question.DisableSmart = flip(), flip(), random.IntN(8) == 0
			for range random.IntN(7) {
				question.Models = append(question.Models, model())
			}
		case "load":
			one := model()
			question.Model = &one
			question.Free = bytesUpTo(24 * GiB)
			question.Activation = random.Float64() * float64(6*GiB)
			if flip() {
				question.Minimum = pointer(random.Float64() * question.Activation)
			}
		case "pins":
			question.PinSize, question.Pinned, question.Available = bytesUpTo(20*GiB), bytesUpTo(40*GiB), bytesUpTo(32*GiB)
			question.CacheHeadroom, question.FastDisk, question.HighRAM = bytesUpTo(16*GiB), flip(), random.IntN(4) == 0
			if random.IntN(3) > 0 {
				question.Ceiling = pointer(random.Float64() * float64(60*GiB))
			}
		case "estimate":
			question.Shape = []int{1 + random.IntN(4), 4, 8 * (1 + random.IntN(256)), 8 * (1 + random.IntN(256))}
			question.Compact, question.ElementSize = flip(), []int{1, 2, 4}[random.IntN(3)]
			question.Factor = random.Float64() * 4
		}
		cases = append(cases, question)
	}
	return cases
}

// answer is what this package says to a question.
func answer(q upstreamCase) upstreamAnswer {
	reserve := DefaultReserve(q.Windows, q.Card)
	if q.ReserveFlag != nil {
		reserve = ReserveFromFlag(*q.ReserveFlag)
	}
	if q.Reserve != nil {
		reserve = *q.Reserve
	}
	ceiling := PinCeiling(Version{0, 30, 0}, PinSystem{Windows: q.Windows, Pinning: q.Pinning && q.NVIDIA, RAM: q.RAM})
	if q.Ceiling != nil {
		ceiling = *q.Ceiling
	}
	result := upstreamAnswer{
		Reserve: reserve, Minimum: MinimumInferenceMemory(reserve), Ceiling: ceiling,
		HostBuffer: HostBufferSize(q.PinSize, ceiling, q.HighRAM),
	}
	switch q.Kind {
	case "free":
		var models []LoadedModel
		for _, model := range q.Models {
			models = append(models, LoadedModel{Size: model.Size, Loaded: model.Loaded, References: model.References, Dynamic: model.Dynamic, Keep: model.Keep})
		}
		free, whole := q.Free, false
		for _, unload := range PlanFreeMemory(q.Required, free, models, FreeMemoryOptions{q.ForDynamic, q.DisableSmart}) {
			result.Unloads = append(result.Unloads, [2]Bytes{Bytes(unload.Index), unload.Bytes})
			free, whole = free+unload.Bytes, whole || unload.Whole
		}
		result.Emptied = EmptiesCache(whole, free, q.TorchIdle, q.HighVRAM)
	case "load":
		load := Load{Activation: q.Activation, Minimum: -1, Reserve: reserve, Weights: q.Model.Size}
		if q.Model.Loaded > 0 {
			load.Weights = q.Model.Size - q.Model.Loaded
		}
		if q.Minimum != nil {
			load.Minimum = *q.Minimum
		}
		result.Asked = []float64{load.Required()}
		if float64(q.Free) < load.MinimumRequired() {
			result.Asked = append(result.Asked, load.MinimumRequired())
		}
		ratio := 0.4
		if q.NVIDIA {
			ratio = 0
		}
		budget := load.PartialBudget(q.Free, q.Model.Loaded, ratio)
		result.Budget = &budget
	case "estimate":
		area := float64(q.Shape[0] * q.Shape[2] * q.Shape[3])
		result.Estimate = ActivationEstimate(area, q.ElementSize, q.Factor, Attention{Compact: q.Compact})
	case "pins":
		if short := PinBudgetShortfall(q.PinSize, q.Available, q.CacheHeadroom, q.Pinned, ceiling, q.FastDisk, q.HighRAM); short > 0 {
			asked := short + float64(PinPressureHysteresis)
			result.FreePins = &asked
		}
		if short := PinRegistrationShortfall(q.PinSize, q.Pinned, ceiling); ceiling > 0 && short > 0 {
			asked := short + float64(PinRegistrationHysteresis)
			result.Registrations = &asked
		}
	}
	return result
}

// askUpstream runs the questions through the ComfyUI in a directory.
func askUpstream(t *testing.T, comfyui string, cases []upstreamCase) (answers []upstreamAnswer) {
	t.Helper()
	questions, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("python3", "testdata/upstream_oracle.py", comfyui)
	command.Stdin, command.Stderr = bytes.NewReader(questions), os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("asking the ComfyUI in %s: %v", comfyui, err)
	}
	if err := json.Unmarshal(output, &answers); err != nil {
		t.Fatalf("reading what the ComfyUI in %s answered: %v", comfyui, err)
	}
	return answers
}

func TestUpstreamArithmeticMatchesARealComfyUIToTheLastBit(t *testing.T) {
	var record recording
	if comfyui := os.Getenv("COMFY_SUPERVISOR_TEST_COMFYUI"); comfyui != "" {
		record.Cases = upstreamCases()
		record.Answers = askUpstream(t, comfyui, record.Cases)
		if *update {
			text, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte(`},{"kind"`), []byte("},\n{\"kind\""))
			text = bytes.ReplaceAll(text, []byte(`},{"reserve"`), []byte("},\n{\"reserve\""))
			if err := os.WriteFile(recorded, append(text, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		text, err := os.ReadFile(recorded)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &record); err != nil {
			t.Fatalf("%s: %v", recorded, err)
		}
	}
	if len(record.Cases) < 100 || len(record.Answers) != len(record.Cases) {
		t.Fatalf("%d questions and %d answers: too few to prove anything", len(record.Cases), len(record.Answers))
	}
	for i, question := range record.Cases {
		if difference := cmp.Diff(record.Answers[i], answer(question), cmpopts.EquateEmpty()); difference != "" {
			text, _ := json.Marshal(question)
			t.Errorf("case %d: %s\nComfyUI - ours +\n%s", i, text, difference)
		}
	}
}

func TestPinCeilingsFollowTheVersion(t *testing.T) {
	linux := PinSystem{Pinning: true, RAM: 64 * GiB, DiskSwap: 8 * GiB}
	limited := linux
	limited.Limited = true
	small := PinSystem{Pinning: true, RAM: 8 * GiB}
	windows := PinSystem{Windows: true, Pinning: true, RAM: 64 * GiB}
	for _, test := range []struct {
		name    string
		version Version
		system  PinSystem
		want    float64
	}{
		{"0.30", Version{0, 30, 0}, linux, float64(64*GiB) * 0.90},
		{"0.38, swap counts", Version{0, 38, 0}, linux, float64(56 * GiB)},
		{"0.38 under a cgroup limit, swap does not", Version{0, 38, 0}, limited, float64(48 * GiB)},
		{"0.38, never below 0.40", Version{0, 38, 0}, small, float64(8*GiB) * 0.40},
		{"an unknown version gets the stricter one", Version{}, limited, float64(48 * GiB)},
		{"a version between gets the stricter one", Version{0, 34, 1}, limited, float64(48 * GiB)},
		{"Windows", Version{0, 38, 0}, windows, float64(64*GiB) * 0.40},
		{"off", Version{0, 30, 0}, PinSystem{RAM: 64 * GiB}, -1},
	} {
		if got := PinCeiling(test.version, test.system); got != test.want {
			t.Errorf("%s: %f, want %f", test.name, got, test.want)
		}
	}
}

func TestTheNewerPinCeilingIsNeverTheLarger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		system := PinSystem{Pinning: true, RAM: Bytes(rapid.Int64Range(0, int64(4*TiB)).Draw(t, "ram")),
			DiskSwap: Bytes(rapid.Int64Range(0, int64(TiB)).Draw(t, "swap")), Limited: rapid.Bool().Draw(t, "limited")}
		if newer, older := PinCeiling(Version{0, 38, 0}, system), PinCeiling(Version{0, 30, 0}, system); newer > older {
			t.Fatalf("%+v: %f above %f", system, newer, older)
		}
	})
}

func TestVersionsAreRead(t *testing.T) {
	for text, want := range map[string]Version{
		"0.30.0": {0, 30, 0}, "v0.38": {0, 38, 0}, " 1.2.3-rc1 ": {1, 2, 3}, "0.30.0+local": {0, 30, 0}, "0.30.0.1": {0, 30, 0},
	} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "latest", "0.x", "-1.0"} {
		if got, err := ParseVersion(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	if (Version{}).String() != "unknown" || (Version{0, 30, 0}).String() != "0.30.0" {
		t.Error("versions print wrongly")
	}
}

func TestAbsurdAmountsStayInRange(t *testing.T) {
	for amount, want := range map[float64]Bytes{
		math.Inf(1): math.MaxInt64, math.Inf(-1): math.MinInt64, 1e32: math.MaxInt64, 0.1: 1, -0.5: 0, 7: 7,
	} {
		if got := ceilBytes(amount); got != want {
			t.Errorf("%g: %d, want %d", amount, got, want)
		}
	}
	if got := ceilBytes(math.NaN()); got != 0 {
		t.Errorf("not a number: %d", got)
	}
	if got := CastBuffers(1<<40, math.MaxInt64/2); got != math.MaxInt64 {
		t.Errorf("cast buffers of an absurd report: %d", got)
	}
	if got := fmt.Sprint(CastBuffers(2, 512*MiB), CastBuffers(0, GiB), CastBuffers(2, -1)); got != "1.00 GiB 0 B 0 B" {
		t.Errorf("cast buffers: %s", got)
	}
}
