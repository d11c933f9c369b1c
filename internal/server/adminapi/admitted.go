package adminapi

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
)

// maxAdmitted limits the memory for tokens. An evicted token has to wait for the lock once again.
const maxAdmitted = 1_000

// admitted is a set of tokens, by their hash, that were valid at their last lookup. It has only tokens that cannot be guessed. The
// zero value is ready for use.
type admitted struct {
	mu   sync.Mutex
	sums map[[sha256.Size]byte]struct{}
}

func (a *admitted) has(token string) bool {
	if !unguessable(token) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.sums[sha256.Sum256([]byte(token))]
	return ok
}

func (a *admitted) add(token string) {
	if !unguessable(token) {
		return
	}
	sum := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sums == nil {
		a.sums = map[[sha256.Size]byte]struct{}{}
	}
	for other := range a.sums {
		if len(a.sums) < maxAdmitted {
			break
		}
		delete(a.sums, other)
	}
	a.sums[sum] = struct{}{}
}

func (a *admitted) remove(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sums, sha256.Sum256([]byte(token)))
}

// unguessable reports whether a token has the form of a token made by headgate token create, which has 256 random bits, or of a
// signed token with a signature of as many bits. Such tokens cannot be guessed at any rate.
func unguessable(token string) bool {
	secret, ours := strings.CutPrefix(token, tokenPrefix)
	if !ours {
		if strings.Count(token, ".") != 2 {
			return false
		}
		secret = token[strings.LastIndexByte(token, '.')+1:]
	}
	bits, err := base64.RawURLEncoding.DecodeString(secret)
	return err == nil && len(bits) >= sha256.Size
}
