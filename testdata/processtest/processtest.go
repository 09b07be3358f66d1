// Package processtest starts programs that tests talk to. Only tests import it; it imports nothing of this module.
package processtest

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// Start starts a command whose standard input and output the test has; its standard error is the test's own. The caller
// waits for its end.
func Start(t testing.TB, command *exec.Cmd) (input io.WriteCloser, output io.ReadCloser) {
	t.Helper()
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err = command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return input, output
}
