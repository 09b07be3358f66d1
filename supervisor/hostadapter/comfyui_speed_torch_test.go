//go:build torch

package hostadapter_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// addSpeedPack puts the pack that does nothing into a ComfyUI under a name, its nodes under others if asked to.
func (i *installation) addSpeedPack(t testing.TB, name string, native bool) {
	t.Helper()
	archive, err := txtar.ParseFile("../../testdata/packs/speed.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range archive.Files {
		text := string(file.Data)
		if name != "speed" {
			text = strings.ReplaceAll(text, `f"Speed{kind.__name__}"`, `f"`+name+`{kind.__name__}"`)
		}
		if native && filepath.Base(file.Name) == "comfy-env.toml" {
			continue
		}
		if native && strings.HasPrefix(text, "from comfy_env") {
			text = "from .nodes import NODE_CLASS_MAPPINGS\n"
		}
		if name == "speed" && filepath.Base(file.Name) == "comfy-env.toml" { // a node that looks at the stop button needs comfy's modules
			manifest, err := os.ReadFile("../../testdata/packs/contract/nodes/comfy-env.toml")
			if err != nil {
				t.Fatal(err)
			}
			text = string(manifest)
		}
		write(t, filepath.Join(i.folder, "custom_nodes", strings.Replace(file.Name, "speed/", name+"/", 1)), text)
	}
}

// A picture of 64 MiB goes through five nodes, whose outputs ComfyUI all keeps: they are one memory file, and nothing of
// that size has gone through another.
func TestAPictureThatManyNodesHaveIsCopiedOnce(t *testing.T) {
	t.Parallel()
	made := install(t)
	made.addSpeedPack(t, "speed", false)
	running := made.start(t, made.use(t))
	const picture = 2048 * 2730 * 3 * 4
	nodes := []node{{"SpeedPicture", map[string]any{"value": 77}}}
	for number := range 3 {
		nodes = append(nodes, node{"SpeedPass", map[string]any{"image": []any{strconv.Itoa(number + 1), 0}}})
	}
	nodes = append(nodes, node{"SpeedCorner", map[string]any{"image": []any{"4", 0}}})
	if text := running.run(t, shown(nodes...)).text(); text != "77" {
		t.Fatalf("the corner of the picture is %q\n%s", text, running.said(t))
	}
	files := made.status(t).MemoryFiles
	t.Logf("a picture of %d bytes: %+v", picture, files)
	if files.OpenBytes < picture || files.OpenBytes > picture+(1<<20) || files.ReservedBytes > picture+(1<<20) {
		t.Errorf("a picture of %d bytes that five nodes had is not in one memory file: %+v", picture, files)
	}
}

// BenchmarkPrompts compares a ComfyUI that runs the pack itself with one that runs it in a worker, prompt by prompt in
// turn. The figures are medians in milliseconds, from the submission until the browser hears of the end.
func BenchmarkPrompts(b *testing.B) {
	native, isolated := install(b), install(b)
	native.addSpeedPack(b, "speed", true)
	isolated.addSpeedPack(b, "speed", false)
	first, second := native.start(b, native.environ), isolated.start(b, isolated.use(b))
	for b.Loop() {
		said, err := exec.CommandContext(b.Context(), native.python, "tests/comfyui/speed.py", strconv.Itoa(first.port), strconv.Itoa(second.port)).Output()
		if err != nil {
			b.Fatalf("measuring: %v\n%s\n%s", err, first.said(b), second.said(b))
		}
		var seen map[string]map[string]float64
		if err := json.Unmarshal(said, &seen); err != nil {
			b.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(seen)) {
			for how, milliseconds := range seen[name] {
				b.ReportMetric(milliseconds, name+"-"+how+"-ms")
			}
		}
	}
}

// BenchmarkManyPacks measures what forty isolated packs, all scanned before, cost a ComfyUI at its start and at each
// answer to /object_info. Starts are taken in turn; the figures are the best of them and the median, in milliseconds.
// ComfyUI's own start varies by more than the packs cost: its processor time is the steadier figure.
func BenchmarkManyPacks(b *testing.B) {
	const packs, starts = 40, 5
	none, native, isolated := install(b), install(b), install(b)
	for number := range packs {
		name := fmt.Sprintf("many%02d", number)
		native.addSpeedPack(b, name, true)
		isolated.addSpeedPack(b, name, false)
	}
	isolated.environ = append(isolated.environ, "COMFY_ENV_ROOT="+b.TempDir()) // so many are not kept
	environ := isolated.use(b)
	isolated.start(b, environ).stop(b) // fills the cache of scans
	for b.Loop() {
		var without, with, withoutWork, withWork []time.Duration
		for range starts {
			taken, work := none.startTime(b, none.environ)
			without, withoutWork = append(without, taken), append(withoutWork, work)
			taken, work = isolated.startTime(b, environ)
			with, withWork = append(with, taken), append(withWork, work)
		}
		first, second := native.start(b, native.environ), isolated.start(b, environ)
		var infoNative, infoIsolated []time.Duration
		for range 15 {
			infoNative = append(infoNative, first.objectInfo(b))
			infoIsolated = append(infoIsolated, second.objectInfo(b))
		}
		first.stop(b)
		second.stop(b)
		report(b, "start-none", without)
		report(b, "start-packs", with)
		report(b, "start-none-cpu", withoutWork)
		report(b, "start-packs-cpu", withWork)
		report(b, "object_info-native", infoNative)
		report(b, "object_info-isolated", infoIsolated)
	}
}

func report(b *testing.B, name string, taken []time.Duration) {
	slices.Sort(taken)
	b.ReportMetric(taken[0].Seconds()*1000, name+"-best-ms")
	b.ReportMetric(taken[len(taken)/2].Seconds()*1000, name+"-ms")
}

// startTime is how long a ComfyUI takes until it listens, and the processor time of its whole short life.
func (i *installation) startTime(t testing.TB, environ []string) (taken, work time.Duration) {
	t.Helper()
	begin := time.Now()
	running := i.start(t, environ)
	taken = time.Since(begin)
	running.stop(t)
	return taken, running.command.ProcessState.UserTime() + running.command.ProcessState.SystemTime()
}

// objectInfo is the time of an answer to /object_info.
func (s *server) objectInfo(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	if status, _ := s.http(t, "GET", "/object_info", nil); status != 200 {
		t.Fatalf("object_info answers %d", status)
	}
	return time.Since(begin)
}
