package mirror

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flagsOf plans for a host with these arguments and returns the flags as text.
func flagsOf(arguments map[string]string, environ ...string) (map[string]string, Reflection) {
	return flagsFor(Input{OS: "linux", HostEnviron: environ}, arguments)
}

func flagsFor(input Input, arguments map[string]string) (map[string]string, Reflection) {
	input.Host.Arguments = make(map[string]json.RawMessage)
	for name, value := range arguments {
		input.Host.Arguments[name] = json.RawMessage(value)
	}
	reflection := Plan(input)
	flags := make(map[string]string)
	for _, flag := range reflection.Flags {
		flags[flag.Name] = string(flag.Value)
	}
	return flags, reflection
}

func TestNoneAndZeroStayTwoValues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"null", "0", "2", "-1"} {
		if flags, _ := flagsOf(map[string]string{"async_offload": value}); flags["async_offload"] != value {
			t.Errorf("async_offload=%s crossed as %q", value, flags["async_offload"])
		}
	}
}

func TestNumbersCrossAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"512", "512.0", "0.1", "1e3", "123456789012345678901234567890"} {
		if flags, _ := flagsOf(map[string]string{"preview_size": value}); flags["preview_size"] != value {
			t.Errorf("preview_size=%s crossed as %q", value, flags["preview_size"])
		}
	}
}

func TestWhatTheUserSeesOfANodesWorkIsAsTheHostHasIt(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"disable_metadata": "true", "preview_method": `"taesd"`, "preview_size": "300", "default_hashing_function": `"sha1"`,
	}
	if flags, _ := flagsOf(want); !cmp.Equal(want, flags) {
		t.Errorf("(-host +worker):\n%s", cmp.Diff(want, flags))
	}
}

func TestAnEnumSetCrossesAsItsValuesSorted(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`["fp8_matrix_mult","autotune","autotune"]`: `["autotune","fp8_matrix_mult"]`,
		`[]`:           `[]`,
		`[1]`:          "",
		`{"a":1}`:      "",
		`[["nested"]]`: "",
	} {
		flags, reflection := flagsOf(map[string]string{"fast": value})
		if flags["fast"] != want {
			t.Errorf("fast=%s crossed as %q, want %q", value, flags["fast"], want)
		}
		if want == "" && withheldReason(reflection, "fast", true) == "" {
			t.Errorf("fast=%s was dropped without a word", value)
		}
	}
}

func TestFlagsThatAreNeverMirroredAreListedWhenSet(t *testing.T) {
	t.Parallel()
	arguments := map[string]string{
		"novram": "true", "highvram": "false", "cuda_device": `"1"`, "cpu": "true", "reserve_vram": "2.0",
		"cache_lru": "10", "cache_ram": "[]", "listen": `"0.0.0.0"`, "port": "8188", "tls_keyfile": `"k"`,
	}
	flags, reflection := flagsOf(arguments)
	if len(flags) != 0 {
		t.Errorf("mirrored: %v", flags)
	}
	for name, listed := range map[string]bool{
		"novram": true, "highvram": false, "cuda_device": true, "cpu": true, "reserve_vram": true,
		"cache_lru": true, "cache_ram": false, "listen": false, "port": false, "tls_keyfile": false,
	} {
		if got := withheldReason(reflection, name, true) != ""; got != listed {
			t.Errorf("--%s listed is %v, want %v", name, got, listed)
		}
	}
}

func TestAFlagThatTheHostDoesNotKnowIsNamed(t *testing.T) {
	t.Parallel()
	_, reflection := flagsOf(map[string]string{"fast_disk": "true"})
	if reason := withheldReason(reflection, "use_ck_attention", true); !strings.Contains(reason, "no such flag") {
		t.Errorf("the reason for use_ck_attention is %q", reason)
	}
}

func TestTheMirrorCanBeTurnedOffWholeOrByFlag(t *testing.T) {
	t.Parallel()
	arguments := map[string]string{"fast_disk": "true", "high_ram": "true", "fp16_vae": "true"}
	flags, reflection := flagsOf(arguments, "COMFY_ENV_MIRROR_ARGS=off")
	if _, found := reflection.Lookup("COMFY_ENV_HOST_ARGS"); found || len(flags) != 0 {
		t.Errorf("flags %v crossed although the mirror is off", flags)
	}
	if withheldReason(reflection, "COMFY_ENV_HOST_ARGS", false) == "" {
		t.Error("that the mirror is off is not listed")
	}
	flags, reflection = flagsOf(arguments, "COMFY_ENV_NO_MIRROR= fast_disk,--high-ram,,no_such")
	if difference := cmp.Diff(map[string]string{"fp16_vae": "true"}, flags); difference != "" {
		t.Errorf("flags (-want +got):\n%s", difference)
	}
	for _, name := range []string{"fast_disk", "high_ram", "no_such"} {
		if withheldReason(reflection, name, true) == "" {
			t.Errorf("%s is not listed", name)
		}
	}
	input := Input{OS: "linux", HostEnviron: []string{"COMFY_ENV_MIRROR_ARGS=0"},
		EnvironmentVariables: map[string]string{"COMFY_ENV_MIRROR_ARGS": "1"}}
	if flags, _ := flagsFor(input, arguments); len(flags) != 3 {
		t.Errorf("the pack turned the mirror on again, but crossed are %v", flags)
	}
}

func TestAttentionIsTheResolvedBackend(t *testing.T) {
	t.Parallel()
	sage := map[string]string{"use_sage_attention": "true"}
	for _, test := range []struct {
		attention string
		arguments map[string]string
		environ   []string
		want      string
		listed    bool
	}{
		{attention: "pytorch", arguments: sage, want: `"pytorch"`},
		{arguments: sage, want: `"sage"`},
		{arguments: map[string]string{"use_flash_attention": "true"}, want: `"flash"`},
		{arguments: map[string]string{"use_flash_attention": "false"}},
		{attention: "psychic", listed: true},
		{attention: "sage", environ: []string{"COMFY_ENV_WORKER_ATTENTION=Auto"}, listed: true},
		{attention: "sage", environ: []string{"COMFY_ENV_NO_MIRROR=attention"}, listed: true},
		{attention: "sage", environ: []string{"COMFY_ENV_MIRROR_ARGS=0"}},
	} {
		flags, reflection := flagsFor(Input{OS: "linux", HostEnviron: test.environ, Host: HostState{Attention: test.attention}}, test.arguments)
		if flags["attention"] != test.want {
			t.Errorf("%+v: attention crossed as %q", test, flags["attention"])
		}
		if listed := withheldReason(reflection, "attention", true) != ""; listed != test.listed {
			t.Errorf("%+v: listed is %v", test, listed)
		}
	}
}

func TestTheAllocatorFollowsTheFinalConfiguration(t *testing.T) {
	t.Parallel()
	host := map[string]string{"cuda_malloc": "true", "disable_cuda_malloc": "false"}
	async := "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64, backend:cudaMallocAsync"
	if flags, _ := flagsOf(host, async); flags["cuda_malloc"] != "true" {
		t.Errorf("inherited: cuda_malloc is %s", flags["cuda_malloc"])
	}
	input := Input{OS: "linux", HostEnviron: []string{async},
		EnvironmentVariables: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
	flags, reflection := flagsFor(input, host)
	if flags["cuda_malloc"] != "false" {
		t.Errorf("overridden by the pack: cuda_malloc is %s", flags["cuda_malloc"])
	}
	for _, flag := range reflection.Flags {
		if flag.Name == "cuda_malloc" && flag.Source != FromManifest {
			t.Errorf("overridden by the pack: the source is %s", flag.Source)
		}
	}
	input.EnvironmentVariables["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
	flags, _ = flagsFor(input, map[string]string{"cuda_malloc": "false", "disable_cuda_malloc": "true"})
	if flags["cuda_malloc"] != "true" || flags["disable_cuda_malloc"] != "false" {
		t.Errorf("turned on by the pack: %v", flags)
	}
	if flags, _ := flagsOf(map[string]string{}, async); flags["cuda_malloc"] != "" {
		t.Error("a ComfyUI without the flag got it")
	}
}

func TestVerboseCrossesAsTheConsolesLevel(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct{ flag, level string }{
		`[]`:                                {`[]`, "20"},
		`[["DETAIL",null]]`:                 {`[["DETAIL",null]]`, "15"},
		`[["ERROR",null],["DEBUG",null]]`:   {`[["DEBUG",null]]`, "10"},
		`[["DEBUG","log.txt"]]`:             {`[]`, "20"},
		`[["INFO",null],["DEBUG","a.log"]]`: {`[["INFO",null]]`, "20"},
		`"WARNING"`:                         {`"WARNING"`, "30"},
		`[["LOUD",null]]`:                   {"", ""},
		`["DEBUG"]`:                         {"", ""},
		`true`:                              {"", ""},
		`[[null,null]]`:                     {"", ""},
	} {
		flags, reflection := flagsOf(map[string]string{"verbose": value})
		level, _ := reflection.Lookup("COMFY_ENV_HOST_LOG_LEVEL")
		if flags["verbose"] != want.flag || level.Value != want.level {
			t.Errorf("verbose=%s crossed as %q at level %q, want %+v", value, flags["verbose"], level.Value, want)
		}
		if want.flag == "" && withheldReason(reflection, "verbose", true) == "" {
			t.Errorf("verbose=%s was dropped without a word", value)
		}
	}
	resolved := 35
	input := Input{OS: "linux", Host: HostState{LogLevel: &resolved}}
	if _, reflection := flagsFor(input, map[string]string{"verbose": `[]`}); values(reflection)["COMFY_ENV_HOST_LOG_LEVEL"] != "35" {
		t.Error("the level that the host resolved does not win")
	}
}

func TestAListWrittenByHandReplacesTheHosts(t *testing.T) {
	t.Parallel()
	host := map[string]string{"fast_disk": "true", "cuda_malloc": "false"}
	flags, reflection := flagsOf(host, `COMFY_ENV_HOST_ARGS={"high_ram": true, "listen": "x", "attention": "split"}`)
	if difference := cmp.Diff(map[string]string{"high_ram": "true", "attention": `"split"`}, flags); difference != "" {
		t.Errorf("flags (-want +got):\n%s", difference)
	}
	if withheldReason(reflection, "listen", true) == "" {
		t.Error("a flag that is not mirrored is not listed")
	}
	variable, _ := reflection.Lookup("COMFY_ENV_HOST_ARGS")
	if variable.Source != FromShell || variable.Value != `{"attention":"split","high_ram":true}` {
		t.Errorf("the variable is %+v", variable)
	}
	for _, broken := range []string{"fast_disk", "null", "[]", ""} {
		flags, reflection = flagsOf(host, "COMFY_ENV_HOST_ARGS="+broken)
		if flags["fast_disk"] != "true" || withheldReason(reflection, "COMFY_ENV_HOST_ARGS", false) == "" {
			t.Errorf("of %q came %v", broken, flags)
		}
	}
	for _, nothing := range []string{"{}", `{"listen": "x"}`} {
		flags, reflection = flagsOf(host, "COMFY_ENV_HOST_ARGS="+nothing)
		if len(flags) != 0 || withheldReason(reflection, "COMFY_ENV_HOST_ARGS", false) == "" {
			t.Errorf("of %q came %v", nothing, flags)
		}
	}
}
