package storewrap

import (
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// memory is what was last left of counters, so that a node's share starts from that. It has room for 65,536; of two that want
// the same place the later stays, and of the other nothing is known.
type memory struct {
	shards [shards]struct {
		mu      sync.Mutex
		entries [perShard]entry
		_       [64]byte
	}
}

const (
	shards   = 64
	perShard = 1_024
)

type entry struct {
	subject   headgate.Subject
	counter   headgate.Counter
	remaining int64
	until     time.Duration // since the start: when the counter is as if never used
}

func (m *memory) place(c *headgate.Charge) (*sync.Mutex, *entry) {
	h := hash(0, c, 0)
	shard := &m.shards[h%shards]
	return &shard.mu, &shard.entries[h/shards%perShard]
}

// put remembers a result.
func (m *memory) put(c *headgate.Charge, r *headgate.Result, now time.Duration) {
	mu, e := m.place(c)
	mu.Lock()
	*e = entry{c.Subject, c.Counter, r.Remaining, now + r.ResetAfter}
	mu.Unlock()
}

// has is true if the store has said something that is not taken yet.
func (m *memory) has(c *headgate.Charge) bool {
	mu, e := m.place(c)
	mu.Lock()
	defer mu.Unlock()
	return e.subject == c.Subject && e.counter == c.Counter && e.until != 0
}

// take is what was last left, and forgets it: from then on the node's own count goes on, until the store says more. It is
// false if the store has said nothing since.
func (m *memory) take(c *headgate.Charge) (entry, bool) {
	mu, e := m.place(c)
	mu.Lock()
	defer mu.Unlock()
	if e.subject != c.Subject || e.counter != c.Counter || e.until == 0 {
		return entry{}, false
	}
	found := *e
	*e = entry{}
	return found, true
}
