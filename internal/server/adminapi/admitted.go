package adminapi

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
)

// mostAdmitted bounds what tokens take of memory. A token that is forgotten waits its turn again, once.
const mostAdmitted = 1_000

// admitted are tokens that were right when they were last looked up, by their hash. Only those that cannot be guessed are among
// them. The zero value is ready for use.
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
		if len(a.sums) < mostAdmitted {
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

// unguessable reports whether a token has the form of one that headgate token create makes, which is 256 random bits, or of one
// that is signed with a key of as many. Whoever sends such tokens at any rate finds none.
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
