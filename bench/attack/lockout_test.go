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

// TestWrongTokensDoNotLockOut sends wrong tokens continuously from the address of a proxy, and valid ones from the same address.
// Wrong tokens must be slowed down, valid ones must not.
func TestWrongTokensDoNotLockOut(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	valid, line, err := adminapi.NewToken("ops", "editor")
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, err := adminapi.NewToken("unknown", "editor")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startServer(t, fmt.Sprintf("redis: {address: \"redis://%s\"}\nadmin: {tokens_file: %q}\n", redis.Addr(), tokens),
		"rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
	for name, guess := range map[string]string{"made up": "hunter2", "well-formed": wrong, "signed": "e30.e30." + strings.Repeat("A", 43)} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they share the limit of their address
			ctx, cancel := context.WithCancel(t.Context())
			var guessing sync.WaitGroup
			defer guessing.Wait()
			defer cancel()
			for range 8 {
				guessing.Go(func() {
					for ctx.Err() == nil {
						_, _, _ = sendRefund(ctx, n.HTTP, guess)
					}
				})
			}
			rejected := 0
			for range size(50, 1_000) {
				status, text, err := sendRefund(t.Context(), n.HTTP, valid)
				if err != nil {
					t.Fatal(err)
				}
				if status == http.StatusForbidden { // a timeout of a busy Redis has another status
					rejected++
					t.Logf("%d %.200s", status, text)
				}
			}
			status, text, err := sendRefund(t.Context(), n.HTTP, guess)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d valid tokens were rejected; status of a wrong one: %d", rejected, size(50, 1_000), status)
			if rejected > 0 {
				t.Errorf("%d of %d valid tokens were rejected because of wrong ones from the same address", rejected, size(50, 1_000))
			}
			if !strings.Contains(text, "too many wrong tokens") {
				t.Errorf("response to a wrong token among thousands: %d %s", status, text)
			}
		})
	}
}

// sendRefund refunds a unit, which requires a token.
func sendRefund(ctx context.Context, address, token string) (status int, text string, err error) {
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
		return 0, "", fmt.Errorf("read the response: %w", err)
	}
	return response.StatusCode, string(body), nil
}
