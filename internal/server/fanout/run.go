package fanout

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// retryDelay is the minimum delay before a node subscribes again. A random delay of up to the same length is added, so that
// nodes do not reconnect at once.
const retryDelay = 500 * time.Millisecond

// Run replies to other nodes and receives their replies until ctx ends. It reconnects automatically, and logs when the
// connection is lost and restored.
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
		err := n.bus.Subscribe(ctx, []string{queryChannel, n.inbox}, n.receive)
		if ctx.Err() != nil {
			n.disconnected(errors.New("this node is shutting down"))
			return
		}
		if n.disconnected(err) {
			n.log.Warn("subscription to other nodes failed: retrying", "error", err)
		}
		select {
		case <-time.After(retryDelay + rand.N(retryDelay)): //nolint:gosec // it only spreads the nodes
		case <-ctx.Done():
		}
	}
}

// connected records that the subscription is established.
func (n *Node) connected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		n.log.Info("subscription to other nodes restored")
	}
	n.err = nil
	select {
	case <-n.ready:
	default:
		close(n.ready)
	}
}

// disconnected records that the subscription failed, and reports whether it was established before.
func (n *Node) disconnected(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := n.err == nil
	n.err = err
	select {
	case <-n.ready:
		n.ready = make(chan struct{})
	default:
	}
	return changed
}
