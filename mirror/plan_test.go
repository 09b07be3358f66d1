package mirror

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cpuHost is a host that ran `python main.py --cpu` on Linux.
func cpuHost() Input {
	off, reserve := false, int64(400<<20)
	return Input{
		OS:           "linux",
		ShellEnviron: []string{"HOME=/home/op", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"},
		HostEnviron:  []string{"HOME=/home/op", "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "DO_NOT_TRACK=1"},
		Host: HostState{
			ComfyUIDirectory: "/opt/ComfyUI",
			UserDirectory:    "/opt/ComfyUI/user",
			Arguments: map[string]json.RawMessage{
				"cpu": json.RawMessage("true"), "reserve_vram": json.RawMessage("null"),
				"async_offload": json.RawMessage("null"), "fast": json.RawMessage(`["fp16_accumulation","autotune"]`),
				"verbose": json.RawMessage(`[]`), "cuda_malloc": json.RawMessage("false"),
				"disable_cuda_malloc": json.RawMessage("false"), "vram_headroom": json.RawMessage("0"),
			},
			Attention:    "sub_quad",
			PagerEnabled: &off, PagerVersion: "0.4.11", ReserveBytes: &reserve, VRAMState: "DISABLED",
		},
		EnvironmentVariables: map[string]string{"OMP_NUM_THREADS": "1"},
		Prefix:               "/home/op/.ce/envs/p", Backend: "uv",
		Worker: "0123456789abcdef0123456789abcdef",
	}
}

func values(reflection Reflection) map[string]string {
	table := make(map[string]string, len(reflection.Variables))
	for _, variable := range reflection.Variables {
		table[variable.Name] = variable.Value
	}
	return table
}

func withheldReason(reflection Reflection, name string, flag bool) string {
	for _, withheld := range reflection.Withheld {
		if withheld.Name == name && withheld.Flag == flag {
			return withheld.Reason
		}
	}
	return ""
}

func TestAHostOnTheProcessorGivesExactlyTheseVariables(t *testing.T) {
	t.Parallel()
	got := values(Plan(cpuHost()))
	want := map[string]string{
		"HOME": "/home/op", "LANG": "C.UTF-8", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1",
		"PATH":                          "/home/op/.ce/envs/p/bin:/usr/bin:/bin",
		"VIRTUAL_ENV":                   "/home/op/.ce/envs/p",
		"PYTHONNOUSERSITE":              "1",
		"PYTHONIOENCODING":              "utf-8:backslashreplace",
		"COMFYUI_BASE":                  "/opt/ComfyUI",
		"COMFYUI_USER_DIR":              "/opt/ComfyUI/user",
		"COMFYUI_ISOLATION_WORKER":      "1",
		"COMFY_SUPERVISOR_WORKER":       "0123456789abcdef0123456789abcdef",
		"COMFY_CPU":                     "1",
		"COMFY_ENV_WORKER_AIMDO":        "0",
		"COMFY_ENV_AIMDO_VERSION":       "0.4.11",
		"COMFY_ENV_AIMDO_NVML":          "1",
		"COMFY_ENV_AIMDO_HEADROOM":      "0",
		"COMFY_ENV_EXTRA_RESERVED_VRAM": "419430400",
		"COMFY_ENV_VRAM_STATE":          "DISABLED",
		"COMFY_ENV_HOST_LOG_LEVEL":      "20",
		"COMFY_ENV_HOST_ARGS": `{"async_offload":null,"attention":"sub_quad","cuda_malloc":false,` +
			`"disable_cuda_malloc":false,"fast":["autotune","fp16_accumulation"],"verbose":[]}`,
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("variables (-want +got):\n%s", difference)
	}
}

func TestEveryVariableNamesItsSource(t *testing.T) {
	t.Parallel()
	reflection := Plan(cpuHost())
	for name, want := range map[string]Source{
		"OMP_NUM_THREADS": FromManifest, "HOME": FromShell, "DO_NOT_TRACK": FromHost, "PYTHONNOUSERSITE": FromDefault,
		"COMFY_ENV_WORKER_AIMDO": FromHost, "COMFY_ENV_HOST_ARGS": FromHost, "PATH": FromShell,
	} {
		if variable, found := reflection.Lookup(name); !found || variable.Source != want {
			t.Errorf("%s: found %v from %q, want from %q", name, found, variable.Source, want)
		}
	}
	if _, found := reflection.Lookup("NOT_THERE"); found {
		t.Error("found a variable that nobody set")
	}
}

func TestThePackOutranksTheShellWhichOutranksTheHost(t *testing.T) {
	t.Parallel()
	on := true
	input := Input{OS: "linux", Host: HostState{PagerEnabled: &on}}
	check := func(wantValue string, wantSource Source, wantEnabled bool) {
		t.Helper()
		reflection := Plan(input)
		variable, _ := reflection.Lookup("COMFY_ENV_WORKER_AIMDO")
		if variable.Value != wantValue || variable.Source != wantSource || reflection.Pager.Enabled != wantEnabled ||
			reflection.Pager.Source != wantSource {
			t.Errorf("got %+v and %+v, want %q from %s, enabled %v", variable, reflection.Pager, wantValue, wantSource, wantEnabled)
		}
	}
	check("1", FromHost, true)
	input.HostEnviron = []string{"COMFY_ENV_WORKER_AIMDO=Off"}
	check("Off", FromShell, false)
	input.EnvironmentVariables = map[string]string{"COMFY_ENV_WORKER_AIMDO": "yes"}
	check("yes", FromManifest, true)
	variable, _ := Plan(input).Lookup("COMFY_ENV_WORKER_AIMDO")
	want := []Overridden{{"Off", FromShell}, {"1", FromHost}}
	if difference := cmp.Diff(want, variable.Overridden); difference != "" {
		t.Errorf("overridden values (-want +got):\n%s", difference)
	}
}

func TestAHostThatSaysNothingGivesNoPagerSignal(t *testing.T) {
	t.Parallel()
	reflection := Plan(Input{OS: "linux"})
	for _, variable := range reflection.Variables {
		if strings.HasPrefix(variable.Name, "COMFY_ENV_") || variable.Name == "COMFY_CPU" {
			t.Errorf("%s=%s without a word from the host", variable.Name, variable.Value)
		}
	}
	if reflection.Pager.Enabled || reflection.Pager.Source != FromDefault || reflection.Pager.Reason == "" {
		t.Errorf("pager is %+v, want off by default, with a reason", reflection.Pager)
	}
	if len(reflection.Flags) != 0 || len(reflection.Withheld) != 0 {
		t.Errorf("flags %v and withheld %v without a word from the host", reflection.Flags, reflection.Withheld)
	}
}

func TestOffIsSpelledInFourWays(t *testing.T) {
	t.Parallel()
	for value, off := range map[string]bool{
		"0": true, "false": true, "NO": true, " off ": true, "": true, "1": false, "true": false, "2": false, "aus": false,
	} {
		input := Input{OS: "linux", HostEnviron: []string{"COMFY_ENV_WORKER_AIMDO=" + value}}
		if got := Plan(input).Pager.Enabled; got == off {
			t.Errorf("COMFY_ENV_WORKER_AIMDO=%q: pager enabled is %v", value, got)
		}
	}
}

func TestHeadroomAndReserveCrossInBytes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ reserve, headroom, wantReserve, wantHeadroom string }{
		{"null", "0", "", "0"},
		{"0", "0.5", "0", "536870912"},
		{"1.5", "1e0", "1610612736", "1073741824"},
		{"-1", "0.1", "-1073741824", "107374182"},
		{`"two"`, "1e300", "", ""},
	} {
		got := values(Plan(Input{OS: "linux", Host: HostState{Arguments: map[string]json.RawMessage{
			"reserve_vram": json.RawMessage(test.reserve), "vram_headroom": json.RawMessage(test.headroom),
		}}}))
		if got["COMFY_ENV_AIMDO_SIMPLE_HEADROOM"] != test.wantReserve || got["COMFY_ENV_AIMDO_HEADROOM"] != test.wantHeadroom {
			t.Errorf("reserve %s, headroom %s: got %q and %q", test.reserve, test.headroom,
				got["COMFY_ENV_AIMDO_SIMPLE_HEADROOM"], got["COMFY_ENV_AIMDO_HEADROOM"])
		}
	}
	for _, reserve := range []int64{0, -5, 1 << 40} {
		variable, found := Plan(Input{OS: "linux", Host: HostState{ReserveBytes: &reserve}}).Lookup("COMFY_ENV_EXTRA_RESERVED_VRAM")
		if encoded, _ := json.Marshal(reserve); !found || variable.Value != string(encoded) {
			t.Errorf("a reserve of %d bytes crossed as %q", reserve, variable.Value)
		}
	}
}

func TestTheStateOfVRAMIsSetAtStart(t *testing.T) {
	t.Parallel()
	flag := func(name string) HostState {
		return HostState{Arguments: map[string]json.RawMessage{name: json.RawMessage("true")}}
	}
	for want, host := range map[string]HostState{
		"SHARED": {VRAMState: "SHARED", Arguments: flag("novram").Arguments}, "LOW_VRAM": flag("lowvram"),
		"NO_VRAM": flag("novram"), "HIGH_VRAM": flag("gpu_only"), "DISABLED": flag("cpu"), "": flag("fast_disk"),
	} {
		if got := values(Plan(Input{OS: "linux", Host: host}))["COMFY_ENV_VRAM_STATE"]; got != want {
			t.Errorf("%+v: state %q, want %q", host, got, want)
		}
	}
	reflection := Plan(Input{OS: "linux", Host: HostState{VRAMState: "ROOMY"}})
	if withheldReason(reflection, "COMFY_ENV_VRAM_STATE", false) == "" {
		t.Error("an unknown state was neither given on nor named")
	}
}

func TestWhatWouldBreakAWorkerIsKeptBackAndListed(t *testing.T) {
	t.Parallel()
	names := []string{
		"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONINSPECT", "PYTHONNOUSERSITE",
		"PYTHONIOENCODING", "VIRTUAL_ENV", "UV_PYTHON", "UV_INDEX_URL", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
		"PIXI_PROJECT_ROOT", "PLUGIN_MIN_PORT", "COMFY_SUPERVISOR_SOCKET", "COMFY_SUPERVISOR_WORKER",
		"COMFY_ENV_SERIALIZER_FILES", "__PYVENV_LAUNCHER__", "PYTHON_GIL",
	}
	input := Input{OS: "linux"}
	for _, name := range names {
		input.HostEnviron = append(input.HostEnviron, name+"=host's")
	}
	reflection := Plan(input)
	for _, name := range names {
		if variable, found := reflection.Lookup(name); found && variable.Value == "host's" {
			t.Errorf("%s went on to the worker", name)
		}
		if withheldReason(reflection, name, false) == "" {
			t.Errorf("%s is not listed", name)
		}
	}
	pack := Plan(Input{OS: "linux", EnvironmentVariables: map[string]string{
		"PYTHONHOME": "x", "PLUGIN_MIN_PORT": "1", "COMFY_SUPERVISOR_WORKER": "mine", "A=B": "x", "ZERO": "a\x00b", "": "x",
		"LONG": strings.Repeat("x", 128<<10), "PYTHONPATH": "lib", "COMFYUI_BASE": "kept where no host says better",
	}, Worker: "id"})
	got := values(pack)
	if got["COMFY_SUPERVISOR_WORKER"] != "id" || got["PYTHONPATH"] != "lib" {
		t.Errorf("worker id %q, PYTHONPATH %q", got["COMFY_SUPERVISOR_WORKER"], got["PYTHONPATH"])
	}
	for _, name := range []string{"PYTHONHOME", "PLUGIN_MIN_PORT", "COMFY_SUPERVISOR_WORKER", "A=B", "ZERO", "", "LONG"} {
		if withheldReason(pack, name, false) == "" {
			t.Errorf("the pack's %q is not listed", name)
		}
		if _, found := got[name]; found && name != "COMFY_SUPERVISOR_WORKER" {
			t.Errorf("the pack's %q went on to the worker", name)
		}
	}
}

func TestTheHostsOwnFoldersOutrankWhatTheShellSaysOfThem(t *testing.T) {
	t.Parallel()
	got := values(Plan(Input{
		OS: "linux", HostEnviron: []string{"COMFYUI_BASE=/elsewhere"},
		Host:                 HostState{ComfyUIDirectory: "/opt/ComfyUI"},
		EnvironmentVariables: map[string]string{"COMFYUI_BASE": "/wrong"},
	}))
	if got["COMFYUI_BASE"] != "/opt/ComfyUI" {
		t.Errorf("COMFYUI_BASE is %q", got["COMFYUI_BASE"])
	}
}

func TestPathStaysWholeOnEveryPlatform(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ os, backend, prefix, entry, wantName, want string }{
		{"linux", "uv", "/e/p", "PATH=/usr/bin::/opt/ffmpeg", "PATH", "/e/p/bin:/usr/bin::/opt/ffmpeg"},
		{"darwin", "pixi", "/e/p/", "PATH=/usr/bin", "PATH", "/e/p/bin:/usr/bin"},
		{"windows", "uv", `C:\e\p`, `Path=C:\Windows;C:\ffmpeg\bin`, "Path", `C:\e\p\Scripts;C:\Windows;C:\ffmpeg\bin`},
		{
			"windows", "pixi", `C:\e\p\`, `PATH=C:\Windows`, "PATH",
			`C:\e\p;C:\e\p\Library\mingw-w64\bin;C:\e\p\Library\usr\bin;C:\e\p\Library\bin;C:\e\p\Scripts;C:\e\p\bin;C:\Windows`,
		},
		{"linux", "uv", "/e/p", "OTHER=1", "PATH", "/e/p/bin"},
	} {
		reflection := Plan(Input{OS: test.os, Backend: test.backend, Prefix: test.prefix, HostEnviron: []string{test.entry}})
		if variable, _ := reflection.Lookup(test.wantName); variable.Value != test.want {
			t.Errorf("%+v: got %q", test, variable.Value)
		}
	}
}

func TestNamesHaveNoCaseOnWindows(t *testing.T) {
	t.Parallel()
	reflection := Plan(Input{
		OS: "windows", HostEnviron: []string{`=C:=C:\work`, "Omp_Num_Threads=8", "PythonHome=x", "SystemRoot=C:\\Windows"},
		EnvironmentVariables: map[string]string{"OMP_NUM_THREADS": "1", "pythonhome": "y"},
	})
	got := values(reflection)
	want := map[string]string{
		"Omp_Num_Threads": "1", "SystemRoot": `C:\Windows`, "KMP_DUPLICATE_LIB_OK": "TRUE", "COMFYUI_ISOLATION_WORKER": "1",
		"PYTHONNOUSERSITE": "1", "PYTHONIOENCODING": "utf-8:backslashreplace",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("variables (-want +got):\n%s", difference)
	}
	if withheldReason(reflection, "PythonHome", false) == "" || withheldReason(reflection, "pythonhome", false) == "" {
		t.Errorf("withheld is %+v, want PYTHONHOME of the host and of the pack in it", reflection.Withheld)
	}
}

func TestActivationExpandsReferencesAndYieldsToEnvVars(t *testing.T) {
	t.Parallel()
	got := values(Plan(Input{
		OS: "linux", Prefix: "/e/p", Backend: "pixi",
		HostEnviron: []string{"HOME=/home/op", "LIBS=/base"},
		Activation: map[string]string{
			"DATA": "$HOME/data", "LIBS": "${CONDA_PREFIX}/lib:$LIBS", "BOTH": "$DATA and $NOBODY.", "LOOP": "$KNOT", "KNOT": "$LOOP",
			"MODE": "activation",
		},
		EnvironmentVariables: map[string]string{"MODE": "$HOME stays as written"},
	}))
	for name, want := range map[string]string{
		"DATA": "/home/op/data", "LIBS": "/e/p/lib:/base", "BOTH": "/home/op/data and .", "LOOP": "", "KNOT": "",
		"MODE": "$HOME stays as written", "CONDA_PREFIX": "/e/p",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	windows := values(Plan(Input{
		OS: "windows", HostEnviron: []string{"UserProfile=C:\\op"}, Activation: map[string]string{"DATA": `%USERPROFILE%\data`},
	}))
	if windows["DATA"] != `C:\op\data` {
		t.Errorf("on Windows DATA is %q", windows["DATA"])
	}
}

func TestWhatActivationScriptsSetIsBelowWhatTheManifestSaysAndTheirFoldersAreOnPath(t *testing.T) {
	t.Parallel()
	reflection := Plan(Input{
		OS: "linux", Prefix: "/e/p", Backend: "uv", HostEnviron: []string{"PATH=/usr/bin", "MODE=host", "ROOT=/h"},
		Activated:            map[string]string{"MODE": "scripts", "ROOT": "/opt/$HOME", "TONE": "scripts", "PYTHONHOME": "/x"},
		Activation:           map[string]string{"DATA": "$ROOT/data", "TONE": "table"},
		EnvironmentVariables: map[string]string{"TONE": "variables"},
		FirstFolders:         []string{"/opt/first", "/with:colon", ""}, LastFolders: []string{"/opt/last"},
	})
	got := values(reflection)
	for name, want := range map[string]string{
		"MODE": "scripts", "ROOT": "/opt/$HOME", "DATA": "/opt/$HOME/data", "TONE": "variables", "VIRTUAL_ENV": "/e/p",
		"PATH": "/opt/first:/e/p/bin:/usr/bin:/opt/last",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if withheldReason(reflection, "PYTHONHOME", false) == "" {
		t.Error("scripts may not set PYTHONHOME either")
	}
}

func TestSerializerFilesAreAListOfTheirPlatform(t *testing.T) {
	t.Parallel()
	for os, want := range map[string]string{"linux": "a.py:b.py", "windows": "a.py;b.py"} {
		if got := values(Plan(Input{OS: os, SerializerFiles: []string{"a.py", "b.py"}}))["COMFY_ENV_SERIALIZER_FILES"]; got != want {
			t.Errorf("on %s: %q, want %q", os, got, want)
		}
	}
}

func TestOfDoubledVariablesTheFirstCounts(t *testing.T) {
	t.Parallel()
	if got := values(Plan(Input{OS: "linux", HostEnviron: []string{"X=1", "X=2", "broken"}})); got["X"] != "1" {
		t.Errorf("X is %q", got["X"])
	}
}

func TestThePlanPrintsEveryRow(t *testing.T) {
	t.Parallel()
	input := cpuHost()
	input.HostEnviron = append(input.HostEnviron, "PYTHONHOME=/usr", "OMP_NUM_THREADS=8")
	reflection := Plan(input)
	rows := reflection.Rows()
	if len(rows) != len(reflection.Variables)+len(reflection.Flags)+len(reflection.Withheld) {
		t.Errorf("%d rows for %d variables, %d flags, %d withheld", len(rows), len(reflection.Variables), len(reflection.Flags), len(reflection.Withheld))
	}
	for _, want := range []Row{
		{RowVariable, "OMP_NUM_THREADS", "1", FromManifest, `[env_vars]; instead of "8" from host`},
		{RowFlag, "async_offload", "null", FromHost, ""},
		{RowWithheldVariable, "PYTHONHOME", "", FromHost, reasonOtherPython},
		{RowWithheldFlag, "cpu", "", FromHost, "COMFY_CPU carries it"},
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in:\n%v", want, rows)
		}
	}
	if _, err := json.Marshal(reflection); err != nil {
		t.Errorf("the plan does not encode: %v", err)
	}
}
