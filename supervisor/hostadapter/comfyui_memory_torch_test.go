//go:build torch

package hostadapter_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The models are on the processor; that they are ComfyUI's own, in its own lists on both sides, is what is shown.
func TestTheFreeMemoryOfARealComfyUIReachesItsWorkers(t *testing.T) {
	t.Parallel()
	made := install(t)
	pack := filepath.Join(made.folder, "custom_nodes", "contract") // with the contract pack's environment
	if err := os.CopyFS(pack, os.DirFS("../../spawn/pyworker/tests/with_comfyui/pack")); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../testdata/packs/contract/nodes/comfy-env.toml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(pack, "nodes", "comfy-env.toml"), string(manifest))
	write(t, filepath.Join(pack, "__init__.py"), "from comfy_env import register_nodes\n\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n")
	running := made.start(t, made.use(t))
	script, err := filepath.Abs("tests/comfyui/memory.py")
	if err != nil {
		t.Fatal(err)
	}
	printed, err := exec.CommandContext(t.Context(), made.python, script, strconv.Itoa(running.port)).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, running.said(t))
	}
	var seen [][]string
	if err := json.Unmarshal(printed, &seen); err != nil {
		t.Fatalf("%q: %v", printed, err)
	}
	loaded := []string{strconv.Itoa(256 << 20)}
	if difference := cmp.Diff([][]string{loaded, loaded, loaded}, seen); difference != "" {
		t.Errorf("what the models had on their device (-want +got):\n%s", difference)
	}
	said := running.said(t)
	if count := strings.Count(said, "workers freed 0.3 GiB") + strings.Count(said, "workers freed 0.2 GiB"); count != 2 {
		t.Errorf("ComfyUI was told %d times that workers freed their model, want twice", count)
	}
	if strings.Contains(said, "could not be counted") || strings.Contains(said, "that was to be done for its memory") || strings.Contains(said, "does around a node failed") {
		t.Error("something went wrong around its memory")
	}
	if t.Failed() {
		t.Log(said)
	}
}
