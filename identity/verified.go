package identity

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerified is the capacity of each of the two generations.
const maxVerified = 4096

// verifiedTokens caches the claims of verified tokens by the token's hash: verifying a token is about fifty times as expensive as a
// lookup. It belongs to a set of keys and is dropped with it. When the young generation is full, it replaces the old one. A lookup
// moves a token from the old generation to the young one.
type verifiedTokens struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]verifiedToken
}

type verifiedToken struct {
	claims map[string]any
	until  time.Time // zero if the token does not expire
}

func (s *verifiedTokens) get(sum [sha256.Size]byte, now time.Time) (map[string]any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, ok := s.young[sum]
	if !ok {
		if token, ok = s.old[sum]; ok {
			s.add(sum, token)
		}
	}
	if !ok || !token.until.IsZero() && !now.Before(token.until) {
		return nil, false
	}
	return token.claims, true
}

func (s *verifiedTokens) put(sum [sha256.Size]byte, claims map[string]any, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(sum, verifiedToken{claims: claims, until: until})
}

func (s *verifiedTokens) add(sum [sha256.Size]byte, token verifiedToken) {
	if s.young == nil || len(s.young) >= maxVerified {
		s.young, s.old = make(map[[sha256.Size]byte]verifiedToken), s.young
	}
	s.young[sum] = token
}
