package settings

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// Type is what a setting's text is read as.
type Type string

// The types of settings.
const (
	Folder   Type = "folder"
	File     Type = "file"
	Text     Type = "text"
	Choice   Type = "choice"
	Duration Type = "duration" // "90s", "10m"; a bare number is seconds; 0 switches off
	Size     Type = "size"     // "8GiB"; 0
	Number   Type = "number"
)

// Setting describes one setting. Table is the one place that lists them.
type Setting struct {
	Name      string   // in the settings file
	Variables []string // environment variables, the first that is set counts
	Flag      string   // without the dashes
	Type      Type
	Values    []string // of a choice
	Default   string   // as text; of folders: in words
	Example   string   // as TOML
	Doc       string

	path   func(*loader) string // the default of a folder or file
	text1  func(*Settings) *Value[string]
	span   func(*Settings) *Value[time.Duration]
	number func(*Settings) *Value[int64]
	least  int64 // of a duration in nanoseconds, a size or a number
}

// Table lists every setting, in the order in which they are shown.
var Table = []Setting{
	{Name: "runtime_directory", Variables: []string{"COMFY_SUPERVISOR_RUNTIME_DIR"}, Flag: "runtime-dir", Type: Folder,
		Default: "$XDG_RUNTIME_DIR/comfy-supervisor, else run in the state folder", Example: `"/run/user/1000/comfy-supervisor"`,
		Doc:  "folder of the socket, the lock and the worker records",
		path: func(l *loader) string { return l.place.runtime }, text1: func(s *Settings) *Value[string] { return &s.RuntimeDirectory }},
	{Name: "state_directory", Variables: []string{"COMFY_SUPERVISOR_STATE_DIR"}, Flag: "state-dir", Type: Folder,
		Default: "comfy-supervisor in the user's state folder", Example: `"/var/lib/comfy-supervisor"`, Doc: "folder of logs and recorded facts",
		path: func(l *loader) string { return l.place.state }, text1: func(s *Settings) *Value[string] { return &s.StateDirectory }},
	{Name: "cache_directory", Variables: []string{"COMFY_SUPERVISOR_CACHE_DIR"}, Flag: "cache-dir", Type: Folder,
		Default: "comfy-supervisor in the user's cache folder", Example: `"/var/cache/comfy-supervisor"`, Doc: "folder of what can be made again",
		path: func(l *loader) string { return l.place.cache }, text1: func(s *Settings) *Value[string] { return &s.CacheDirectory }},
	{Name: "environment_root", Variables: []string{"COMFY_SUPERVISOR_ENVIRONMENT_ROOT", "COMFY_ENV_ROOT"}, Flag: "environment-root", Type: Folder,
		Default: ".ce in the home folder; on Windows Programs\\comfy-env in the local application data", Example: `"/data/ce"`,
		Doc:  "folder of all environments; an environment takes 6 to 11 GB",
		path: func(l *loader) string { return l.place.environments }, text1: func(s *Settings) *Value[string] { return &s.EnvironmentRoot }},
	{Name: "socket", Variables: []string{"COMFY_SUPERVISOR_SOCKET"}, Flag: "socket", Type: File,
		Default: "supervisor.sock in the runtime folder", Example: `"/run/user/1000/comfy-supervisor/supervisor.sock"`,
		Doc: "where the supervisor listens", text1: func(s *Settings) *Value[string] { return &s.Socket }},
	{Name: "binary", Variables: []string{"COMFY_SUPERVISOR_BINARY"}, Type: File, Default: "", Example: `"/usr/local/bin/comfy-supervisor"`,
		Doc: "the program that hosts start a supervisor from", text1: func(s *Settings) *Value[string] { return &s.Binary }},
	{Name: "host_facts", Variables: []string{"COMFY_SUPERVISOR_HOST_FACTS"}, Flag: "host-facts", Type: File, Default: "", Example: `"host.json"`,
		Doc: "JSON file with the facts of a host that is not on this machine", text1: func(s *Settings) *Value[string] { return &s.HostFacts }},
	{Name: "uv", Variables: []string{"COMFY_SUPERVISOR_UV"}, Flag: "uv", Type: File, Default: "", Example: `"/usr/local/bin/uv"`,
		Doc: "path of uv; otherwise it is looked for, and fetched when there is none", text1: func(s *Settings) *Value[string] { return &s.UV }},
	{Name: "pixi", Variables: []string{"COMFY_SUPERVISOR_PIXI"}, Flag: "pixi", Type: File, Default: "", Example: `"/usr/local/bin/pixi"`,
		Doc: "path of pixi; otherwise it is looked for, and fetched when there is none", text1: func(s *Settings) *Value[string] { return &s.Pixi }},
	{Name: "nvml_library", Variables: []string{"COMFY_SUPERVISOR_NVML_LIBRARY"}, Type: Text, Default: "", Example: `"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"`,
		Doc: "the NVML library to read cards with; otherwise the system's", text1: func(s *Settings) *Value[string] { return &s.NVMLLibrary }},
	{Name: "nvml_pids", Variables: []string{"COMFY_SUPERVISOR_NVML_PIDS"}, Type: Choice, Values: []string{"auto", "ours"}, Default: "auto", Example: `"ours"`,
		Doc:   "whether the process IDs that NVML tells are those of the supervisor's own PID namespace; auto: only outside containers",
		text1: func(s *Settings) *Value[string] { return &s.NVMLPIDs }},
	{Name: "end_stuck", Variables: []string{"COMFY_SUPERVISOR_END_STUCK"}, Type: Choice, Values: []string{"never", "when_tight", "always"}, Default: "when_tight",
		Example: `"when_tight"`, Doc: "when an idle worker's process ends that keeps more than 512 MiB of a card after giving everything back",
		text1: func(s *Settings) *Value[string] { return &s.EndStuck }},

	{Name: "backend", Variables: []string{"COMFY_SUPERVISOR_BACKEND"}, Flag: "backend", Type: Choice, Values: []string{"auto", "uv", "pixi"}, Default: "auto", Example: `"auto"`,
		Doc: "what builds environments; auto takes uv unless a manifest needs conda", text1: func(s *Settings) *Value[string] { return &s.Backend }},
	{Name: "torch_index", Variables: []string{"COMFY_SUPERVISOR_TORCH_INDEX"}, Type: Text, Default: "", Example: `"https://mirror.example/whl"`,
		Doc:   `base of the torch project's indexes; "{build}" in it stands for the build kind, "default" means the default index`,
		text1: func(s *Settings) *Value[string] { return &s.TorchIndex }},
	{Name: "cuda_wheels_index", Variables: []string{"COMFY_SUPERVISOR_CUDA_WHEELS_INDEX", "COMFY_ENV_CUDA_WHEELS_INDEX"}, Type: Text,
		Default: "", Example: `"https://mirror.example/cuda-wheels/"`, Doc: "simple index of the packages of [cuda]",
		text1: func(s *Settings) *Value[string] { return &s.CUDAWheelsIndex }},
	{Name: "pixi_releases", Variables: []string{"COMFY_SUPERVISOR_PIXI_RELEASES"}, Type: Text, Default: "", Example: `"https://mirror.example/pixi"`,
		Doc: "where pixi's release archives lie", text1: func(s *Settings) *Value[string] { return &s.PixiReleases }},
	{Name: "fallback", Variables: []string{"COMFY_SUPERVISOR_FALLBACK"}, Flag: "fallback", Type: Choice, Values: []string{"error", "host"}, Default: "error", Example: `"error"`,
		Doc: "what happens to a pack's nodes when its environment is not built or is another stack's", text1: func(s *Settings) *Value[string] { return &s.Fallback }},
	{Name: "keep_scanned", Variables: []string{"COMFY_SUPERVISOR_KEEP_SCANNED"}, Type: Choice, Values: []string{"no", "yes"}, Default: "no", Example: `"yes"`,
		Doc: "whether the worker that described a pack goes on running for the pack's first call", text1: func(s *Settings) *Value[string] { return &s.KeepScanned }},
	{Name: "inference", Variables: []string{"COMFY_SUPERVISOR_INFERENCE"}, Type: Choice, Values: []string{manifest.InferenceMode, manifest.NoGrad, manifest.InferenceOff},
		Default: manifest.InferenceMode, Example: `"inference_mode"`, Doc: "what surrounds synchronous node functions, as far as torch is there",
		text1: func(s *Settings) *Value[string] { return &s.Inference }},
	{Name: "log_level", Variables: []string{"COMFY_SUPERVISOR_LOG_LEVEL"}, Flag: "log-level", Type: Choice, Values: []string{"trace", "debug", "info", "warn", "error"}, Default: "info",
		Example: `"info"`, Doc: "how much the supervisor and its launchers log", text1: func(s *Settings) *Value[string] { return &s.LogLevel }},

	{Name: "start", Variables: []string{"COMFY_SUPERVISOR_START"}, Flag: "start", Type: Duration, Default: "120s", Example: `"120s"`,
		Doc: "how long a worker may take until it is ready", span: func(s *Settings) *Value[time.Duration] { return &s.Start }},
	{Name: "scan", Variables: []string{"COMFY_SUPERVISOR_SCAN"}, Type: Duration, Default: "300s", Example: `"10m"`, least: int64(time.Second),
		Doc: "how long ComfyUI's start may wait for a pack to be imported and described", span: func(s *Settings) *Value[time.Duration] { return &s.Scan }},
	{Name: "health_check_timeout", Variables: []string{"COMFY_SUPERVISOR_HEALTH_CHECK_TIMEOUT"}, Type: Duration, Default: "5s", Example: `"5s"`, least: int64(time.Millisecond),
		Doc: "how long a worker that was idle for a minute may take to answer a ping before its next call", span: func(s *Settings) *Value[time.Duration] { return &s.HealthCheckTimeout }},
	{Name: "call_silence", Variables: []string{"COMFY_SUPERVISOR_CALL_SILENCE"}, Flag: "call-silence", Type: Duration, Default: "600s", Example: `"10m"`,
		Doc: "how long a call may be without a sign of progress", span: func(s *Settings) *Value[time.Duration] { return &s.CallSilence }},
	{Name: "call_deadline", Variables: []string{"COMFY_SUPERVISOR_CALL_DEADLINE"}, Type: Duration, Default: "0s", Example: `"1h"`,
		Doc: "how long a call may take at all", span: func(s *Settings) *Value[time.Duration] { return &s.CallDeadline }},
	{Name: "cancel_deadline", Variables: []string{"COMFY_SUPERVISOR_CANCEL_DEADLINE"}, Type: Duration, Default: "0s", Example: `"30s"`,
		Doc: "how long a cancelled call may go on until its worker is killed; 0: as long as it likes", span: func(s *Settings) *Value[time.Duration] { return &s.CancelDeadline }},
	{Name: "stop_grace", Variables: []string{"COMFY_SUPERVISOR_STOP_GRACE"}, Flag: "stop-grace", Type: Duration, Default: "5s", Example: `"5s"`,
		Doc: "how long a worker may take to stop by itself", span: func(s *Settings) *Value[time.Duration] { return &s.StopGrace }},
	{Name: "idle_release", Variables: []string{"COMFY_SUPERVISOR_IDLE_RELEASE"}, Flag: "idle-release", Type: Duration, Default: "60s", Example: `"60s"`,
		Doc: "idle time after which a worker gives its memory back", span: func(s *Settings) *Value[time.Duration] { return &s.IdleRelease }},
	{Name: "reap", Variables: []string{"COMFY_SUPERVISOR_REAP"}, Flag: "reap", Type: Duration, Default: "30m", Example: `"30m"`,
		Doc: "idle time after which a worker's process ends", span: func(s *Settings) *Value[time.Duration] { return &s.Reap }},
	{Name: "sweep", Variables: []string{"COMFY_SUPERVISOR_SWEEP"}, Type: Duration, Default: "10s", Example: `"10s"`, least: int64(100 * time.Millisecond),
		Doc: "how often idle workers are looked for", span: func(s *Settings) *Value[time.Duration] { return &s.Sweep }},
	{Name: "reconnect", Variables: []string{"COMFY_SUPERVISOR_RECONNECT"}, Type: Duration, Default: "10s", Example: `"10s"`,
		Doc: "how long a host without a connection may take to come back", span: func(s *Settings) *Value[time.Duration] { return &s.Reconnect }},
	{Name: "launcher_orphan", Variables: []string{"COMFY_SUPERVISOR_LAUNCHER_ORPHAN"}, Type: Duration, Default: "10s", Example: `"10s"`,
		Doc: "how long workers outlive a supervisor that disappeared", span: func(s *Settings) *Value[time.Duration] { return &s.LauncherOrphan }},
	{Name: "crash_count", Variables: []string{"COMFY_SUPERVISOR_CRASH_COUNT"}, Type: Number, Default: "5", Example: "5",
		Doc: "crashes within the window that quarantine an environment; 0: never", number: func(s *Settings) *Value[int64] { return &s.CrashCount }},
	{Name: "crash_window", Variables: []string{"COMFY_SUPERVISOR_CRASH_WINDOW"}, Type: Duration, Default: "10m", Example: `"10m"`,
		Doc: "the time in which crashes are counted", span: func(s *Settings) *Value[time.Duration] { return &s.CrashWindow }},

	{Name: "memory_file_quota", Variables: []string{"COMFY_SUPERVISOR_MEMORY_FILE_QUOTA"}, Flag: "memory-file-quota", Type: Size, Default: "0", Example: `"16GiB"`,
		Doc:    "bytes of all memory files together; 0: half of the RAM available at start",
		number: func(s *Settings) *Value[int64] { return &s.MemoryFileQuota }},
	{Name: "memory_file_pool", Variables: []string{"COMFY_SUPERVISOR_MEMORY_FILE_POOL"}, Type: Size, Default: "512MiB", Example: `"512MiB"`,
		Doc:    "bytes of memory files that one process keeps for its next values",
		number: func(s *Settings) *Value[int64] { return &s.MemoryFilePool }},
}

func names() []string {
	list := make([]string, len(Table))
	for i := range Table {
		list[i] = Table[i].Name
	}
	return list
}

func settingByName(name string) *Setting {
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i]
		}
	}
	return nil
}

func settingByFlag(flag string) *Setting {
	for i := range Table {
		if Table[i].Flag == flag && flag != "" {
			return &Table[i]
		}
	}
	return nil
}

// text is a value of the settings file as the other sources would give it.
func (s *Setting) text(value manifest.FileValue) string {
	if value.List != nil {
		return strings.Join(value.List, ",")
	}
	return value.Text
}

func (s *Setting) defaultText(l *loader) string {
	if s.path != nil {
		return s.path(l)
	}
	if s.Type == Folder || s.Type == File {
		return ""
	}
	return s.Default
}

// check reports whether a text can be this setting's value.
func (s *Setting) check(l *loader, text string) error {
	_, err := s.parse(l, text, "")
	return err
}

// parse reads a text as the setting's type: string, time.Duration or int64. Relative paths are taken from
// directory, or from where the program runs.
func (s *Setting) parse(l *loader, text, directory string) (any, error) {
	trimmed := strings.TrimSpace(text)
	switch s.Type {
	case Folder, File:
		if trimmed == "" {
			return "", nil
		}
		if strings.ContainsRune(trimmed, 0) {
			return nil, fmt.Errorf("a path can not hold a NUL character")
		}
		return l.absolute(trimmed, directory), nil
	case Choice:
		if !slices.Contains(s.Values, trimmed) {
			return nil, fmt.Errorf("%q is not one of %s", trimmed, strings.Join(s.Values, ", "))
		}
		return trimmed, nil
	case Duration:
		duration, err := manifest.ParseDuration(trimmed)
		if err == nil && int64(duration) < s.least {
			err = fmt.Errorf("%q is out of range: it is at least %s", trimmed, time.Duration(s.least))
		}
		return duration, err
	case Size:
		if trimmed == "0" {
			return int64(0), nil
		}
		return manifest.ParseSize(trimmed)
	case Number:
		number, err := strconv.ParseInt(trimmed, 10, 32)
		if err != nil || number < s.least {
			return nil, fmt.Errorf("%q is no number from %d on", trimmed, s.least)
		}
		return number, nil
	}
	return trimmed, nil
}

// set gives the setting its value.
func (s *Setting) set(l *loader, text, source, directory string) error {
	value, err := s.parse(l, text, directory)
	if err != nil {
		return err
	}
	switch {
	case s.text1 != nil:
		*s.text1(l.settings) = Value[string]{value.(string), source}
	case s.span != nil:
		*s.span(l.settings) = Value[time.Duration]{value.(time.Duration), source}
	case s.number != nil:
		*s.number(l.settings) = Value[int64]{value.(int64), source}
	}
	return nil
}

// Row is one line of the table of settings in force.
type Row struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Doc    string `json:"doc"`
}

// Rows are all settings in force with their sources, for people.
func (s *Settings) Rows() []Row {
	rows := make([]Row, 0, len(Table))
	for i := range Table {
		setting := &Table[i]
		row := Row{Name: setting.Name, Doc: setting.Doc}
		switch {
		case setting.text1 != nil:
			value := setting.text1(s)
			row.Value, row.Source = value.Value, value.Source
		case setting.span != nil:
			value := setting.span(s)
			row.Value, row.Source = value.Value.String(), value.Source
		case setting.Type == Size:
			value := setting.number(s)
			row.Value, row.Source = manifest.FormatSize(value.Value), value.Source
		default:
			value := setting.number(s)
			row.Value, row.Source = strconv.FormatInt(value.Value, 10), value.Source
		}
		rows = append(rows, row)
	}
	return rows
}

// absolute makes a path absolute: ~ is the home folder, anything else relative starts in directory, or where
// the program runs.
func (l *loader) absolute(path, directory string) string {
	if path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, `~\`) {
		path = filepath.Join(l.place.home, path[1:])
	}
	if directory != "" && !filepath.IsAbs(path) {
		path = filepath.Join(directory, path)
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
