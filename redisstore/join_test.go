package redisstore

import (
	"strconv"
	"testing"
	"time"
)

// A published join is counted at once. No message lowers the number of nodes.
func TestHandleJoin(t *testing.T) {
	t.Parallel()
	s := newStore(Options{Namespace: "joins"}, false)
	s.members.Store(&membership{nodes: 3, rank: 2})
	for _, c := range []struct {
		message string
		nodes   int64
	}{
		{"", 3}, {"4", 4}, {"2", 4}, {"-7", 4}, {"x", 4}, {"9999999999999999999", 4}, {strconv.Itoa(maxNodes + 1), 4}, {"12", 12},
	} {
		if s.handleJoin(c.message); s.members.Load().nodes != c.nodes || s.members.Load().rank != 2 {
			t.Errorf("%q: %+v, want %d nodes", c.message, *s.members.Load(), c.nodes)
		}
	}
	if len(s.joinSignal) != 1 {
		t.Error("the node does not announce itself again")
	}
}

// Subscribed nodes learn at once of a node that joins, and their new ranks. Subscribers of other channels do not get the
// message.
func TestJoin(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	first := open(t, standalone(server))
	received, _ := listen(t, first, "news")
	second := open(t, standalone(server))
	knows := func(s *Store) bool {
		return s.Nodes() == 2 && first.members.Load().rank+second.members.Load().rank == 3
	}
	for deadline := time.Now().Add(20 * time.Second); !knows(first) || !knows(second); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v and %+v", *first.members.Load(), *second.members.Load())
		}
	}
	if err := second.Publish(t.Context(), "news", []byte("a")); err != nil {
		t.Error(err)
	}
	expectMessage(t, received, "a") // and nothing else
}
