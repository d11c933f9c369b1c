package retryafter

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	defaultMaxWait     = 30 * time.Second
	defaultMaxAttempts = 4
	defaultBackoff     = 500 * time.Millisecond

	// maxDrain and maxDrainTime bound reading the body of a denial. It is read to its end so that the connection can be reused, but
	// not for longer than a new connection would take.
	maxDrain     = 64 << 10
	maxDrainTime = 500 * time.Millisecond
)

// Options configures how long and how often a Transport retries. The zero value suits an interactive program. A zero or negative
// value means the default.
type Options struct {
	// MaxWait is the longest wait that a server may request. The default is 30 s. If the server requests more, the caller gets the
	// response at once. Jitter is added to the requested wait: up to a quarter of it, or up to the backoff of this attempt if that
	// is more.
	MaxWait time.Duration
	// MaxAttempts is the maximum number of attempts, including the first. The default is 4. 1 disables retries.
	MaxAttempts int
	// Backoff is the minimum wait after the first attempt if the server requests none. The default is 500 ms. It doubles with each
	// attempt, up to half of MaxWait. The actual wait is random, between the backoff and twice the backoff.
	Backoff time.Duration

	// BudgetRatio and BudgetBurst limit retries, so that they do not overload an API that denies everything. All requests of a
	// Transport share one budget of at limit BudgetBurst retries. Each request adds BudgetRatio of a retry, and an empty budget
	// refills in ten seconds. If the budget is empty, the caller gets the response at once. The defaults are 0.1 and 10. Set a large
	// BudgetBurst for a program with many workers that should all wait, however long it takes.
	BudgetRatio float64
	BudgetBurst int

	// OnRetry is called before the wait of each retry, possibly by several goroutines at the same time. The request waits until it
	// returns. The default does nothing.
	OnRetry func(Retry)
}

// Retry describes a request that was denied and will be retried.
type Retry struct {
	// Request is the caller's request. It must not be changed.
	Request *http.Request
	// Status is the status of the denial: 429 or 503.
	Status int
	// Attempt is the number of the denied attempt, starting at 1.
	Attempt int
	// Wait is the time until the next attempt.
	Wait time.Duration
	// Header is the header that requested the wait, such as "Retry-After". It is empty if the wait is a backoff.
	Header string
}

// Transport is an http.RoundTripper that retries denied requests. Use one Transport per API, because its budget should not be shared
// between APIs. It is safe for concurrent use.
type Transport struct {
	next        http.RoundTripper
	maxWait     time.Duration
	maxAttempts int
	backoff     time.Duration
	budget      *budget
	onRetry     func(Retry)
}

// New returns a Transport that sends requests through next. If next is nil, it uses http.DefaultTransport.
func New(next http.RoundTripper, o Options) *Transport {
	if next == nil {
		next = http.DefaultTransport
	}
	if o.MaxWait <= 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = defaultMaxAttempts
	}
	if o.Backoff <= 0 {
		o.Backoff = defaultBackoff
	}
	maxWait := min(o.MaxWait, forever-1)
	return &Transport{
		next:        next,
		maxWait:     maxWait,
		maxAttempts: o.MaxAttempts,
		backoff:     min(o.Backoff, maxWait/2),
		budget:      newBudget(o.BudgetRatio, o.BudgetBurst, time.Now()),
		onRetry:     o.OnRetry,
	}
}

// RoundTrip sends the request until it is no longer denied or must not be retried, and returns the last response. If the context ends
// during a wait, it returns the cause of the context.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.budget.earn(time.Now())
	send := req
	for attempt := 1; ; attempt++ {
		resp, err := t.next.RoundTrip(send)
		if err != nil || resp == nil {
			return resp, err
		}
		retry, ok := t.plan(req, resp, attempt)
		if !ok {
			return resp, nil
		}
		if send, ok = copyRequest(req); !ok {
			return resp, nil
		}
		if t.onRetry != nil {
			t.onRetry(retry)
		}
		if err := pause(req.Context(), retry.Wait, resp.Body); err != nil {
			if send.Body != nil {
				_ = send.Body.Close() // never sent, so the transport does not close it
			}
			return nil, err
		}
	}
}

// CloseIdleConnections closes the idle connections of the underlying transport. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// plan reports whether and when to retry a request. If it returns true, the retry is already charged to the budget.
func (t *Transport) plan(req *http.Request, resp *http.Response, attempt int) (Retry, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return Retry{}, false
	}
	now := time.Now()
	requested := adviceOf(resp.Header, now)
	if attempt >= t.maxAttempts || requested.wait > t.maxWait || !replayable(req) || !harmless(req, resp, requested) {
		return Retry{}, false
	}
	backoff := t.backoffAfter(attempt)
	minimum, spread := backoff, backoff
	if requested.header != "" {
		minimum, spread = requested.wait, max(requested.wait/4, backoff)
	}
	if deadline, ok := req.Context().Deadline(); ok {
		slack := deadline.Sub(now) - minimum
		if slack <= 0 {
			return Retry{}, false
		}
		spread = min(spread, slack/2) // the other half is for the response
	}
	if !t.budget.spend(now) {
		return Retry{}, false
	}
	return Retry{
		Request: req,
		Status:  resp.StatusCode,
		Attempt: attempt,
		Wait:    minimum + rand.N(spread+1), //nolint:gosec // Jitter need not be unpredictable.
		Header:  requested.header,
	}, true
}

// backoffAfter returns the minimum wait after an attempt if the server requests none.
func (t *Transport) backoffAfter(attempt int) time.Duration {
	wait, limit := t.backoff, t.maxWait/2
	for i := 1; i < attempt && wait < limit; i++ {
		wait = min(2*wait, limit)
	}
	return wait
}

// replayable reports whether the request has no body or a body that can be sent twice.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// harmless reports whether a denied request may be sent copyRequest, either because the server did not process it or because it is
// idempotent.
func harmless(req *http.Request, resp *http.Response, requested advice) bool {
	if resp.StatusCode == http.StatusTooManyRequests || requested.header == retryAfter {
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// As in net/http, a key without a value suffices: it is not sent, but marks the request as idempotent.
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return key || xKey
}

// copyRequest returns a copy of the request with a new body, because the caller's request must not be changed.
func copyRequest(req *http.Request) (*http.Request, bool) {
	send := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return send, true
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	send.Body = body
	return send, true
}

// pause waits, and releases the connection for other requests at the start of the wait.
func pause(ctx context.Context, wait time.Duration, body io.ReadCloser) error {
	over := time.After(wait)
	drain(body)
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain reads the rest of a body and closes it, within bounds. A failure only costs the connection.
func drain(body io.ReadCloser) {
	if body == nil { // http.Client tolerates this
		return
	}
	closeBody := sync.OnceFunc(func() { _ = body.Close() })
	defer closeBody()
	late := time.AfterFunc(maxDrainTime, closeBody)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, maxDrain)
}
