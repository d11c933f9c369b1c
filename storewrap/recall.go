package storewrap

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// A recall says that a node was denied on a counter: the nodes that hold leases on it return them. No request waits for that, and
// a lost recall costs no more than the leases' terms.
//
// The message is a version byte, 8 bytes for the node that sends it, and for each counter 16 bytes of subject and 8 of counter.
const (
	recallChannel  = "recall"
	recallVersion  = 1
	recallHead     = 9
	recallEntry    = 24
	maxRecalls     = 256 // in one message
	subscribeAgain = time.Second
	// recallGrace is how long a reset waits for leases to come home.
	recallGrace = 50 * time.Millisecond
)

func newNodeID() (id [8]byte) {
	binary.LittleEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // it tells nodes apart
	return id
}

// recall asks the other nodes to return what they hold of a counter.
func (a *agent) recall(subject headgate.Subject, counter headgate.Counter) {
	if a.peers == nil {
		return
	}
	a.mu.Lock()
	if len(a.recalls) >= recallHead+maxRecalls*recallEntry {
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

// recallForReset has the leases on some counters returned before a credit, which would otherwise give back units that are still
// to be spent. It waits for them: a reset is no request that anybody decides.
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

// hearRecalls returns leases that other nodes recall. Where the store is available and they still cannot be heard, an operator
// must know: the store's user may lack the right.
func (a *agent) hearRecalls(ctx context.Context) {
	var failures atomic.Int64
	for ctx.Err() == nil {
		err := a.peers.Subscribe(ctx, []string{recallChannel}, func(_ string, message []byte) {
			failures.Store(0)
			a.heard(message)
		})
		if failures.Add(1) == 3 && ctx.Err() == nil && a.transport.unavailable.Load() == 0 {
			a.log.Warn("lease recalls unavailable; units leased by other nodes are denied until their leases end", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(subscribeAgain)):
		}
	}
}

func (a *agent) heard(message []byte) {
	if len(message) < recallHead || message[0] != recallVersion || [8]byte(message[1:recallHead]) == a.node {
		return
	}
	for rest := message[recallHead:]; len(rest) >= recallEntry; rest = rest[recallEntry:] {
		a.cache.recall(headgate.Subject(rest[:16]), headgate.Counter(binary.LittleEndian.Uint64(rest[16:])))
	}
}
