package limitfields_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

func failed(l *headgate.LimitDecision) {
	l.Result = headgate.Result{Err: headgate.ErrUnavailable}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	const exceeded = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,`
	for name, test := range map[string]struct {
		d      *headgate.Decision
		status int
		want   string
	}{
		"one": {
			decision(limit("a", 7), denying("b", 7*time.Second)), http.StatusTooManyRequests, exceeded +
				`"violated-policies":["b"],"error":"rate_limit_exceeded","message":"rate limit exceeded: b allows 10/minute; retry in 7 seconds",` +
				`"rule":"b","retry_after":7}`,
		},
		"one second": {
			decision(denying("b", 1)), http.StatusTooManyRequests, exceeded +
				`"violated-policies":["b"],"error":"rate_limit_exceeded","message":"rate limit exceeded: b allows 10/minute; retry in 1 second",` +
				`"rule":"b","retry_after":1}`,
		},
		"never": {
			decision(denying("b", headgate.Never)), http.StatusTooManyRequests, exceeded +
				`"violated-policies":["b"],"error":"rate_limit_exceeded","message":"rate limit exceeded: b allows 10/minute and can never allow a request of cost 1",` +
				`"rule":"b","retry_after":null}`,
		},
		"concurrency": {
			decision(inFlight("b", 0)), http.StatusTooManyRequests, exceeded +
				`"violated-policies":["b"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: b allows 20 concurrent requests; retry in 1 second","rule":"b","retry_after":1}`,
		},
		"hidden": {
			decision(denying("b", time.Second), change(denying("c", time.Minute), hide)), http.StatusTooManyRequests, exceeded +
				`"violated-policies":["b","(hidden)"],"error":"rate_limit_exceeded","message":"rate limit exceeded; retry in 60 seconds",` +
				`"rule":"(hidden)","retry_after":60}`,
		},
		"undecided": {
			decision(change(limit("b", 0), failed)), http.StatusServiceUnavailable,
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
				`"title":"Temporarily reduced capacity","status":503,"violated-policies":["b"],"error":"rate_limit_unavailable",` +
				`"message":"rate limit unavailable: b cannot be checked at the moment; retry in 1 second","rule":"b","retry_after":1}`,
		},
	} {
		status, body := limitfields.Problem(test.d, limitfields.RetryAfter(test.d, none), http.StatusTooManyRequests)
		if status != test.status || string(body) != test.want+"\n" {
			t.Errorf("%s: %d\n%swant %d\n%s", name, status, body, test.status, test.want)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]headgate.LimitDecision{
		"allows 10/minute":                denying("a", time.Second),
		"is exceeded":                     change(denying("a", time.Second), hide),
		"cannot be checked at the moment": change(limit("a", 0), failed),
		"denies calls without user":       change(denying("a", headgate.Never), func(l *headgate.LimitDecision) { l.Missing = "user" }),
		"allows 10/minute and can never allow a call of cost 1": denying("a", headgate.Never),
		"allows 20 concurrent calls":                            inFlight("a", 0),
		"allows 1 concurrent call and can never allow a call of cost 1": change(inFlight("a", 0), func(l *headgate.LimitDecision) {
			l.Limit.Count, l.Limit.Window, l.RetryAfter = 1, time.Minute, headgate.Never
		}),
	} {
		if got := limitfields.Reason(&l, "call"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
