package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// write makes a settings file and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t *testing.T, sources Sources) *Settings {
	t.Helper()
	sources.Environ = append([]string{"HOME=" + t.TempDir()}, sources.Environ...)
	s, err := Load(sources)
	if err != nil {
		t.Fatalf("the settings were refused: %v", err)
	}
	return s
}

func TestEachSourceOutranksTheNext(t *testing.T) {
	file := write(t, "idle_release = \"3s\"\nreap = 4\ncall_silence = \"5m\"\n")
	all := Sources{
		File:    file,
		Environ: []string{"COMFY_SUPERVISOR_IDLE_RELEASE=2s", "COMFY_SUPERVISOR_REAP=3s"},
		Flags:   map[string]string{"idle-release": "1s"},
	}
	s := load(t, all)
	for _, c := range []struct {
		name   string
		got    Value[time.Duration]
		value  time.Duration
		source string
	}{
		{"a flag beats a variable and the file", s.IdleRelease, time.Second, "flag --idle-release"},
		{"a variable beats the file", s.Reap, 3 * time.Second, "COMFY_SUPERVISOR_REAP"},
		{"the file beats the default", s.CallSilence, 5 * time.Minute, file + ":3"},
		{"what nobody sets is the default", s.Sweep, 10 * time.Second, "default"},
	} {
		if c.got.Value != c.value || c.got.Source != c.source {
			t.Errorf("%s: got %v from %q, want %v from %q", c.name, c.got.Value, c.got.Source, c.value, c.source)
		}
	}
}

func TestEveryDefaultIsWhatTheDesignSays(t *testing.T) {
	s := load(t, Sources{})
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"idle_release", s.IdleRelease.Value, 60 * time.Second}, {"reap", s.Reap.Value, 30 * time.Minute},
		{"sweep", s.Sweep.Value, 10 * time.Second}, {"call_silence", s.CallSilence.Value, 600 * time.Second},
		{"start", s.Start.Value, 120 * time.Second}, {"reconnect", s.Reconnect.Value, 10 * time.Second},
		{"launcher_orphan", s.LauncherOrphan.Value, 10 * time.Second}, {"stop_grace", s.StopGrace.Value, 5 * time.Second},
		{"health_check_timeout", s.HealthCheckTimeout.Value, manifest.DefaultHealthCheckTimeout},
		{"call_deadline", s.CallDeadline.Value, time.Duration(0)}, {"cancel_deadline", s.CancelDeadline.Value, time.Duration(0)},
		{"scan", s.Scan.Value, 5 * time.Minute}, {"keep_scanned", s.KeepScanned.Value, "no"},
		{"crash_window", s.CrashWindow.Value, 10 * time.Minute},
		{"crash_count", s.CrashCount.Value, int64(5)}, {"memory_file_quota", s.MemoryFileQuota.Value, int64(0)},
		{"memory_file_pool", s.MemoryFilePool.Value, int64(512 << 20)}, {"backend", s.Backend.Value, "auto"},
		{"fallback", s.Fallback.Value, "error"}, {"inference", s.Inference.Value, "inference_mode"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestEverySettingCanBeGivenByEachOfItsSources(t *testing.T) {
	given := map[Type]string{Folder: "/given/folder", File: "/given/file", Text: "given", Duration: "77s", Size: "7MiB", Number: "7"}
	shown := map[Type]string{Duration: "1m17s"}
	for i := range Table {
		setting := &Table[i]
		text := given[setting.Type]
		if setting.Type == Choice {
			text = setting.Values[len(setting.Values)-1]
		}
		want := text
		if other, ok := shown[setting.Type]; ok {
			want = other
		}
		if (setting.Type == Folder || setting.Type == File) && filepath.Separator != '/' {
			want, _ = filepath.Abs(text)
		}
		check := func(sources Sources, source string) {
			t.Helper()
			s := load(t, sources)
			rows := s.Rows()
			at := slices.IndexFunc(rows, func(r Row) bool { return r.Name == setting.Name })
			if at < 0 || rows[at].Value != want || !strings.HasPrefix(rows[at].Source, source) {
				t.Errorf("%s given by %s: the row is %+v, want value %q", setting.Name, source, rows[max(at, 0)], want)
			}
		}
		if setting.Flag != "" {
			check(Sources{Flags: map[string]string{setting.Flag: text}}, "flag --"+setting.Flag)
		}
		for _, variable := range setting.Variables {
			check(Sources{Environ: []string{variable + "=" + text}}, variable)
		}
		file := write(t, setting.Name+" = '"+text+"'\n")
		check(Sources{File: file}, file+":1")
	}
}

func TestTheExamplesOfTheTableAreAccepted(t *testing.T) {
	for i := range Table {
		file := write(t, Table[i].Name+" = "+Table[i].Example+"\n")
		if _, err := Load(Sources{File: file, Environ: []string{"HOME=/home/x"}}); err != nil {
			t.Errorf("%s = %s is refused: %v", Table[i].Name, Table[i].Example, err)
		}
	}
}

func TestAFileWithMistakesIsRefusedWithEveryPlace(t *testing.T) {
	file := write(t, `idle_relase = "60s"
reap = "soon"
memory_file_pool = "12 parsecs"
backend = "poetry"

[environments."sam3-nodes"]
call_silense = "10m"

[environments."sam3-nodes".memory]
vram = "150%"
`)
	_, err := Load(Sources{File: file, Environ: []string{"HOME=/home/x"}})
	var failure *FileError
	if !errors.As(err, &failure) {
		t.Fatalf("the error is %v, not a FileError", err)
	}
	type place struct {
		line, column int
		fix          string
	}
	want := map[place]bool{
		{1, 1, "write idle_release"}: true, {2, 8, `write reap = "30m"`}: true, {3, 20, `write memory_file_pool = "512MiB"`}: true,
		{4, 11, `write backend = "auto"`}: true, {7, 1, "write call_silence"}: true, {10, 9, `write vram = "8GiB"`}: true,
	}
	for _, d := range failure.Diagnostics {
		got := place{d.Line, d.Column, d.Fix}
		if !want[got] {
			t.Errorf("unexpected: line %d, column %d: %s; %s", d.Line, d.Column, d.Message, d.Fix)
		}
		delete(want, got)
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
	for _, part := range []string{file, "line 1, column 1", "line 10, column 9", "write idle_release"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
}

func TestAnEnvironmentsSectionBeatsItsManifestAndTheGeneralSetting(t *testing.T) {
	file := write(t, "call_silence = \"1m\"\nreap = \"2m\"\nstart = \"3m\"\n\n[environments.sam3-nodes]\ncall_silence = \"4m\"\nmemory = { vram = \"8GiB\", pinned_ram = \"40%\" }\n")
	s := load(t, Sources{File: file})
	fromManifest, vram := 5*time.Minute, manifest.Amount{Bytes: 1 << 30}
	declared := manifest.Options{CallSilence: &fromManifest, Reap: &fromManifest, Memory: manifest.MemoryOptions{VRAM: &vram, RAM: &vram}}
	limits := s.Limits("sam3-nodes", declared)
	if *limits.CallSilence != 4*time.Minute || *limits.Reap != fromManifest || *limits.Start != 3*time.Minute {
		t.Errorf("call_silence %v, reap %v, start %v; want 4m, 5m, 3m", *limits.CallSilence, *limits.Reap, *limits.Start)
	}
	if limits.Memory.VRAM.Bytes != 8<<30 || limits.Memory.PinnedRAM.Percent != 40 || limits.Memory.RAM.Bytes != 1<<30 {
		t.Errorf("the caps are %v, %v, %v; want 8GiB, 40%%, 1GiB", limits.Memory.VRAM, limits.Memory.PinnedRAM, limits.Memory.RAM)
	}
	if *limits.StopGrace != 5*time.Second || *limits.CallDeadline != 0 || *limits.Fallback != "error" {
		t.Error("what nobody sets is not the default")
	}
	for option, want := range map[string]string{"call_silence": file + ":5", "reap": "manifest", "start": file + ":3", "stop_grace": "default", "memory.vram": file + ":5", "memory.ram": "manifest"} {
		if got := s.LimitSource("sam3-nodes", option, declared); got != want {
			t.Errorf("the source of %s is %q, want %q", option, got, want)
		}
	}
	if other := s.Limits("other", manifest.Options{}); *other.CallSilence != time.Minute || other.Memory.VRAM != nil {
		t.Error("one environment's section holds for another")
	}
}

func TestFoldersFollowEachSystemsCustoms(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip("the paths of this table are those of Unix")
	}
	xdg := newEnviron([]string{"XDG_RUNTIME_DIR=/run/user/7", "XDG_STATE_HOME=/s", "XDG_CACHE_HOME=/c", "XDG_CONFIG_HOME=/f"})
	for _, c := range []struct {
		name, system string
		environ      environ
		want         places
	}{
		{"Linux with XDG", "linux", xdg, places{"/h", "/f/comfy-supervisor", "/run/user/7/comfy-supervisor", "/s/comfy-supervisor", "/c/comfy-supervisor", "/h/.ce"}},
		{"Linux without XDG", "linux", environ{}, places{"/h", "/h/.config/comfy-supervisor", "", "/h/.local/state/comfy-supervisor", "/h/.cache/comfy-supervisor", "/h/.ce"}},
		{"relative XDG paths do not count", "linux", newEnviron([]string{"XDG_STATE_HOME=state", "XDG_RUNTIME_DIR=."}),
			places{"/h", "/h/.config/comfy-supervisor", "", "/h/.local/state/comfy-supervisor", "/h/.cache/comfy-supervisor", "/h/.ce"}},
		{"macOS", "darwin", environ{}, places{"/h", "/h/Library/Application Support/comfy-supervisor", "", "/h/Library/Application Support/comfy-supervisor", "/h/Library/Caches/comfy-supervisor", "/h/.ce"}},
		{"Windows", "windows", newEnviron([]string{"LOCALAPPDATA=/l", "APPDATA=/r"}), places{"/h", "/r/comfy-supervisor", "", "/l/comfy-supervisor", "/l/comfy-supervisor/cache", "/l/Programs/comfy-env"}},
		{"Windows as a service", "windows", newEnviron([]string{"LOCALAPPDATA=/W/System32/config/systemprofile/AppData/Local"}),
			places{"/h", "/h/AppData/Roaming/comfy-supervisor", "", "/h/AppData/Local/comfy-supervisor", "/h/AppData/Local/comfy-supervisor/cache", "/h/AppData/Local/Programs/comfy-env"}},
	} {
		if got := defaultPlaces(c.system, "/h", c.environ); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestTheSocketAndTheRuntimeFolderFollowTheFoldersTheyDefaultTo(t *testing.T) {
	base := t.TempDir()
	s := load(t, Sources{Environ: []string{"COMFY_SUPERVISOR_STATE_DIR=" + filepath.Join(base, "s")}})
	if want := filepath.Join(base, "s", "run", "supervisor.sock"); s.Socket.Value != want {
		t.Errorf("without XDG_RUNTIME_DIR the socket is %s, want %s", s.Socket.Value, want)
	}
	s = load(t, Sources{Environ: []string{"COMFY_SUPERVISOR_RUNTIME_DIR=" + filepath.Join(base, "r")}})
	if want := filepath.Join(base, "r", "supervisor.sock"); s.Socket.Value != want {
		t.Errorf("with a runtime folder the socket is %s, want %s", s.Socket.Value, want)
	}
	s = load(t, Sources{Environ: []string{"COMFY_SUPERVISOR_SOCKET=" + filepath.Join(base, "x.sock")}})
	if want := filepath.Join(base, "x.sock"); s.Socket.Value != want {
		t.Errorf("a given socket is %s, want %s", s.Socket.Value, want)
	}
}

func TestRelativePathsAndTheHomeFolderBecomeAbsolute(t *testing.T) {
	home := t.TempDir()
	file := write(t, "uv = \"tools/uv\"\nstate_directory = \"~/state\"\n")
	s := load(t, Sources{File: file, Environ: []string{"HOME=" + home, "USERPROFILE=" + home, "COMFY_ENV_ROOT=~/envs"}, Flags: map[string]string{"cache-dir": "cache"}})
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, got, want string }{
		{"the file's paths start where the file lies", s.UV.Value, filepath.Join(filepath.Dir(file), "tools", "uv")},
		{"~ is the home folder in the file", s.StateDirectory.Value, filepath.Join(home, "state")},
		{"~ is the home folder in a variable", s.EnvironmentRoot.Value, filepath.Join(home, "envs")},
		{"a flag's path starts where the program runs", s.CacheDirectory.Value, filepath.Join(working, "cache")},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}
}

func TestTheFileInTheConfigurationFolderIsReadWhenItIsThere(t *testing.T) {
	home := t.TempDir()
	environ := []string{"HOME=" + home, "USERPROFILE=" + home, "XDG_CONFIG_HOME=" + home, "APPDATA=" + home}
	s, err := Load(Sources{Environ: environ})
	if err != nil || s.File != "" {
		t.Fatalf("without a file: %q, %v", s.File, err)
	}
	l := loader{environ: newEnviron(environ), settings: &Settings{}}
	if err := l.folders(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.place.configuration, FileName)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("reap = \"7m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Load(Sources{Environ: environ})
	if err != nil || s.File != file || s.Reap.Value != 7*time.Minute {
		t.Errorf("file %q, reap %v, error %v", s.File, s.Reap.Value, err)
	}
	if _, err := Load(Sources{Environ: environ, File: filepath.Join(home, "missing.toml")}); err == nil {
		t.Error("a file that was asked for and is missing is no error")
	}
	if _, err := Load(Sources{Environ: append(environ, "COMFY_SUPERVISOR_SETTINGS="+home)}); err == nil {
		t.Error("a folder in the place of the file is no error")
	}
}

func TestBadFlagsAndVariablesAreErrorsThatNameThem(t *testing.T) {
	_, err := Load(Sources{Environ: []string{"HOME=/h", "COMFY_SUPERVISOR_REAP=-3s", "COMFY_SUPERVISOR_SWEEP=0", "COMFY_SUPERVISOR_CRASH_COUNT=many"},
		Flags: map[string]string{"backend": "pip", "no-such-flag": "1"}})
	if err == nil {
		t.Fatal("nothing was refused")
	}
	for _, part := range []string{"COMFY_SUPERVISOR_REAP", "COMFY_SUPERVISOR_SWEEP", "COMFY_SUPERVISOR_CRASH_COUNT", "--backend", "auto, uv, pixi", "--no-such-flag"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s:\n%v", part, err)
		}
	}
}

func TestVariablesThatOnlyLookLikeSettingsAreWarnedOf(t *testing.T) {
	s := load(t, Sources{Environ: []string{"COMFY_SUPERVISOR_IDLE_RELASE=3s", "COMFY_SUPERVISOR_WORKER=abc", "COMFY_ENV_ISOLATE=0", "COMFY_SUPERVISOR_REAP="}})
	if len(s.Warnings) != 2 || !strings.Contains(s.Warnings[0], "COMFY_ENV_ISOLATE") || !strings.Contains(s.Warnings[1], "COMFY_SUPERVISOR_IDLE_RELEASE is") {
		t.Errorf("the warnings are %q", s.Warnings)
	}
	if !s.Reap.IsDefault() {
		t.Error("an empty variable counts as a value")
	}
}
