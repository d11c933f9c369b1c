package httplimit_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// evenly returns a limiter that allows one request per second, on the synctest clock.
func evenly(t *testing.T, maxDelay time.Duration) *headgate.Limiter {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{Clock: time.Now}), headgate.Rule{
		ID: "even", By: []string{"ip"}, MaxDelay: maxDelay,
		Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// TestDelay tests that requests leave a leaky bucket one by one, and that requests with too long a delay are denied at once.
func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var allowed []time.Duration
		h := httplimit.New(evenly(t, 3*time.Second), httplimit.Options{})(http.HandlerFunc(
			func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				allowed = append(allowed, time.Since(begin))
			}))
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				if w := serve(h, get("/")); w.Code != http.StatusOK && time.Since(begin) != 0 {
					t.Errorf("denied after %s", time.Since(begin))
				}
			})
		}
		group.Wait()
		if len(allowed) != 4 {
			t.Fatalf("%d allowed, want 4", len(allowed))
		}
		for i, at := range allowed {
			if at != time.Duration(i)*time.Second {
				t.Errorf("request %d allowed after %s", i, at)
			}
		}
	})
}

func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.NewWithRandom(evenly(t, time.Minute), httplimit.Options{MaxWaiters: 2}, exact)(hello)
		serve(h, get("/"))
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				if w := serve(h, get("/")); w.Code != http.StatusOK {
					t.Errorf("status %d", w.Code)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		compare(t, serve(h, get("/")), `429
			RateLimit-Policy: "even";q=1;w=1
			RateLimit: "even";r=0;t=3
			X-RateLimit-Limit: 1
			X-RateLimit-Remaining: 0
			X-RateLimit-Reset: 946684804
			Retry-After: 3
			Content-Type: application/problem+json
			{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,`+
			`"violated-policies":["even"],"error":"rate_limit_exceeded",`+
			`"message":"rate limit exceeded: even allows 1/second, leaky_bucket; retry in 3 seconds","rule":"even","retry_after":3}`)
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("a request over MaxWaiters was delayed for %s", waited)
		}
		group.Wait()
		if w := serve(h, get("/")); w.Code != http.StatusOK {
			t.Errorf("status %d after the others have finished", w.Code)
		}
	})
}

// TestNegativeMaxWaiters tests that no request is delayed.
func TestNegativeMaxWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(evenly(t, time.Minute), httplimit.Options{MaxWaiters: -1})(hello)
		if w := serve(h, get("/")); w.Code != http.StatusOK {
			t.Errorf("request without delay: status %d", w.Code)
		}
		if w := serve(h, get("/")); w.Code != http.StatusTooManyRequests {
			t.Errorf("request with delay: status %d", w.Code)
		}
	})
}

// TestContextEndsDuringDelay tests that a delayed request whose context ends stops waiting, never reaches the handler, and does
// not get the implicit 200.
func TestContextEndsDuringDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reached := 0
		var denied headgate.Decision
		h := httplimit.NewWithRandom(evenly(t, time.Minute), httplimit.Options{
			MaxWaiters: 1,
			OnDenied: func(w http.ResponseWriter, _ *http.Request, d headgate.Decision) {
				denied = d
				w.WriteHeader(http.StatusTooManyRequests)
			},
		}, exact)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
		for range 10 { // the first is allowed at once; each of the others is delayed behind the previous ones
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			begin := time.Now()
			w := serve(h, get("/").WithContext(ctx))
			cancel()
			if w.Code == http.StatusOK && reached == 1 && denied.Limits == nil {
				continue
			}
			waited := time.Since(begin)
			if waited != 250*time.Millisecond || w.Code != http.StatusTooManyRequests || reached != 1 {
				t.Fatalf("after %s: status %d, %d requests reached the handler", waited, w.Code, reached)
			}
			if l := denied.DeniedBy(); l == nil || l.Rule != "even" || l.RetryAfter != denied.RetryAfter || denied.Delay != 0 {
				t.Fatalf("denied by %+v", l)
			}
		}
		if denied.RetryAfter != 9*time.Second-9*250*time.Millisecond {
			t.Errorf("RetryAfter of the last request: %s", denied.RetryAfter)
		}
	})
}

// TestDecisionIsNotModified tests that a Checker may return the same decision to several requests.
func TestDecisionIsNotModified(t *testing.T) {
	t.Parallel()
	d := headgate.Decision{Allowed: true, Delay: time.Second, Limits: []headgate.LimitDecision{
		{Rule: "a", Enforced: true, Result: headgate.Result{Allowed: true, Delay: time.Second, Time: noon}},
	}}
	w := serve(httplimit.New(static{decision: d}, httplimit.Options{MaxWaiters: -1})(hello), get("/"))
	if l := d.Limits[0]; w.Code != http.StatusTooManyRequests || !l.Allowed || l.Delay != time.Second {
		t.Errorf("status %d, limit modified to %+v", w.Code, l)
	}
}
