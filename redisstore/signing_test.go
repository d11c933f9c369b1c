package redisstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/headgate/headgate"
)

// TestSigningKeys checks that nodes agree on a key, that the key survives an emptied Redis, and that the previous key stays
// valid after nodes had to agree on another.
func TestSigningKeys(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	address := standalone(server)
	first, second := open(t, address), open(t, address)
	key := signingKey(t, first)
	if other := signingKey(t, second); len(key) < minSigningKey || !bytes.Equal(key, other) {
		t.Fatalf("keys %q and %q", key, other)
	}
	server.Must(t, "FLUSHALL")
	first.heartbeat(t.Context())
	if third := signingKey(t, open(t, address)); !bytes.Equal(third, key) {
		t.Errorf("after Redis was emptied a new node signs with %q, want %q", third, key)
	}
	const another = "key of another first node"
	server.Must(t, "SET", "hg2:headgate:key", another, "EX", "1000")
	first.heartbeat(t.Context())
	keys, err := first.SigningKeys(t.Context())
	if err != nil || len(keys) != 2 || string(keys[0]) != another || !bytes.Equal(keys[1], key) {
		t.Errorf("keys %q, %v; want %q, and %q of before", keys, err, another, key)
	}
}

// TestSigningKeyTooShort checks that a key that is easy to guess is rejected.
func TestSigningKeyTooShort(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Must(t, "SET", "hg2:headgate:key", "", "EX", "1000")
	s := open(t, standalone(server))
	if keys, err := s.SigningKeys(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

func signingKey(t *testing.T, s *Store) []byte {
	t.Helper()
	keys, err := s.SigningKeys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %q, %v", keys, err)
	}
	return keys[0]
}
