package httplimit_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// retryAfter returns the Retry-After of a denial with this wait, and checks that header and body agree.
func retryAfter(t *testing.T, wait time.Duration, random func(int64) int64) int64 {
	t.Helper()
	d := headgate.Decision{RetryAfter: wait, Limits: []headgate.LimitDecision{{
		Rule: "a", Enforced: true, Exposed: true, Limit: headgate.PerMinute(1),
		Result: headgate.Result{RetryAfter: wait, ResetAfter: wait + time.Hour, Time: noon},
	}}}
	w := serve(httplimit.NewWithRandom(static{decision: d}, httplimit.Options{}, random)(hello), get("/"))
	seconds, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		RetryAfter int64 `json:"retry_after"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.RetryAfter != seconds {
		t.Fatalf("retry_after %d in the body, %d in the header (%v)", body.RetryAfter, seconds, err)
	}
	if _, left := items(t, w.Header(), "RateLimit"); left[0]["t"] > seconds {
		t.Fatalf("Retry-After %d is before t=%d", seconds, left[0]["t"])
	}
	return seconds
}

// TestRetryAfterIsNeverEarly tests that Retry-After is at lowest the wait and at highest the wait plus the jitter's bound.
func TestRetryAfterIsNeverEarly(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		wait := time.Duration(random.Int64N(int64(1) << (10 + random.IntN(45))))
		wait = wait.Truncate(time.Microsecond) + time.Microsecond
		if random.IntN(4) == 0 {
			wait = wait.Truncate(time.Second) + time.Second
		}
		exactWait := int64((wait + time.Second - 1) / time.Second)
		lowest := retryAfter(t, wait, exact)
		jittered := retryAfter(t, wait, random.Int64N)
		highest := retryAfter(t, wait, func(n int64) int64 { return n - 1 })
		spread := min(max(exactWait/10, 1), 300)
		if lowest != exactWait || jittered < lowest || jittered > highest || highest != exactWait+spread {
			t.Fatalf("wait %s: %d to %d, now %d; want %d to %d", wait, lowest, highest, jittered, exactWait, exactWait+spread)
		}
	}
}

// TestRetryAfterSpreads tests that clients that are denied together get different waits.
func TestRetryAfterSpreads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "all", By: headgate.Global, Limit: headgate.Per(1, 10*time.Minute)})
	h := httplimit.New(w.limiter, httplimit.Options{})(hello)
	serve(h, get("/"))
	seen := map[string]int{}
	for range 1000 {
		seen[serve(h, get("/")).Header().Get("Retry-After")]++
	}
	// 61 values are equally likely. The probability that one occurs 60 times, or that 11 never occur, is negligible.
	if len(seen) < 50 {
		t.Errorf("only %d values", len(seen))
	}
	for value, count := range seen {
		if count > 60 {
			t.Errorf("%s occurs %d times", value, count)
		}
	}
}

// TestRetryAfterSuffices tests that a client that waits for Retry-After is allowed.
func TestRetryAfterSuffices(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		headgate.PerSecond(3),
		headgate.PerMinute(7),
		{Count: 1000, Window: time.Minute, Burst: 5},
		headgate.Per(1, 100*time.Millisecond),
		{Algorithm: headgate.FixedWindow, Count: 5, Window: 10 * time.Second},
		{Algorithm: headgate.FixedWindow, Count: 5, Window: time.Minute, Align: headgate.OnClockSpread},
		{Algorithm: headgate.SlidingWindow, Count: 5, Window: 10 * time.Second},
		{Algorithm: headgate.SlidingLog, Count: 5, Window: 10 * time.Second},
		{Algorithm: headgate.LeakyBucket, Count: 1, Window: 3 * time.Second},
		headgate.Quota(5, headgate.Day, nil),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: limit})
			h := httplimit.New(w.limiter, httplimit.Options{})(hello)
			denied := 0
			for i := range 200 {
				w.advance(time.Duration(i%5) * 7 * time.Millisecond)
				response := serve(h, get("/"))
				if response.Code == http.StatusOK {
					continue
				}
				denied++
				seconds, err := strconv.Atoi(response.Header().Get("Retry-After"))
				if err != nil {
					t.Fatal(err)
				}
				w.advance(time.Duration(seconds) * time.Second)
				if response := serve(h, get("/")); response.Code != http.StatusOK {
					t.Fatalf("after %d seconds:\n%s", seconds, render(response))
				}
			}
			if denied == 0 {
				t.Error("nothing was denied")
			}
		})
	}
}

// TestReset tests that the limit is full at X-RateLimit-Reset, and not yet a second before.
func TestReset(t *testing.T) {
	t.Parallel()
	for used := 1; used <= 10; used++ {
		for _, early := range []time.Duration{0, time.Second} {
			w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.Per(10, 70*time.Second)})
			h := httplimit.New(w.limiter, httplimit.Options{})(hello)
			var response http.Header
			for range used {
				response = serve(h, get("/")).Header()
			}
			reset, err := strconv.ParseInt(response.Get("X-RateLimit-Reset"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			w.advance(time.Unix(reset, 0).Sub(w.now()) - early)
			left := serve(h, get("/")).Header().Get("X-RateLimit-Remaining")
			if full := left == "9"; full != (early == 0) {
				t.Errorf("%d used, %s before the reset: %s remaining after one more request", used, early, left)
			}
		}
	}
}
