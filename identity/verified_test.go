package identity

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"
)

func TestVerifiedTokensAreBounded(t *testing.T) {
	t.Parallel()
	var tokens verifiedTokens
	now := time.Now()
	used := sha256.Sum256([]byte("used"))
	tokens.put(used, map[string]any{"sub": "ada"}, now.Add(time.Hour))
	for i := range 10 * maxVerified {
		tokens.put(sha256.Sum256([]byte(strconv.Itoa(i))), nil, time.Time{})
		if i%1000 == 0 {
			if claims, ok := tokens.get(used, now); !ok || claims["sub"] != "ada" {
				t.Fatalf("after %d others: claims %v", i, claims)
			}
		}
		if n := len(tokens.young) + len(tokens.old); n > 2*maxVerified {
			t.Fatalf("%d tokens are cached", n)
		}
	}
	if _, ok := tokens.get(sha256.Sum256([]byte("0")), now); ok {
		t.Error("the first of many is still cached")
	}
}
