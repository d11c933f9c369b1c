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
	// minSigningKey is the minimum length of a signing key. The keys that nodes generate have 26 characters (130 bits).
	minSigningKey = 16
	// signingTTL is longer than any hold, and is renewed with each heartbeat.
	signingTTL = 24 * time.Hour
)

// Namespace returns the namespace of the counters.
func (s *Store) Namespace() string { return s.namespace }

// SigningKeys returns the key with which all nodes of the namespace sign tokens, followed by the previous key if there was
// another. The first node generates it and stores it in Redis. It is lost only if Redis and all nodes lose it. A node that
// does not have it yet waits for Redis, up to a second.
func (s *Store) SigningKeys(ctx context.Context) ([][]byte, error) {
	if keys := s.signing.Load(); keys != nil {
		return *keys, nil
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	return s.agreeOnKey(ctx)
}

// agreeOnKey offers this node's last key, or a new one, and learns the current key, which is the offered one if Redis has
// none.
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
	current, err := agreeOn(ctx, client, name, offer, signingTTL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redisstore: %w: key %s: %w", headgate.ErrUnavailable, name, err)
	case len(current) < minSigningKey:
		return nil, fmt.Errorf("redisstore: %w: signing key %s has %d bytes, must have at least %d: delete it to generate a new one",
			headgate.ErrUnavailable, name, len(current), minSigningKey)
	}
	keys := [][]byte{[]byte(current)}
	if known != nil {
		if current == offer {
			return *known, nil
		}
		keys = append(keys, []byte(offer)) // tokens up to an hour old are still signed with it
	}
	if !s.signing.CompareAndSwap(known, &keys) {
		return *s.signing.Load(), nil
	}
	return keys, nil
}

// agreeOn offers a value for a key, renews the key's TTL, and returns the value that the key has: the offered one if it had none.
func agreeOn(ctx context.Context, client rueidis.Client, key, offer string, ttl time.Duration) (string, error) {
	replies := client.DoMulti(ctx,
		client.B().Set().Key(key).Value(offer).Nx().Get().Build(),
		client.B().Expire().Key(key).Seconds(int64(ttl.Seconds())).Build())
	current, err := replies[0].ToString()
	if rueidis.IsRedisNil(err) {
		return offer, nil
	}
	return current, err
}
