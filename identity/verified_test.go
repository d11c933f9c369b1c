package identity

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"
)

func TestSeenTokensAreBounded(t *testing.T) {
	t.Parallel()
	var seen verifiedTokens
	now := time.Now()
	used := sha256.Sum256([]byte("used"))
	seen.put(used, map[string]any{"sub": "ada"}, now.Add(time.Hour))
	for i := range 10 * maxVerified {
		seen.put(sha256.Sum256([]byte(strconv.Itoa(i))), nil, time.Time{})
		if i%1000 == 0 {
			if claims, ok := seen.get(used, now); !ok || claims["sub"] != "ada" {
				t.Fatalf("after %d others: claims %v", i, claims)
			}
		}
		if n := len(seen.young) + len(seen.old); n > 2*maxVerified {
			t.Fatalf("%d tokens are remembered", n)
		}
	}
	if _, ok := seen.get(sha256.Sum256([]byte("0")), now); ok {
		t.Error("the first of many is still remembered")
	}
}
