package fanout

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
func (n *Node) Run(ctx context.Context) {
	if n.bus == nil {
		<-ctx.Done()
		return
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, t := range n.topics {
		workers.Go(func() { n.work(ctx, t) })
	}
	for {
		err := n.bus.Subscribe(ctx, []string{questions, n.inbox}, n.hear)
		if ctx.Err() != nil {
			n.deafened(errors.New("this node is stopping"))
			return
		}
		if n.deafened(err) {
			n.log.Warn("other nodes cannot be heard; this node tries again", "error", err)
		}
		select {
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // it only spreads nodes out
		case <-ctx.Done():
		}
	}
}

// hears is called when the subscription stands.
func (n *Node) hears() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.deaf != nil {
		n.log.Info("other nodes are heard again")
	}
	n.deaf = nil
	select {
	case <-n.hearing:
	default:
		close(n.hearing)
	}
}

// deafened says whether that is news.
func (n *Node) deafened(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	news := n.deaf == nil
	n.deaf = err
	select {
	case <-n.hearing:
		n.hearing = make(chan struct{})
	default:
	}
	return news
}
