package spawn

import (
	"context"
	"fmt"
)

// WithProcess returns a context that ends when the process does, with that as its cause. The function that comes with
// it ends the observation and the context.
func WithProcess(ctx context.Context, process Process) (context.Context, func(), error) {
	watch, err := WatchProcess(process)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-watch.Done():
			cancel(fmt.Errorf("%v ended: %w", process, ErrProcessGone))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-finished
		watch.Close()
	}, nil
}
