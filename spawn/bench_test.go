//go:build linux

package spawn

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// BenchmarkHop compares a request to Python over a socket alone with one over the connection that a launcher lends, and
// with one through gRPC and a launcher.
func BenchmarkHop(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"empty", 0}, {"64KiB", 60 << 10}, {"1MiB", 1000 << 10}} {
		body := make([]byte, size.bytes)
		b.Run("direct/"+size.name, func(b *testing.B) { benchmarkEcho(b, directPeer(b), body) })
		for name, relay := range map[string]bool{"lent": false, "relayed": true} {
			b.Run(name+"/"+size.name, func(b *testing.B) {
				spec := testSpec(b)
				spec.Relay = relay
				benchmarkEcho(b, launch(b, spec, newRecorder()).Peer(), body)
			})
		}
	}
}

func benchmarkEcho(b *testing.B, peer *wire.Peer, body []byte) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := peer.Request(context.Background(), &wire.Message{Method: "echo"}, body); err != nil {
			b.Fatal(err)
		}
	}
}

// directPeer talks to a Python without a launcher.
func directPeer(b *testing.B) *wire.Peer {
	b.Helper()
	ours, inherited, err := frameConnection()
	if err != nil {
		b.Fatal(err)
	}
	spec := testSpec(b)
	command := exec.Command(spec.Python, append([]string{"-I", spec.Program}, inherited.arguments()...)...)
	command.Env = append(spec.Variables, WorkerVariable+"=direct")
	command.ExtraFiles = []*os.File{inherited.file}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	inherited.close()
	r := newRecorder()
	peer := wire.NewPeer(wire.NewStream(ours), r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = peer.Run()
	}()
	b.Cleanup(func() {
		_ = peer.Close()
		<-done
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	r.wait(b, "hello", func() bool { return len(r.notifications) > 0 })
	return peer
}

func BenchmarkLaunchAndStop(b *testing.B) {
	for b.Loop() {
		worker := launch(b, testSpec(b), newRecorder())
		if err := worker.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	for name, pattern := range map[string]string{
		"lines":      strings.Repeat("a line of some thirty bytes ..\n", 1000),
		"no newline": strings.Repeat("x", 32<<10),
	} {
		b.Run(name, func(b *testing.B) {
			s := newSpool()
			b.SetBytes(int64(len(pattern)))
			for b.Loop() {
				s.read(StreamStdout, strings.NewReader(pattern))
			}
		})
	}
}
