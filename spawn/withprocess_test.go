//go:build unix

package spawn

import (
	"context"
	"errors"
	"os/exec"
	"testing"
)

func TestAContextEndsWithAProcess(t *testing.T) {
	t.Parallel()
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	process, err := Identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, release, err := WithProcess(t.Context(), process)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if ctx.Err() != nil {
		t.Fatalf("the context has ended before the process: %v", context.Cause(ctx))
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- command.Wait() }()
	<-ctx.Done() // the test's own time limit bounds it
	<-ended
	if !errors.Is(context.Cause(ctx), ErrProcessGone) {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
	if _, _, err := WithProcess(t.Context(), process); !errors.Is(err, ErrProcessGone) {
		t.Errorf("watching an ended process gave %v", err)
	}
}

func TestReleasingAContextOfAProcessEndsIt(t *testing.T) {
	t.Parallel()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	ctx, release, err := WithProcess(t.Context(), self)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if ctx.Err() == nil {
		t.Error("the context lives on")
	}
}
