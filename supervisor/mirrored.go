package supervisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/mirror"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// notificationComfyReady is a worker's report, once its pack has imported comfy, of what came of everything mirrored.
const notificationComfyReady = "comfy-ready"

// readyReport are the worker's words.
type readyReport struct {
	Flags     mirror.ReadBack   `json:"flags"`
	Skipped   map[string]string `json:"skipped"`
	Attention string            `json:"attention"`
	Pager     api.PagerOutcome  `json:"pager"`
	Missing   []api.MissingName `json:"missing"`
	Python    string            `json:"python"`
	Packages  map[string]string `json:"packages"`
}

// comfyReady holds a worker's report against what its host said, and keeps what differs for status. Differences never
// refuse anything; they are said once for each worker.
func (d *Daemon) comfyReady(w *worker, notification *wire.Message) {
	var report readyReport
	if err := json.Unmarshal(notification.Params, &report); err != nil {
		d.log.Warn().Err(err).Str("worker", w.id).Msg("a worker's report on its flags can not be read")
		return
	}
	d.mu.Lock()
	s, flags, loaded := w.place.session, w.flags, w.loaded
	d.mu.Unlock()
	if loaded.Python == "" { // its pack has imported comfy before it was loaded
		loaded.Python, loaded.Packages = report.Python, report.Packages
	}
	state, _ := mirror.DecodeHostState(s.hostState) // its problems have been logged when the worker was prepared
	outcome := api.Mirrored{
		Attention: report.Attention, Pager: report.Pager, Skipped: report.Skipped, Missing: report.Missing,
	}
	for _, one := range mirror.Compare(attributes(flags, report.Skipped), mirror.ReadBack(state.Arguments), report.Flags) {
		outcome.Differences = append(outcome.Differences, api.Difference{Name: "flag " + one.Name, Host: one.Host, Worker: one.Worker})
	}
	if state.Attention != "" && report.Attention != "" && state.Attention != report.Attention {
		outcome.Differences = append(outcome.Differences, api.Difference{Name: "attention", Host: state.Attention, Worker: report.Attention})
	}
	if versions := hostVersions(s.hostFacts); versions != nil {
		for _, one := range mirror.Skew(versions, workerVersions(loaded)) {
			outcome.Differences = append(outcome.Differences, api.Difference{Name: one.Name, Host: one.Host, Worker: one.Worker, Blocks: one.Blocks})
		}
	}
	hostHash, hostErr := mirror.Hash(only(mirror.ReadBack(state.Arguments), report.Flags))
	workerHash, workerErr := mirror.Hash(report.Flags)
	if hostErr == nil && workerErr == nil {
		outcome.HostHash, outcome.WorkerHash = hostHash, workerHash
	}
	d.mu.Lock()
	w.mirrored = &outcome
	d.mu.Unlock()
	for _, line := range mirroredLines(outcome) {
		d.note(w, levelWarning, "%s", line)
	}
	if len(outcome.Differences) > 0 {
		d.event(api.Event{Kind: "mirror.differs", Session: s.id, Environment: w.place.environment, Generation: w.generation,
			Terms: map[string]any{"differences": outcome.Differences}})
	}
}

// attributes are the flags that can be read back: all but the attention backend, and but those that a worker skipped
// with a reason of its own.
func attributes(flags []mirror.Flag, skipped map[string]string) []mirror.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(flag mirror.Flag) bool {
		_, isSkipped := skipped[flag.Name]
		return isSkipped || flag.Name == "attention"
	})
}

// only are the values of one side that the other has too.
func only(values, other mirror.ReadBack) mirror.ReadBack {
	common := mirror.ReadBack{}
	for name, value := range values {
		if _, both := other[name]; both {
			common[name] = value
		}
	}
	return common
}

// comparedPackages are those whose versions both sides should share.
var comparedPackages = []string{"comfy-aimdo", "comfy-kitchen", "torch"}

// hostVersions are the versions in a host's facts; nil when they say nothing of its Python.
func hostVersions(document json.RawMessage) map[string]string {
	var facts envbuild.Facts
	if len(document) == 0 || json.Unmarshal(document, &facts) != nil || facts.Python.Version == "" {
		return nil
	}
	versions := publicVersions(facts.Packages)
	versions["python"] = facts.Python.Version
	return versions
}

// workerVersions are the versions that a worker found in its environment.
func workerVersions(loaded loadResult) map[string]string {
	versions := publicVersions(loaded.Packages)
	versions["python"] = loaded.Python
	return versions
}

// publicVersions are the versions of the compared packages without what a build adds behind a plus.
func publicVersions(packages map[string]string) map[string]string {
	versions := map[string]string{}
	for _, name := range comparedPackages {
		if version := packages[name]; version != "" {
			versions[name], _, _ = strings.Cut(version, "+")
		}
	}
	return versions
}

// mirroredLines say what differs, one line each.
func mirroredLines(outcome api.Mirrored) []string {
	var lines []string
	for _, one := range outcome.Differences {
		lines = append(lines, fmt.Sprintf("%s differs from the host's: %s there, %s here", one.Name, orNone(one.Host), orNone(one.Worker)))
	}
	for _, name := range slices.Sorted(maps.Keys(outcome.Skipped)) {
		lines = append(lines, fmt.Sprintf("the host's %s is not in force: %s", name, outcome.Skipped[name]))
	}
	for _, one := range outcome.Missing {
		lines = append(lines, fmt.Sprintf("this ComfyUI has no %s: %s", one.Name, one.Without))
	}
	return lines
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}
