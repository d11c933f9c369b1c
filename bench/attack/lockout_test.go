package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// TestLockout sends wrong tokens without end from the address of a proxy, and right ones from the same address. Those who guess
// must be slowed down, and nobody whose token is right must be.
func TestLockout(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	right, line, err := adminapi.NewToken("ops", "editor")
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, err := adminapi.NewToken("nobody", "editor")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startServer(t, fmt.Sprintf("redis: {address: \"redis://%s\"}\nadmin: {tokens_file: %q}\n", redis.Addr(), tokens),
		"rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
	for name, guess := range map[string]string{"made up": "hunter2", "made by us": wrong, "signed": "e30.e30." + strings.Repeat("A", 43)} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they would slow one another down
			ctx, cancel := context.WithCancel(t.Context())
			var guessing sync.WaitGroup
			defer guessing.Wait()
			defer cancel()
			for range 8 {
				guessing.Go(func() {
					for ctx.Err() == nil {
						_, _, _ = askRefund(ctx, n.HTTP, guess)
					}
				})
			}
			denied := 0
			for range size(50, 1_000) {
				status, text, err := askRefund(t.Context(), n.HTTP, right)
				if err != nil {
					t.Fatal(err)
				}
				if status == http.StatusForbidden { // that a busy Redis does not answer in time is no matter of tokens
					denied++
					t.Logf("%d %.200s", status, text)
				}
			}
			status, text, err := askRefund(t.Context(), n.HTTP, guess)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d right tokens were denied; a wrong one gets %d", denied, size(50, 1_000), status)
			if denied > 0 {
				t.Errorf("%d of %d right tokens were denied because of wrong ones from the same address", denied, size(50, 1_000))
			}
			if !strings.Contains(text, "too many wrong tokens") {
				t.Errorf("a wrong token among thousands gets %d %s", status, text)
			}
		})
	}
}

// askRefund gives a unit back, for which it takes a token.
func askRefund(ctx context.Context, address, token string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/refund",
		strings.NewReader(`{"attributes": {"ip": "192.0.2.1"}}`))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read the answer: %w", err)
	}
	return response.StatusCode, string(body), nil
}
