package supervisor

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestStatusTellsWhatTheHostSetFromWhatItsShellGaveIt(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	with := host()
	with.Environ = append(with.Environ, "HOME="+os.Getenv("HOME"), "PYTHONHOME=elsewhere")
	with.HostFacts = json.RawMessage(`{"args": {"fast_disk": true, "novram": true}}`)
	client := connectAs(t, options, with)
	worker := onlyWorker(t, client, mustCall(t, client, "Echo", nil).Environment)
	seen := make(map[string]api.Variable)
	for _, variable := range worker.Variables {
		seen[variable.Kind+" "+variable.Name] = variable
	}
	for name, want := range map[string]api.Variable{
		"variable HOME":                {Source: "operator's shell", Value: os.Getenv("HOME")},
		"variable HOST_VARIABLE":       {Source: "host", Value: "1"},
		"flag fast_disk":               {Source: "host", Value: "true"},
		"withheld flag novram":         {Source: "host"},
		"withheld variable PYTHONHOME": {Source: "host"},
	} {
		got, found := seen[name]
		if !found || got.Source != want.Source || got.Value != want.Value {
			t.Errorf("%s: found %v, %q from %q; want %q from %q", name, found, got.Value, got.Source, want.Value, want.Source)
		}
		if want.Value == "" && got.Note == "" {
			t.Errorf("%s is kept back without a reason", name)
		}
	}
}
