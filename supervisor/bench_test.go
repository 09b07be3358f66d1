//go:build unix

package supervisor

import (
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// BenchmarkCall is a call with one small value from a Go client, through the daemon and a launcher, to Python and back.
func BenchmarkCall(b *testing.B) {
	client := startDaemon(b, newTestOptions(b)).connect()
	call := api.Call{Environment: "pack", Node: "Echo", Inputs: map[string]any{"x": 1}}
	for b.Loop() {
		result, err := client.Call(b.Context(), call)
		if err != nil {
			b.Fatal(err)
		}
		result.Close()
	}
}

// BenchmarkPing is what a client pays to reach the daemon and nothing else.
func BenchmarkPing(b *testing.B) {
	client := startDaemon(b, newTestOptions(b)).connect()
	for b.Loop() {
		if _, err := client.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
