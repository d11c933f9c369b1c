package limitfields_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

var noon = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// limit returns an exposed and enforced limit of 10 per minute that allows the request and resets in 30 seconds.
func limit(rule string, remaining int64) headgate.LimitDecision {
	return headgate.LimitDecision{
		Rule: rule, Limit: headgate.PerMinute(10), Enforced: true, Exposed: true, Cost: 1,
		Result: headgate.Result{Allowed: true, Remaining: remaining, ResetAfter: 29*time.Second + 1, Time: noon},
	}
}

// denying returns a limit that denies the request for the given wait.
func denying(rule string, wait time.Duration) headgate.LimitDecision {
	l := limit(rule, 3)
	l.Allowed, l.RetryAfter = false, wait
	return l
}

// decision returns the decision that consists of these limits.
func decision(limits ...headgate.LimitDecision) *headgate.Decision {
	d := &headgate.Decision{Allowed: true, Limits: limits}
	if worst := d.DeniedBy(); worst != nil {
		d.Allowed, d.RetryAfter = false, worst.RetryAfter
	}
	return d
}

func change(l headgate.LimitDecision, edit func(l *headgate.LimitDecision)) headgate.LimitDecision {
	edit(&l)
	return l
}

// inFlight returns a concurrency limit of 20 with the given number of units remaining, which denies if there is none.
func inFlight(rule string, remaining int64) headgate.LimitDecision {
	l := limit(rule, remaining)
	l.Limit = headgate.Concurrent(20)
	if remaining == 0 {
		l.Allowed, l.RetryAfter = false, headgate.Unknown
	}
	return l
}

func hide(l *headgate.LimitDecision) { l.Exposed = false }

func none(int64) int64 { return 0 }

func TestHeaders(t *testing.T) {
	t.Parallel()
	draft, legacy, older := limitfields.Choice{Draft: true}, limitfields.Choice{Legacy: true}, limitfields.Choice{OlderDraft: true}
	for name, test := range map[string]struct {
		headers *limitfields.Headers
		d       *headgate.Decision
		want    string
	}{
		"no limit":  {&limitfields.Headers{Choice: draft}, decision(), ""},
		"no header": {&limitfields.Headers{}, decision(limit("a", 7)), ""},
		"draft": {
			&limitfields.Headers{Choice: draft}, decision(limit("a", 7), limit("b", 3)),
			`RateLimit-Policy: "a";q=10;w=60, "b";q=10;w=60 | RateLimit: "a";r=7;t=30, "b";r=3;t=30`,
		},
		"next draft": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Version: ratelimitdraft.DraftNext}}, decision(limit("a", 7)),
			`RateLimit-Policy: "a";q=10;w=60 | RateLimit: "a";a=7;w=30`,
		},
		"names": {
			&limitfields.Headers{Choice: draft},
			decision(change(limit(`a"\é`, 7), func(l *headgate.LimitDecision) { l.Name = "month" })),
			`RateLimit-Policy: "a\"\\??#month";q=10;w=60 | RateLimit: "a\"\\??#month";r=7;t=30`,
		},
		"a window of less than a second": {
			&limitfields.Headers{Choice: draft},
			decision(change(limit("a", 7), func(l *headgate.LimitDecision) { l.Limit = headgate.Per(10, time.Second/2) })),
			`RateLimit-Policy: "a";q=10 | RateLimit: "a";r=7;t=30`,
		},
		"legacy": {
			&limitfields.Headers{Choice: legacy}, decision(limit("a", 7), limit("b", 3)),
			"X-RateLimit-Limit: 10 | X-RateLimit-Remaining: 3 | X-RateLimit-Reset: 1794830430",
		},
		"older draft": {
			&limitfields.Headers{Choice: older}, decision(limit("a", 7)),
			"RateLimit-Limit: 10 | RateLimit-Remaining: 7 | RateLimit-Reset: 30",
		},
		"denied": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, OlderDraft: true}},
			decision(limit("a", 7), denying("b", 90*time.Second)),
			`RateLimit-Policy: "a";q=10;w=60, "b";q=10;w=60 | RateLimit: "a";r=7;t=30, "b";r=0;t=90 | ` +
				"RateLimit-Limit: 10 | RateLimit-Remaining: 0 | RateLimit-Reset: 90 | Retry-After: 90",
		},
		"never": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, OlderDraft: true}}, decision(denying("a", headgate.Never)),
			`RateLimit-Policy: "a";q=10;w=60 | RateLimit: "a";r=0 | RateLimit-Limit: 10 | RateLimit-Remaining: 0`,
		},
		"not exposed": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Legacy: true}}, decision(change(limit("a", 7), hide)), "",
		},
		"denied by an unexposed limit": {
			&limitfields.Headers{Choice: draft},
			decision(change(denying("a", time.Second), hide), change(denying("b", time.Minute), hide), limit("c", 7)),
			`RateLimit-Policy: "(hidden)";q=10;w=60, "c";q=10;w=60 | RateLimit: "(hidden)";r=0;t=60, "c";r=7;t=30 | Retry-After: 60`,
		},
		"not decided": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Legacy: true}},
			decision(change(limit("a", 0), func(l *headgate.LimitDecision) {
				l.Result = headgate.Result{Allowed: true, Err: headgate.ErrUnavailable}
			})),
			`RateLimit-Policy: "a";q=10;w=60`,
		},
		"concurrency": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Legacy: true, OlderDraft: true}},
			decision(limit("a", 7), inFlight("b", 8)),
			`RateLimit-Policy: "a";q=10;w=60, "b";q=20;qu="concurrent-requests" | RateLimit: "a";r=7;t=30, "b";r=8 | ` +
				"X-RateLimit-Limit: 20 | X-RateLimit-Remaining: 8 | RateLimit-Limit: 20 | RateLimit-Remaining: 8",
		},
		"denied by a concurrency limit": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Legacy: true, OlderDraft: true}}, decision(inFlight("b", 0)),
			`RateLimit-Policy: "b";q=20;qu="concurrent-requests" | RateLimit: "b";r=0 | ` +
				"X-RateLimit-Limit: 20 | X-RateLimit-Remaining: 0 | RateLimit-Limit: 20 | RateLimit-Remaining: 0 | Retry-After: 1",
		},
		"concurrency in the next draft": {
			&limitfields.Headers{Choice: limitfields.Choice{Draft: true, Version: ratelimitdraft.DraftNext}}, decision(inFlight("b", 8)),
			`RateLimit-Policy: "b";q=20;qu="concurrent-requests" | RateLimit: "b";a=8`,
		},
		"max limits": {
			&limitfields.Headers{Choice: draft, MaxLimits: 1}, decision(limit("a", 7), limit("b", 3), denying("c", time.Second)),
			`RateLimit-Policy: "a";q=10;w=60, "c";q=10;w=60 | RateLimit: "a";r=7;t=30, "c";r=0;t=1 | Retry-After: 1`,
		},
	} {
		retryAfter := limitfields.RetryAfter(test.d, none)
		var got []string
		header := http.Header{"Ratelimit": {"set by the handler"}}
		test.headers.Put(header, test.d, retryAfter)
		test.headers.Each(test.d, retryAfter, func(field *limitfields.Field, value []byte) {
			got = append(got, field.Name+": "+string(value))
			if header.Get(field.Key) != string(value) {
				t.Errorf("%s: %s Put wrote %q, Each wrote %q", name, field.Name, header.Get(field.Key), value)
			}
		})
		if text := strings.Join(got, " | "); text != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, text, test.want)
		}
	}
}

// TestHeadersDoNotShareMemory tests that appending to one header does not change another, and that goroutines do not share buffers.
func TestHeadersDoNotShareMemory(t *testing.T) {
	t.Parallel()
	headers := &limitfields.Headers{Choice: limitfields.Choice{Draft: true, Legacy: true}}
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			rule := strings.Repeat("r", n+1)
			for range 200 {
				header := http.Header{}
				headers.Put(header, decision(limit(rule, int64(n))), nil)
				header.Add("RateLimit-Policy", "more")
				if got, want := header.Get("RateLimit"), fmt.Sprintf("%q;r=%d;t=30", rule, n); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
		})
	}
	running.Wait()
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	highest := func(n int64) int64 { return n - 1 }
	for wait, want := range map[time.Duration][2]int64{
		0: {1, 2}, time.Millisecond: {1, 2}, time.Second: {1, 2}, time.Second + 1: {2, 3}, 100 * time.Second: {100, 110},
		720 * time.Hour: {2_592_000, 2_592_300},
	} {
		d := &headgate.Decision{RetryAfter: wait}
		if earliest, latest := *limitfields.RetryAfter(d, none), *limitfields.RetryAfter(d, highest); [2]int64{earliest, latest} != want {
			t.Errorf("%v: %d to %d seconds, want %v", wait, earliest, latest, want)
		}
	}
	for _, d := range []headgate.Decision{{Allowed: true, RetryAfter: time.Second}, {RetryAfter: headgate.Never}} {
		if retryAfter := limitfields.RetryAfter(&d, none); retryAfter != nil {
			t.Errorf("%+v: %d", d, *retryAfter)
		}
	}
}
