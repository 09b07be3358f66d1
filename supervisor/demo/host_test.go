package demo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/mirror"
	"github.com/comfy-supervisor/comfy-supervisor/testdata"
)

func TestOnlyPythonsThatComfyUIRunsOnAreUsed(t *testing.T) {
	t.Parallel()
	for version, usable := range map[string]bool{
		"3.10.0": true, "3.11.7": true, "3.13.0rc1": true, "3.9.18": false, "2.7.18": false, "4.0.0": false, "3": false,
		"": false, "3.x": false,
	} {
		if err := usablePython(version); (err == nil) != usable {
			t.Errorf("Python %q: %v", version, err)
		}
	}
}

func TestTheHostIsTheRecordedOneOnThisMachine(t *testing.T) {
	t.Parallel()
	r := newRun(Options{Build: envbuild.Configuration{Cache: t.TempDir()}}, Pack{Folder: testdata.DemoPack, Name: "demo"})
	r.host.python = envbuild.PythonFacts{Version: "3.13.2", Executable: "/usr/bin/python3.13", BaseExecutable: "/usr/bin/python3.13"}
	if err := r.makeHost(); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(r.host.comfyui, "custom_nodes", "demo", "nodes", "comfy-env.toml"))
	if err != nil || !strings.Contains(string(manifest), "\npython = \"3.13\"\n") {
		t.Errorf("the manifest is %q, %v; want it to ask for the Python that was found", manifest, err)
	}
	if _, err := os.Stat(filepath.Join(r.host.comfyui, "folder_paths.py")); err != nil {
		t.Errorf("the tree is not there: %v", err)
	}
	var facts envbuild.Facts
	if err := json.Unmarshal(r.host.report, &facts); err != nil {
		t.Fatal(err)
	}
	if facts.Stack() != "py313-none" || facts.ComfyUI.Directory != r.host.comfyui || facts.Packages["comfy-aimdo"] == "" {
		t.Errorf("the facts are %+v", facts)
	}
	state, problems := mirror.DecodeHostState(r.host.report)
	if len(problems) != 0 || state.ComfyUIVersion != "0.30.0" || string(state.Arguments["cpu"]) != "true" ||
		state.ComfyUIDirectory != r.host.comfyui {
		t.Errorf("the host's state is %+v, problems %+v", state, problems)
	}
}
