//go:build torch

package hostadapter_test

import (
	"encoding/json"
	"fmt"
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
func (i *installation) addSpeedPack(t *testing.T, name string, native bool) {
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
		write(t, filepath.Join(i.folder, "custom_nodes", strings.Replace(file.Name, "speed/", name+"/", 1)), text)
	}
}

// measure runs the prompts of speed.py; times are in milliseconds.
func (i *installation) measure(t *testing.T, running *server) map[string]float64 {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), i.python, "tests/comfyui/speed.py", strconv.Itoa(running.port)).Output()
	if err != nil {
		t.Fatalf("measuring: %v\n%s", err, running.said(t))
	}
	var seen map[string]float64
	if err := json.Unmarshal(said, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestIsolationCostsMilliseconds(t *testing.T) {
	native, isolated := install(t), install(t)
	native.addSpeedPack(t, "speed", true)
	isolated.addSpeedPack(t, "speed", false)
	first, second := native.start(t, native.environ), isolated.start(t, isolated.use(t))
	isolated.pictureIsCopiedOnce(t, second)
	before, with := native.measure(t, first), isolated.measure(t, second)
	t.Logf("milliseconds natively %v, isolated %v", before, with)
	if extra := with["chain"] - before["chain"]; extra > 10 {
		t.Errorf("a chain of ten nodes costs %.1f ms more than natively", extra)
	}
	if with["waits"] > 1000 {
		t.Errorf("ten asynchronous nodes of half a second take %.0f ms", with["waits"])
	}
}

// pictureIsCopiedOnce runs a picture of 64 MiB through five nodes, whose outputs ComfyUI all keeps: they are one memory
// file, and nothing of that size has gone through another.
func (i *installation) pictureIsCopiedOnce(t *testing.T, running *server) {
	t.Helper()
	const picture = 2048 * 2730 * 3 * 4
	nodes := []node{{"SpeedPicture", map[string]any{"value": 77}}}
	for number := range 3 {
		nodes = append(nodes, node{"SpeedPass", map[string]any{"image": []any{strconv.Itoa(number + 1), 0}}})
	}
	nodes = append(nodes, node{"SpeedCorner", map[string]any{"image": []any{"4", 0}}})
	if text := running.run(t, shown(nodes...)).text(); text != "77" {
		t.Fatalf("the corner of the picture is %q\n%s", text, running.said(t))
	}
	files := i.status(t).MemoryFiles
	t.Logf("a picture of %d bytes: %+v", picture, files)
	if files.OpenBytes < picture || files.OpenBytes > picture+(1<<20) || files.ReservedBytes > picture+(1<<20) {
		t.Errorf("a picture of %d bytes that five nodes had is not in one memory file: %+v", picture, files)
	}
}

// startSeconds is how long a ComfyUI takes until it listens, at best of a few starts.
func (i *installation) startSeconds(t *testing.T, environ []string, times int) float64 {
	t.Helper()
	best := time.Hour
	for range times {
		begin := time.Now()
		running := i.start(t, environ)
		best = min(best, time.Since(begin))
		running.stop(t)
	}
	return best.Seconds()
}

func TestManyPacksCostLittleAtTheStart(t *testing.T) {
	const packs = 40
	none, native, isolated := install(t), install(t), install(t)
	for number := range packs {
		name := fmt.Sprintf("many%02d", number)
		native.addSpeedPack(t, name, true)
		isolated.addSpeedPack(t, name, false)
	}
	environ := isolated.use(t)
	isolated.start(t, environ).stop(t) // fills the cache of scans
	before, with := none.startSeconds(t, none.environ, 3), isolated.startSeconds(t, environ, 3)
	t.Logf("ComfyUI starts in %.2f s without packs, in %.2f s with %d isolated ones", before, with, packs)
	if with-before > 0.3 {
		t.Errorf("%d packs cost %.2f s at the start", packs, with-before)
	}
	first, second := native.start(t, native.environ), isolated.start(t, environ)
	infoNative, infoIsolated := first.objectInfo(t), second.objectInfo(t)
	t.Logf("/object_info takes %s natively, %s isolated", infoNative, infoIsolated)
	if infoIsolated-infoNative > 50*time.Millisecond {
		t.Errorf("/object_info takes %s longer than natively", infoIsolated-infoNative)
	}
}

// objectInfo is the median time of an answer to /object_info.
func (s *server) objectInfo(t *testing.T) time.Duration {
	t.Helper()
	var taken []time.Duration
	for range 11 {
		begin := time.Now()
		if status, _ := s.http(t, "GET", "/object_info", nil); status != 200 {
			t.Fatalf("object_info answers %d", status)
		}
		taken = append(taken, time.Since(begin))
	}
	slices.Sort(taken)
	return taken[len(taken)/2]
}
