//go:build linux

package spawn

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

func TestTheRealWorkerProgramLoadsAPackAndCallsItsNode(t *testing.T) {
	spec := testSpec(t)
	program, err := pyworker.Layout(temporaryFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	spec.Program = program
	nodes, err := filepath.Abs("testdata/nodes")
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	worker := launch(t, spec, r)
	loaded := ask[struct {
		PID   int
		Nodes []json.RawMessage
	}](t, worker, "load", anything{
		"session": "session", "environment": "environment", "environment_root_id": "root", "generation": 1, "worker": spec.Worker,
		"pack":    anything{"directory": filepath.Dir(nodes), "nodes": nodes, "name": "pack", "unique_name": "comfy_supervisor_pack"},
		"comfyui": "", "memory": anything{"pool_bytes": 1 << 20}, "options": anything{"inference": "off"},
	})
	if loaded.PID != worker.PythonPID() || len(loaded.Nodes) != 1 {
		t.Errorf("loaded %+v", loaded)
	}
	_, body, err := worker.Peer().Request(testContext(t), &wire.Message{Method: "call", Lane: wire.LaneMain, Generation: 1, Params: wire.Params(anything{
		"node": "Add", "encoding": "json", "context": anything{},
	})}, []byte(`{"a":1,"b":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(string(body), " ", ""); got != `[3,["`+WorkerVariable+`"]]` {
		t.Errorf("result %s", got)
	}
	r.wait(t, "what the node printed", func() bool {
		for _, line := range r.lines {
			if line.Stream == StreamStdout && line.Text == "adding 1 2" {
				return true
			}
		}
		return false
	})
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if exit := worker.Exit(); exit.Code == nil || *exit.Code != 0 {
		t.Errorf("exit %v, stderr %q", exit, exit.Stderr)
	}
	expectNothingLeft(t, worker.Record())
}
