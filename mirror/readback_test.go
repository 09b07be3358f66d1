package mirror

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTheHashSeesValuesAndNothingElse(t *testing.T) {
	t.Parallel()
	hash := func(values ReadBack) string {
		t.Helper()
		digest, err := Hash(values)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	first := hash(ReadBack{"fast": json.RawMessage(`["a","b"]`), "async_offload": json.RawMessage(`null`), "u": json.RawMessage(`"\u00e9"`)})
	same := hash(ReadBack{"u": json.RawMessage(`"é"`), "async_offload": json.RawMessage(` null `), "fast": json.RawMessage("[ \"a\",\n\"b\" ]")})
	if first != same || len(first) != 12 {
		t.Errorf("%s and %s for the same values", first, same)
	}
	for _, other := range []ReadBack{
		{"fast": json.RawMessage(`["a","b"]`), "async_offload": json.RawMessage(`0`), "u": json.RawMessage(`"é"`)},
		{"fast": json.RawMessage(`["a"]`), "async_offload": json.RawMessage(`null`), "u": json.RawMessage(`"é"`)},
		{"fast": json.RawMessage(`["a","b"]`), "u": json.RawMessage(`"é"`)},
	} {
		if hash(other) == first {
			t.Errorf("%v has the same hash", other)
		}
	}
	if _, err := Hash(ReadBack{"x": json.RawMessage(`{`)}); err == nil {
		t.Error("a value that is not JSON was hashed")
	}
}

func TestDifferencesAreListedByName(t *testing.T) {
	t.Parallel()
	flags := []Flag{{Name: "verbose"}, {Name: "fast"}, {Name: "async_offload"}, {Name: "high_ram"}, {Name: "directml"}}
	host := ReadBack{
		"verbose": json.RawMessage(`[]`), "fast": json.RawMessage(`["a"]`), "async_offload": json.RawMessage(`null`),
		"high_ram": json.RawMessage(`true`), "directml": json.RawMessage(`0`), "withheld_on_purpose": json.RawMessage(`1`),
	}
	worker := ReadBack{
		"verbose": json.RawMessage(`[ ]`), "fast": json.RawMessage(`[]`), "async_offload": json.RawMessage(`0`),
		"directml": json.RawMessage(`broken`),
	}
	want := []Difference{
		{Name: "async_offload", Host: "null", Worker: "0"},
		{Name: "directml", Host: "0", Worker: "broken"},
		{Name: "fast", Host: `["a"]`, Worker: "[]"},
		{Name: "high_ram", Host: "true"},
	}
	if difference := cmp.Diff(want, Compare(flags, host, worker)); difference != "" {
		t.Errorf("differences (-want +got):\n%s", difference)
	}
}

func TestAWorkerThatAppliedThePlanShowsNoDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		input := drawInput(t)
		reflection := Plan(input)
		expected := reflection.Expected()
		if differences := Compare(reflection.Flags, expected, expected); len(differences) != 0 {
			t.Fatalf("differences of a plan from itself: %+v", differences)
		}
		if _, err := Hash(expected); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSkewIsReportedAndBlocksOnlyWithoutTorch(t *testing.T) {
	t.Parallel()
	got := Skew(
		map[string]string{"python": "3.12.1", "comfyui": "0.30.0", "torch": "2.10.0", "comfy-aimdo": "0.4.11"},
		map[string]string{"python": "3.11.7", "comfyui": "0.30.0", "comfy-aimdo": "0.4.11", "numpy": "2.0"},
	)
	want := []Difference{
		{Name: "numpy", Worker: "2.0"},
		{Name: "python", Host: "3.12.1", Worker: "3.11.7"},
		{Name: "torch", Host: "2.10.0", Blocks: true},
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("skew (-want +got):\n%s", difference)
	}
	if other := Skew(map[string]string{"torch": "2.10.0"}, map[string]string{"torch": "2.9.0"}); len(other) != 1 || other[0].Blocks {
		t.Errorf("two versions of torch: %+v", other)
	}
}

func TestAReportIsReadFieldByField(t *testing.T) {
	t.Parallel()
	state, problems := DecodeHostState([]byte(`{
		"comfyui_version": "0.30.0", "args": {"fast_disk": true, "async_offload": null}, "aimdo_enabled": "perhaps", "reserve_bytes": 1.5,
		"log_level": 20, "something_new": [1]}`))
	if state.ComfyUIVersion != "0.30.0" || string(state.Arguments["fast_disk"]) != "true" ||
		string(state.Arguments["async_offload"]) != "null" || *state.LogLevel != 20 {
		t.Errorf("state is %+v", state)
	}
	if len(problems) != 2 || problems[0].Name != "aimdo_enabled" || problems[1].Name != "reserve_bytes" {
		t.Errorf("problems are %+v", problems)
	}
	if state.ReserveBytes != nil {
		t.Errorf("a reserve of %d bytes came of 1.5", *state.ReserveBytes)
	}
	for _, empty := range []string{"", " null\n"} {
		if state, problems := DecodeHostState([]byte(empty)); problems != nil || state.Arguments != nil {
			t.Errorf("%q gave %+v and %+v", empty, state, problems)
		}
	}
	if _, problems := DecodeHostState([]byte("[1]")); len(problems) != 1 {
		t.Errorf("a list gave %+v", problems)
	}
}
