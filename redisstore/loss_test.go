package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// TestLost flushes one server of each topology, and expects that all nodes notice it for the subjects of that server only; also a node that
// starts later. An empty store has lost nothing.
func TestLost(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, servers := start(t)
			openNode := func() *Store {
				s, err := New(Options{Address: address, Namespace: "lost", WatchLoss: true})
				testenv.NoError(t, err)
				t.Cleanup(s.Close)
				awaitReady(t, s)
				return s
			}
			a, b := openNode(), openNode()
			subjects := make([]headgate.Subject, 50)
			for i := range subjects {
				subjects[i] = headgate.SubjectOf("lost", string(rune('a'+i)))
			}
			lost := func(s *Store) (n int) {
				for _, subject := range subjects {
					if at, now := s.Lost(subject); !at.IsZero() {
						n++
						if now.Sub(at) < 0 || now.Sub(at) > time.Minute {
							t.Errorf("lost at %s, and it is %s", at, now)
						}
					}
				}
				return n
			}
			if n := lost(a) + lost(b); n > 0 {
				t.Fatalf("an empty store has lost %d subjects", n)
			}
			before := time.Now()
			for lost(a) == 0 && time.Since(before) < 2*heartbeatInterval {
				time.Sleep(heartbeatInterval / 8) // the markers are the same for some heartbeats
			}
			if n := lost(a) + lost(b); n > 0 {
				t.Fatalf("a store that lost nothing has lost %d subjects", n)
			}
			flushed := servers()[0]
			flushed.Must(t, "FLUSHALL")
			want := 0
			for _, subject := range subjects {
				if s := a.shards.Load(); s == nil || a.Shard(subject) == shardOf(t, a, flushed) {
					want++
				}
			}
			deadline := time.Now().Add(30 * time.Second)
			for (lost(a) != want || lost(b) != want) && time.Now().Before(deadline) {
				time.Sleep(heartbeatInterval / 8)
			}
			if lost(a) != want || lost(b) != want {
				t.Fatalf("the nodes noticed the loss of %d and %d subjects, want %d", lost(a), lost(b), want)
			}
			if n := lost(openNode()); n != want {
				t.Errorf("a new node knows of the loss of %d subjects, want %d", n, want)
			}
			at, _ := a.Lost(subjects[0])
			if again, _ := b.Lost(subjects[0]); !again.Equal(at) {
				t.Errorf("the nodes disagree about the time of the loss: %s and %s", at, again)
			}
		})
	}
}

// shardOf returns the number of the shard of a Cluster that a server is the primary of.
func shardOf(t *testing.T, s *Store, server *testenv.Server) int {
	t.Helper()
	for shard, key := range s.markerKeys {
		if _, err := server.Do("GET", key); err == nil {
			return shard
		}
	}
	t.Fatalf("%s is the primary of no shard", server.Addr())
	return 0
}
