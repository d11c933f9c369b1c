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

// retryAfter is what a denial with this wait says, in its header and, the same, in its body.
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

// TestRetryAfterIsNeverEarly holds Retry-After between the truth and its bound, for any wait and any chance.
func TestRetryAfterIsNeverEarly(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		wait := time.Duration(random.Int64N(int64(1) << (10 + random.IntN(45))))
		wait = wait.Truncate(time.Microsecond) + time.Microsecond
		if random.IntN(4) == 0 {
			wait = wait.Truncate(time.Second) + time.Second
		}
		truth := int64((wait + time.Second - 1) / time.Second)
		least := retryAfter(t, wait, exact)
		some := retryAfter(t, wait, random.Int64N)
		most := retryAfter(t, wait, func(n int64) int64 { return n - 1 })
		if spread := min(max(truth/10, 1), 300); least != truth || some < least || some > most || most != truth+spread {
			t.Fatalf("wait %s: %d to %d, now %d; want %d to %d", wait, least, most, some, truth, truth+spread)
		}
	}
}

// TestRetryAfterSpreads shows that clients who are denied together come back apart.
func TestRetryAfterSpreads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "all", By: headgate.Global, Limit: headgate.Per(1, 10*time.Minute)})
	h := httplimit.New(w.limiter, httplimit.Options{})(hello)
	serve(h, get("/"))
	seen := map[string]int{}
	for range 1000 {
		seen[serve(h, get("/")).Header().Get("Retry-After")]++
	}
	// 61 values are as likely; that one of them comes 60 times, or 11 never, is not to be seen in a lifetime.
	if len(seen) < 50 {
		t.Errorf("only %d values", len(seen))
	}
	for value, count := range seen {
		if count > 60 {
			t.Errorf("%s comes %d times", value, count)
		}
	}
}

// TestComingBackInTime takes the middleware at its word: who waits for Retry-After passes.
func TestComingBackInTime(t *testing.T) {
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
				answer := serve(h, get("/"))
				if answer.Code == http.StatusOK {
					continue
				}
				denied++
				seconds, err := strconv.Atoi(answer.Header().Get("Retry-After"))
				if err != nil {
					t.Fatal(err)
				}
				w.advance(time.Duration(seconds) * time.Second)
				if answer := serve(h, get("/")); answer.Code != http.StatusOK {
					t.Fatalf("after %d seconds:\n%s", seconds, render(answer))
				}
			}
			if denied == 0 {
				t.Error("nothing was denied")
			}
		})
	}
}

// TestReset shows that X-RateLimit-Reset is true: then all is there again, and a second before not yet.
func TestReset(t *testing.T) {
	t.Parallel()
	for used := 1; used <= 10; used++ {
		for _, early := range []time.Duration{0, time.Second} {
			w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.Per(10, 70*time.Second)})
			h := httplimit.New(w.limiter, httplimit.Options{})(hello)
			var answer http.Header
			for range used {
				answer = serve(h, get("/")).Header()
			}
			reset, err := strconv.ParseInt(answer.Get("X-RateLimit-Reset"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			w.advance(time.Unix(reset, 0).Sub(w.now()) - early)
			left := serve(h, get("/")).Header().Get("X-RateLimit-Remaining")
			if full := left == "9"; full != (early == 0) {
				t.Errorf("%d used, %s before the reset: %s are left besides the one taken", used, early, left)
			}
		}
	}
}
