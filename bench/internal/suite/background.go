package suite

import (
	"context"
	"sync"
	"time"
)

// Background runs functions concurrently until stop is called. stop returns when all of them have returned.
func Background(ctx context.Context, do ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, f := range do {
		running.Go(func() { f(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// SleepUntil sleeps until t, or until ctx ends.
func SleepUntil(ctx context.Context, t time.Time) {
	ctx, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-ctx.Done()
}
