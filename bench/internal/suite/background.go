package suite

import (
	"context"
	"sync"
	"time"
)

// Background runs some functions side by side until stop is called, which returns when all have ended.
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

// SleepUntil returns earlier if ctx ends.
func SleepUntil(ctx context.Context, t time.Time) {
	ctx, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-ctx.Done()
}
