package storewrap

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// A recall message reports that a node was denied on a counter. The nodes that hold leases on it return them. No request waits
// for that, and a lost recall only delays them: the leases end with their terms.
//
// The message is a version byte, 8 bytes for the node that sends it, and for each counter 16 bytes of subject and 8 of counter.
const (
	recallChannel    = "recall"
	recallVersion    = 1
	recallHeaderSize = 9
	recallEntrySize  = 24
	maxRecalls       = 256 // in one message
	resubscribeDelay = time.Second
	// recallGrace is how long a reset waits for leases to be returned.
	recallGrace = 50 * time.Millisecond
)

// newNodeID returns a random ID.
func newNodeID() (id [8]byte) {
	binary.LittleEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // it distinguishes nodes, and is not a secret
	return id
}

// recall queues a message that asks the other nodes to return their leases on a counter.
func (a *agent) recall(subject headgate.Subject, counter headgate.Counter) {
	if a.peers == nil {
		return
	}
	a.mu.Lock()
	if len(a.recalls) >= recallHeaderSize+maxRecalls*recallEntrySize {
		a.mu.Unlock()
		return
	}
	if len(a.recalls) == 0 {
		a.recalls = append(append(a.recalls, recallVersion), a.node[:]...)
	}
	a.recalls = append(a.recalls, subject[:]...)
	a.recalls = binary.LittleEndian.AppendUint64(a.recalls, uint64(counter))
	a.mu.Unlock()
	a.wakeUp()
}

// recallForReset recalls the leases on some counters before a credit, which would otherwise give back units that are still to
// be spent. It waits recallGrace for them: a reset is an operator's call and not on the path of a request.
func (a *agent) recallForReset(charges []headgate.Charge) {
	nodes := a.cache.fleet.size()
	recalled := false
	for i := range charges {
		if a.peers != nil && nodes > 1 && leasable(&charges[i], nodes) {
			a.recall(charges[i].Subject, charges[i].Counter)
			recalled = true
		}
	}
	if recalled {
		time.Sleep(recallGrace)
	}
}

// listenForRecalls returns leases that other nodes recall. It logs a warning if it cannot subscribe although the store is
// available: the store's user may lack the permission.
func (a *agent) listenForRecalls(ctx context.Context) {
	var failures atomic.Int64
	for ctx.Err() == nil {
		err := a.peers.Subscribe(ctx, []string{recallChannel}, func(_ string, message []byte) {
			failures.Store(0)
			a.handleRecalls(message)
		})
		if failures.Add(1) == 3 && ctx.Err() == nil && a.transport.unavailable.Load() == 0 {
			a.log.Warn("lease recalls unavailable; units leased by other nodes stay denied until their leases end,"+
				" check the store user's permissions", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(resubscribeDelay)):
		}
	}
}

// handleRecalls returns the leases that a message recalls. It ignores this node's own messages and those of another version.
func (a *agent) handleRecalls(message []byte) {
	if len(message) < recallHeaderSize || message[0] != recallVersion || [8]byte(message[1:recallHeaderSize]) == a.node {
		return
	}
	for rest := message[recallHeaderSize:]; len(rest) >= recallEntrySize; rest = rest[recallEntrySize:] {
		a.cache.recall(headgate.Subject(rest[:16]), headgate.Counter(binary.LittleEndian.Uint64(rest[16:])))
	}
}
