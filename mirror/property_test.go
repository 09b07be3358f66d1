package mirror

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Names that rules exist for, and some that nobody ever heard of.
var interestingNames = append([]string{
	"A", "B", "Path", "PATH", "HOME", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "UV_X", "CONDA_X", "PLUGIN_X", "PIXI_X",
	"COMFY_SUPERVISOR_X", "COMFY_ENV_X", "COMFYUI_BASE", "COMFY_CPU", "COMFY_ENV_WORKER_AIMDO", "COMFY_ENV_HOST_ARGS",
	"COMFY_ENV_MIRROR_ARGS", "COMFY_ENV_NO_MIRROR", "COMFY_ENV_WORKER_ATTENTION", "COMFY_ENV_EXTRA_RESERVED_VRAM",
}, slices.Sorted(maps.Keys(inherited))...)

var interestingValues = []string{
	"", "0", "1", "off", "true", "auto", "a", "$A:$B", "%A%", "fast,high_ram", `{"fast":["autotune"],"x":1}`, "{", "null",
	"backend:cudaMallocAsync", "a\x00b",
}

func drawValue(t *rapid.T, label string) string {
	if rapid.Bool().Draw(t, label+" is interesting") {
		return rapid.SampledFrom(interestingValues).Draw(t, label)
	}
	return rapid.String().Draw(t, label)
}

func drawTable(t *rapid.T, label string) map[string]string {
	table := make(map[string]string)
	for i := range rapid.IntRange(0, 8).Draw(t, label+" size") {
		name := rapid.OneOf(rapid.SampledFrom(interestingNames), rapid.StringMatching(`[A-Z_=]{0,6}`)).Draw(t, fmt.Sprint(label, " name ", i))
		table[name] = drawValue(t, fmt.Sprint(label, " value ", i))
	}
	return table
}

func drawEnviron(t *rapid.T, label string) []string {
	var environ []string
	for _, name := range sortedNames(drawTable(t, label)) {
		environ = append(environ, name+"="+drawValue(t, label+" "+name))
	}
	return environ
}

func drawArguments(t *rapid.T) map[string]json.RawMessage {
	if rapid.Bool().Draw(t, "no arguments") {
		return nil
	}
	names := slices.Concat(slices.Sorted(maps.Keys(mirroredFlags)), sortedNames(carriedFlags), []string{"listen", "odd"})
	values := []string{
		"null", "true", "false", "0", "2", "-1", "0.5", `"sha256"`, `""`, "[]", `["b","a"]`, `[["DEBUG",null]]`, "[1]",
		`{"x":1}`, "1e400",
	}
	arguments := make(map[string]json.RawMessage)
	for i := range rapid.IntRange(0, 20).Draw(t, "arguments") {
		name := rapid.SampledFrom(names).Draw(t, fmt.Sprint("argument ", i))
		arguments[name] = json.RawMessage(rapid.SampledFrom(values).Draw(t, fmt.Sprint("value ", i)))
	}
	return arguments
}

func drawInput(t *rapid.T) Input {
	input := Input{
		OS:                   rapid.SampledFrom([]string{"linux", "windows", "darwin"}).Draw(t, "os"),
		HostEnviron:          drawEnviron(t, "host"),
		ShellEnviron:         drawEnviron(t, "shell"),
		EnvironmentVariables: drawTable(t, "env_vars"),
		Activation:           drawTable(t, "activation"),
		Activated:            drawTable(t, "activated"),
		Prefix:               rapid.SampledFrom([]string{"", "/e/p", `C:\e\p`}).Draw(t, "prefix"),
		Backend:              rapid.SampledFrom([]string{"uv", "pixi"}).Draw(t, "backend"),
		Worker:               rapid.SampledFrom([]string{"", "00ff"}).Draw(t, "worker"),
		Host: HostState{
			ComfyUIDirectory: rapid.SampledFrom([]string{"", "/c"}).Draw(t, "comfyui"),
			Arguments:        drawArguments(t),
			Attention:        rapid.SampledFrom([]string{"", "sage", "pytorch", "odd"}).Draw(t, "attention"),
			VRAMState:        rapid.SampledFrom([]string{"", "NORMAL_VRAM", "odd"}).Draw(t, "state"),
		},
	}
	if rapid.Bool().Draw(t, "pager known") {
		on := rapid.Bool().Draw(t, "pager")
		input.Host.PagerEnabled = &on
	}
	return input
}

func TestNothingVanishesAndNothingForbiddenPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		input := drawInput(t)
		reflection := Plan(input)
		b := newBuilder(input.OS, input.Prefix)
		accounted := make(set)
		for _, variable := range reflection.Variables {
			key := b.key(variable.Name)
			if accounted.has(key) {
				t.Fatalf("%s is there twice", variable.Name)
			}
			accounted[key] = struct{}{}
			if strings.ContainsAny(variable.Name, "=\x00") || strings.ContainsRune(variable.Value, 0) || variable.Name == "" {
				t.Fatalf("%q=%q can not be given to a process", variable.Name, variable.Value)
			}
			if forbiddenReason(key) != "" && key != variableWorker {
				t.Fatalf("%s reaches the worker", variable.Name)
			}
			if variable.Source != FromManifest && variable.Source != FromDefault && inheritedReason(key) != "" {
				t.Fatalf("%s reaches the worker from %s", variable.Name, variable.Source)
			}
		}
		for _, withheld := range reflection.Withheld {
			if !withheld.Flag {
				accounted[b.key(withheld.Name)] = struct{}{}
			}
			if withheld.Reason == "" || withheld.Source == "" {
				t.Fatalf("withheld without a reason or source: %+v", withheld)
			}
		}
		for _, entry := range input.HostEnviron {
			if name, _, ok := splitEntry(entry); ok && !accounted.has(b.key(name)) {
				t.Fatalf("the host's %s vanished", name)
			}
		}
		for _, table := range []map[string]string{input.EnvironmentVariables, input.Activation, input.Activated} {
			for name := range table {
				if !accounted.has(b.key(name)) {
					t.Fatalf("the pack's %q vanished", name)
				}
			}
		}
	})
}

func TestEveryFlagOfTheHostIsMirroredOrListed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		input := drawInput(t)
		reflection := Plan(input)
		carried, _ := reflection.Lookup("COMFY_ENV_HOST_ARGS")
		payload := make(map[string]json.RawMessage)
		if carried.Value != "" {
			if err := json.Unmarshal([]byte(carried.Value), &payload); err != nil {
				t.Fatalf("COMFY_ENV_HOST_ARGS is not JSON: %v", err)
			}
		}
		if len(payload) != len(reflection.Flags) {
			t.Fatalf("%d flags in the plan, %d in %s", len(reflection.Flags), len(payload), carried.Value)
		}
		listed := make(set)
		for _, flag := range reflection.Flags {
			if !mirroredFlags.has(flag.Name) && flag.Name != attentionFlag {
				t.Fatalf("--%s is mirrored", flag.Name)
			}
			if string(payload[flag.Name]) != string(flag.Value) {
				t.Fatalf("--%s is %s in the plan and %s in the variable", flag.Name, flag.Value, payload[flag.Name])
			}
			listed[flag.Name] = struct{}{}
		}
		for _, table := range []map[string]string{input.EnvironmentVariables, input.Activation, input.Activated} {
			if _, byHand := table["COMFY_ENV_HOST_ARGS"]; byHand {
				return // a list written by hand replaces the host's
			}
		}
		if carried.Source == FromShell {
			return // likewise
		}
		for _, withheld := range reflection.Withheld {
			if withheld.Flag {
				listed[withheld.Name] = struct{}{}
			} else if withheld.Name == "COMFY_ENV_HOST_ARGS" {
				return // the mirror is off
			}
		}
		for name := range input.Host.Arguments {
			if mirroredFlags.has(name) && !listed.has(name) {
				t.Fatalf("--%s vanished", name)
			}
		}
	})
}

func TestPrecedenceHoldsForEveryPlainVariable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const name = "SOME_VARIABLE"
		var input Input
		input.OS = rapid.SampledFrom([]string{"linux", "windows", "darwin"}).Draw(t, "os")
		want, source := "", Source("")
		if rapid.Bool().Draw(t, "host") {
			want, source = "host", FromHost
			if rapid.Bool().Draw(t, "unchanged since the start") {
				input.ShellEnviron = []string{name + "=host"}
				source = FromShell
			} else if rapid.Bool().Draw(t, "changed since the start") {
				input.ShellEnviron = []string{name + "=shell"}
			}
			input.HostEnviron = []string{name + "=host"}
		}
		if rapid.Bool().Draw(t, "activation") {
			input.Activation = map[string]string{name: "activation"}
			want, source = "activation", FromManifest
		}
		if rapid.Bool().Draw(t, "env_vars") {
			input.EnvironmentVariables = map[string]string{name: "env_vars"}
			want, source = "env_vars", FromManifest
		}
		got, found := Plan(input).Lookup(name)
		if found != (source != "") || got.Value != want || got.Source != source {
			t.Fatalf("got %+v, want %q from %q", got, want, source)
		}
	})
}

func TestThePlanIsAFunctionOfItsInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		input := drawInput(t)
		first, err := json.Marshal(Plan(input))
		if err != nil {
			t.Fatal(err)
		}
		names := make(set)
		for _, entry := range input.HostEnviron {
			name, _, _ := splitEntry(entry)
			names[newBuilder(input.OS, "").key(name)] = struct{}{}
		}
		if len(names) == len(input.HostEnviron) { // order counts only among doubled names
			slices.Reverse(input.HostEnviron)
		}
		if second, _ := json.Marshal(Plan(input)); string(first) != string(second) {
			t.Fatalf("two plans of one input:\n%s\n%s", first, second)
		}
	})
}

func FuzzAnyReportOfAHostIsTakenAsFarAsItGoes(f *testing.F) {
	f.Add([]byte(`{"args":{"fast":["a"],"verbose":[["DEBUG",null]]},"aimdo_enabled":true,"reserve_bytes":-1}`))
	f.Add([]byte(`{"args":[],"aimdo_enabled":"yes","reserve_bytes":1e400,"log_level":null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, document []byte) {
		state, problems := DecodeHostState(document)
		for _, problem := range problems {
			if problem.Name == "" || problem.Reason == "" {
				t.Errorf("a problem without a name or reason: %+v", problem)
			}
		}
		for _, flag := range Plan(Input{OS: "linux", Host: state}).Flags {
			if !json.Valid(flag.Value) {
				t.Errorf("--%s is %q, which is not JSON", flag.Name, flag.Value)
			}
		}
	})
}
