package spawn

import (
	"bytes"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

func TestAWorkerIsLaunchedAnswersAndStops(t *testing.T) {
	r := newRecorder()
	spec := testSpec(t)
	worker := launch(t, spec, r)
	body := bytes.Repeat([]byte{0, 1, 255}, 100_000)
	reply, got, err := worker.Peer().Request(testContext(t), &wire.Message{Method: "echo", Params: wire.Params(anything{"a": 1})}, body)
	if err != nil {
		t.Fatal(err)
	}
	if string(reply.Result) != `{"a": 1}` || !bytes.Equal(got, body) {
		t.Errorf("result %s and a body of %d bytes", reply.Result, len(got))
	}
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	exit := worker.Exit()
	if exit.Code == nil || *exit.Code != 0 || exit.Signal != "" || exit.Reason != "stopped" {
		t.Errorf("exit %+v", exit)
	}
	expectNothingLeft(t, worker.Record())
}
