package redisstore

import (
	"strconv"
	"testing"
	"time"
)

// A node that joins is known at once to those that listen, which never count fewer nodes for it, whatever is published.
func TestHearJoin(t *testing.T) {
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
		t.Error("it does not announce itself again")
	}
}

// Nodes that listen know of one that joins, and which of them they are; those that hear messages do not hear of it.
func TestJoin(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	first := open(t, standalone(server))
	heard, _ := listen(t, first, "news")
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
	hears(t, heard, "a") // and nothing else
}
