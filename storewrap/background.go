package storewrap

import (
	"context"
	"sync"
)

// background is what goes on besides decisions.
type background struct {
	ctx     context.Context //nolint:containedctx // it is that of goroutines, and ends with the store
	stop    context.CancelFunc
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

func (b *background) start() { b.ctx, b.stop = context.WithCancel(context.Background()) }

// run starts something, unless all is to end. It must return when its context ends.
func (b *background) run(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.running.Go(func() { f(b.ctx) })
	}
}

// end returns when nothing goes on any more. It is false if it was ended before.
func (b *background) end() bool {
	b.mu.Lock()
	first := !b.ended
	b.ended = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
	return first
}
