package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal cancels what is running; commands clean up and return. A second one ends the process at once,
	// as it would have without us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := newApplication().run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
