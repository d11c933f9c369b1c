package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

const (
	// minSigningKey is how long a signing key is at least. The one that nodes make has 26 characters, of 130 bits.
	minSigningKey = 16
	// signingTTL outlives every hold, and is renewed with each turn of a node.
	signingTTL = 24 * time.Hour
)

// Namespace returns the namespace of the counters.
func (s *Store) Namespace() string { return s.namespace }

// SigningKeys returns the key that all nodes of the namespace sign tokens with, and the one before it if there was another. The
// first node makes it and keeps it in Redis; it is lost only with Redis and all its nodes. A node that has not learned it yet waits
// for Redis, up to a second.
func (s *Store) SigningKeys(ctx context.Context) ([][]byte, error) {
	if keys := s.signing.Load(); keys != nil {
		return *keys, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return s.agreeOnKey(ctx)
}

// agreeOnKey offers a key and learns which one stands: this node's last one, or else a new one, if Redis has none.
func (s *Store) agreeOnKey(ctx context.Context) ([][]byte, error) {
	client, err := s.link.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w: %w", headgate.ErrUnavailable, err)
	}
	known := s.signing.Load()
	offer := rand.Text()
	if known != nil {
		offer = string((*known)[0])
	}
	name := s.prefix + "key"
	answers := client.DoMulti(ctx,
		client.B().Set().Key(name).Value(offer).Nx().Get().Build(),
		client.B().Expire().Key(name).Seconds(int64(signingTTL.Seconds())).Build())
	stands, err := answers[0].ToString()
	switch {
	case rueidis.IsRedisNil(err):
		stands = offer
	case err != nil:
		return nil, fmt.Errorf("redisstore: %w: key %s: %w", headgate.ErrUnavailable, name, err)
	case len(stands) < minSigningKey:
		return nil, fmt.Errorf("redisstore: %w: key %s has %d bytes, and a signing key at least %d: delete it, and a new one is made",
			headgate.ErrUnavailable, name, len(stands), minSigningKey)
	}
	keys := [][]byte{[]byte(stands)}
	if known != nil {
		if stands == offer {
			return *known, nil
		}
		keys = append(keys, []byte(offer)) // tokens of an hour at most are still signed with it
	}
	if !s.signing.CompareAndSwap(known, &keys) {
		return *s.signing.Load(), nil
	}
	return keys, nil
}
