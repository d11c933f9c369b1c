package storewrap

import (
	"context"
	"sync"
)

// background runs goroutines that end when the store is closed.
type background struct {
	ctx     context.Context //nolint:containedctx // it ends when the store is closed
	stop    context.CancelFunc
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// start creates the context of the goroutines.
func (b *background) start() { b.ctx, b.stop = context.WithCancel(context.Background()) }

// run starts f unless the store is closing. f must return when its context ends.
func (b *background) run(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.running.Go(func() { f(b.ctx) })
	}
}

// end cancels the goroutines' context and waits until all have returned. It returns false if it was called before.
func (b *background) end() bool {
	b.mu.Lock()
	first := !b.ended
	b.ended = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
	return first
}
