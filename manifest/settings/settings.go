package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/manifest"
)

// FileName is the settings file's name in the configuration folder.
const FileName = "comfy-supervisor.toml"

// Value is a setting and where it comes from: "flag --idle-release", "COMFY_SUPERVISOR_IDLE_RELEASE",
// "/home/me/.config/comfy-supervisor/comfy-supervisor.toml:3" or "default".
type Value[T any] struct {
	Value  T      `json:"value"`
	Source string `json:"source"`
}

// IsDefault reports that nobody set the value.
func (v Value[T]) IsDefault() bool { return v.Source == sourceDefault }

const sourceDefault = "default"

// Sources are the places that settings come from.
type Sources struct {
	Flags   map[string]string // flag name without dashes in front ("idle-release") to the text given; only flags that were given
	Environ []string          // NAME=value, as os.Environ has it
	File    string            // settings file; empty: COMFY_SUPERVISOR_SETTINGS, else the one in the configuration folder, if it is there
}

// Settings are all settings. Limits of zero are switched off.
type Settings struct {
	RuntimeDirectory Value[string] `json:"runtime_directory"` // socket, lock, worker records
	StateDirectory   Value[string] `json:"state_directory"`   // logs, recorded facts
	CacheDirectory   Value[string] `json:"cache_directory"`   // laid out Python, a fetched uv
	EnvironmentRoot  Value[string] `json:"environment_root"`  // shared with comfy-env; ours is <root>/comfy-supervisor
	Socket           Value[string] `json:"socket"`
	Binary           Value[string] `json:"binary"`     // the program that hosts start the supervisor from; empty: this one
	HostFacts        Value[string] `json:"host_facts"` // JSON file with the facts of a host; empty: none
	UV               Value[string] `json:"uv"`         // path of uv; empty: look for it
	Pixi             Value[string] `json:"pixi"`       // path of pixi; empty: look for it
	NVMLLibrary      Value[string] `json:"nvml_library"`
	NVMLPIDs         Value[string] `json:"nvml_pids"` // "auto" or "ours"
	EndStuck         Value[string] `json:"end_stuck"` // see memory.EndStuck

	Backend         Value[string] `json:"backend"` // "auto", "uv" or "pixi"
	TorchIndex      Value[string] `json:"torch_index"`
	CUDAWheelsIndex Value[string] `json:"cuda_wheels_index"`
	PixiReleases    Value[string] `json:"pixi_releases"`
	Fallback        Value[string] `json:"fallback"`  // "error" or "host"
	Inference       Value[string] `json:"inference"` // see manifest.Options
	LogLevel        Value[string] `json:"log_level"`
	KeepScanned     Value[string] `json:"keep_scanned"` // "no" or "yes"

	Start              Value[time.Duration] `json:"start"`
	Scan               Value[time.Duration] `json:"scan"`
	HealthCheckTimeout Value[time.Duration] `json:"health_check_timeout"`
	CallSilence        Value[time.Duration] `json:"call_silence"`
	CallDeadline       Value[time.Duration] `json:"call_deadline"`
	CancelDeadline     Value[time.Duration] `json:"cancel_deadline"`
	StopGrace          Value[time.Duration] `json:"stop_grace"`
	IdleRelease        Value[time.Duration] `json:"idle_release"`
	Reap               Value[time.Duration] `json:"reap"`
	Sweep              Value[time.Duration] `json:"sweep"`
	Reconnect          Value[time.Duration] `json:"reconnect"`
	LauncherOrphan     Value[time.Duration] `json:"launcher_orphan"`
	CrashWindow        Value[time.Duration] `json:"crash_window"`
	CrashCount         Value[int64]         `json:"crash_count"`

	MemoryFileQuota Value[int64] `json:"memory_file_quota"` // bytes; 0: half of the RAM available at start
	MemoryFilePool  Value[int64] `json:"memory_file_pool"`  // bytes per process

	// File is the settings file that was read, "" when there is none.
	File string `json:"file"`
	// Environments are the file's sections by environment.
	Environments map[string]manifest.Options `json:"environments"`
	// Warnings are about variables that look like settings and are none.
	Warnings []string `json:"warnings"`

	sections map[string]manifest.Position
}

// FileError is a settings file that can not be used.
type FileError struct {
	File        string
	Diagnostics []manifest.Diagnostic
}

func (e *FileError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "reading the settings file %s:", e.File)
	for _, d := range e.Diagnostics {
		fmt.Fprintf(&text, "\n  line %d, column %d: %s", d.Line, d.Column, d.Message)
		if d.Fix != "" {
			fmt.Fprintf(&text, "; %s", d.Fix)
		}
	}
	return text.String()
}

// Load gathers the settings. Every setting that can not be used is in the error, which names its source.
func Load(sources Sources) (*Settings, error) {
	l := loader{environ: newEnviron(sources.Environ), flags: sources.Flags, settings: &Settings{}}
	if err := l.folders(); err != nil {
		return nil, err
	}
	var problems []error
	if err := l.readFile(sources.File); err != nil {
		problems = append(problems, err)
	}
	for name := range sources.Flags {
		if settingByFlag(name) == nil {
			problems = append(problems, fmt.Errorf("there is no setting for the flag --%s", name))
		}
	}
	for i := range Table {
		if err := l.resolve(&Table[i]); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	l.follow()
	l.warn()
	return l.settings, nil
}

// loader resolves settings one after the other.
type loader struct {
	environ  environ
	flags    map[string]string
	file     string
	values   map[string]manifest.FileValue
	place    places
	settings *Settings
}

// readFile reads the settings file. One that is asked for must be there; the one in the configuration folder may
// be missing.
func (l *loader) readFile(file string) error {
	asked := file != ""
	if !asked {
		file = l.environ.get("COMFY_SUPERVISOR_SETTINGS")
		asked = file != ""
	}
	if !asked {
		file = filepath.Join(l.place.configuration, FileName)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	file = l.absolute(file, "")
	content, problem := manifest.ReadFile(file)
	if problem != nil {
		return &FileError{File: file, Diagnostics: []manifest.Diagnostic{*problem}}
	}
	parsed, diagnostics := manifest.ParseSettings(file, content, names())
	l.values = map[string]manifest.FileValue{}
	for _, value := range parsed.Values {
		if setting := settingByName(value.Name); setting.check(l, setting.text(value)) != nil {
			err := setting.check(l, setting.text(value))
			diagnostics = append(diagnostics, value.Refuse(file, value.Name+": "+err.Error(), setting.Doc, "write "+value.Name+" = "+setting.Example))
			continue
		}
		l.values[value.Name] = value
	}
	if manifest.HasErrors(diagnostics) {
		return &FileError{File: file, Diagnostics: diagnostics}
	}
	l.file = file
	l.settings.File = file
	l.settings.Environments = parsed.Environments
	l.settings.sections = parsed.At
	return nil
}

// resolve takes a setting from the first source that has it.
func (l *loader) resolve(s *Setting) error {
	if text, ok := l.flags[s.Flag]; ok && s.Flag != "" {
		if err := s.set(l, text, "flag --"+s.Flag, ""); err != nil {
			return fmt.Errorf("flag --%s: %w", s.Flag, err)
		}
		return nil
	}
	for _, variable := range s.Variables {
		text, ok := l.environ[variable]
		if !ok || strings.TrimSpace(text) == "" { // empty is how shells and containers unset a variable
			continue
		}
		if err := s.set(l, text, variable, ""); err != nil {
			return fmt.Errorf("variable %s: %w", variable, err)
		}
		return nil
	}
	if value, ok := l.values[s.Name]; ok {
		source := fmt.Sprintf("%s:%d", l.file, value.At.Line)
		return s.set(l, s.text(value), source, filepath.Dir(l.file))
	}
	return s.set(l, s.defaultText(l), sourceDefault, "")
}

// follow places what defaults to a place inside another setting's folder.
func (l *loader) follow() {
	if l.settings.RuntimeDirectory.Value == "" {
		l.settings.RuntimeDirectory.Value = filepath.Join(l.settings.StateDirectory.Value, "run")
	}
	if l.settings.Socket.IsDefault() {
		l.settings.Socket.Value = filepath.Join(l.settings.RuntimeDirectory.Value, "supervisor.sock")
	}
}

// Limits returns the options of one environment: what the settings file has for it, then what its manifest
// declares, then the general settings. All limits, Inference and Fallback are set.
func (s *Settings) Limits(environment string, declared manifest.Options) manifest.Options {
	general := manifest.Options{
		HealthCheckTimeout: &s.HealthCheckTimeout.Value, Start: &s.Start.Value, CallSilence: &s.CallSilence.Value,
		CallDeadline: &s.CallDeadline.Value, CancelDeadline: &s.CancelDeadline.Value, StopGrace: &s.StopGrace.Value, IdleRelease: &s.IdleRelease.Value, Reap: &s.Reap.Value,
		Inference: &s.Inference.Value, Fallback: &s.Fallback.Value,
	}
	return general.Merge(declared).Merge(s.Environments[environment])
}

// LimitSource says where the value of one option (a name of manifest.OptionKeys) of an environment comes from.
func (s *Settings) LimitSource(environment, option string, declared manifest.Options) string {
	for i := range manifest.OptionKeys {
		key := &manifest.OptionKeys[i]
		if key.Name != option {
			continue
		}
		if own, ok := s.Environments[environment]; ok && key.IsSet(&own) {
			return fmt.Sprintf("%s:%d", s.File, s.sections[environment].Line)
		}
		if key.IsSet(&declared) {
			return "manifest"
		}
		for _, row := range s.Rows() {
			if row.Name == option {
				return row.Source
			}
		}
	}
	return sourceDefault
}
