package envbuild

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also serves the processes that tests start from this very binary: the guard of an installer, and a
// builder that a test can kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		beforeCommands()
		switch os.Args[1] {
		case GuardCommand:
			os.Exit(ServeGuard(os.Stdin))
		case builderCommand:
			os.Exit(serveBuilder())
		}
	}
	goleak.VerifyTestMain(m)
}

// beforeCommands is what some tests want to happen before such a process begins.
var beforeCommands = func() {}

// builderCommand makes this binary build what its standard input describes and print the events.
const builderCommand = "test-builder"

type builderOrder struct {
	Configuration Configuration
	Facts         Facts
	Folders       []string
}

func serveBuilder() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var order builderOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	encoder := json.NewEncoder(os.Stdout)
	order.Configuration.Report = func(event Event) { _ = encoder.Encode(event) }
	order.Configuration.Jobs = 1
	builder, err := NewBuilder(order.Configuration, order.Facts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer builder.Close()
	work, _ := Discover(order.Folders, order.Facts.Platform)
	code := 0
	for _, result := range builder.Build(ctx, work) {
		if result.Err != nil {
			code = 1
		}
	}
	return code
}
