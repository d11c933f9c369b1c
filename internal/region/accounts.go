package region

import (
	"sync"

	"github.com/headgate/headgate"
)

const (
	accountShards = 64
	// maxAccounts is the maximum number of accounts per shard. An account takes about 200 bytes.
	maxAccounts = 1_024
)

// accounts are the accounts of the counters that are in use.
type accounts [accountShards]struct {
	mu sync.Mutex
	of map[counterKey]*account
}

// counterKey identifies a counter.
type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// getOrCreate returns the account of a counter. If there are too many accounts, it drops a random one: its counter then has to be
// sampled again.
func (s *accounts) getOrCreate(subject headgate.Subject, counter headgate.Counter) *account {
	shard, key := &s[subject[len(subject)-1]%accountShards], counterKey{subject, counter}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	a := shard.of[key]
	if a != nil {
		return a
	}
	if shard.of == nil {
		shard.of = map[counterKey]*account{}
	}
	if len(shard.of) >= maxAccounts {
		for any := range shard.of {
			delete(shard.of, any)
			break
		}
	}
	a = &account{}
	shard.of[key] = a
	return a
}
