package attack

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestResetOfWindow checks the documented reset of a service: the end of the current window of each algorithm.
func TestResetOfWindow(t *testing.T) {
	t.Parallel()
	const window = time.Hour
	algorithms := []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"}
	var rules strings.Builder
	rules.WriteString("rules:\n")
	for _, name := range algorithms {
		fmt.Fprintf(&rules, "- {id: %s, by: [user], limit: {rate: 3/hour, algorithm: %s}, match: {tenant: %s}}\n", name, name, name)
	}
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\n", "redis://"+startRedis(t).Addr()), rules.String())
	for _, name := range algorithms {
		for i := range 5 {
			body, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check",
				fmt.Sprintf(`{"attributes": {"user": "ada", "tenant": %q}}`, name))
			if err != nil {
				t.Fatal(err)
			}
			var decision struct {
				Allowed bool
				Reset   time.Time
				Headers map[string]string
			}
			if err := json.Unmarshal(body, &decision); err != nil {
				t.Fatal(err)
			}
			unix, err := strconv.ParseInt(decision.Headers["X-RateLimit-Reset"], 10, 64)
			if err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			header := time.Unix(unix, 0)
			t.Logf("%s: request %d allowed %v, reset in %s, RateLimit %s", name, i+1, decision.Allowed,
				time.Until(header).Round(time.Second), decision.Headers["RateLimit"])
			if latest := time.Now().Add(window + time.Second); header.After(latest) || decision.Reset.After(latest) {
				t.Errorf("%s: request %d: X-RateLimit-Reset is %s and reset %s, later than a window from now", name, i+1, header, decision.Reset)
			}
		}
	}
}

// TestResetNeverLate charges windows at random. No reset is later than the end of the window, and at that time the window has ended:
// the units of a fixed window are available again, and those of a sliding one belong to the previous window.
func TestResetNeverLate(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range size(2_000, 200_000) {
		algorithm := []headgate.Algorithm{headgate.FixedWindow, headgate.SlidingWindow}[r.IntN(2)]
		limit := headgate.Limit{Algorithm: algorithm, Count: 1 + r.Int64N(20), Window: time.Duration(1+r.IntN(100_000)) * time.Millisecond}
		var state headgate.State
		now := time.Unix(1_000_000_000, 0)
		for range 20 {
			now = now.Add(time.Duration(r.Int64N(int64(limit.Window))) / time.Duration(1+r.IntN(20))).Truncate(time.Microsecond)
			var result headgate.Result
			state, result = limit.Take(state, headgate.Charge{Cost: 1 + r.Int64N(3)}, now)
			reset := now.Add(result.ResetAfter)
			if result.ResetAfter > limit.Window {
				t.Fatalf("%v: reset after %s, more than a window", limit, result.ResetAfter)
			}
			if begun := time.UnixMicro(state.Time); result.Granted > 0 && !reset.Equal(begun.Add(limit.Window)) {
				t.Fatalf("%v: the window began at %s and its reset is %s", limit, begun, reset)
			}
			_, later := limit.Take(state, headgate.Charge{}, reset)
			if algorithm == headgate.FixedWindow && later.Remaining != limit.Count {
				t.Fatalf("%v: %d remaining at its reset", limit, later.Remaining)
			}
		}
	}
}
