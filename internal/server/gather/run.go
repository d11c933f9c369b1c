package gather

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// pause is how long a node at least waits before it subscribes again, and at most twice as long: not all at once.
const pause = 500 * time.Millisecond

// Run answers the others, and hears their answers, until ctx ends. It connects again by itself, and logs when it is lost and when
// it is back.
func (g *Gather) Run(ctx context.Context) {
	if g.bus == nil {
		<-ctx.Done()
		return
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, t := range g.topics {
		workers.Go(func() { g.work(ctx, t) })
	}
	for {
		err := g.bus.Subscribe(ctx, []string{questions, g.answers}, g.hear)
		if ctx.Err() != nil {
			g.deafened(errors.New("this node is stopping"))
			return
		}
		if g.deafened(err) {
			g.log.Warn("other nodes cannot be heard; this node tries again", "error", err)
		}
		select {
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // it only spreads nodes out
		case <-ctx.Done():
		}
	}
}

// hears is called when the subscription stands.
func (g *Gather) hears() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.deaf != nil {
		g.log.Info("other nodes are heard again")
	}
	g.deaf = nil
	select {
	case <-g.hearing:
	default:
		close(g.hearing)
	}
}

// deafened says whether that is news.
func (g *Gather) deafened(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	news := g.deaf == nil
	g.deaf = err
	select {
	case <-g.hearing:
		g.hearing = make(chan struct{})
	default:
	}
	return news
}
