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

	// A denial's body is read to its end, so that the connection can be used again, but not for longer than a new
	// connection would take.
	maxDrain     = 64 << 10
	maxDrainTime = 500 * time.Millisecond
)

// Options say how patient a Transport is. The zero value suits a program in which somebody waits for the answer. Values
// below zero mean the default, as zero does.
type Options struct {
	// MaxWait is the longest wait that a server may ask for; 0 means 30 s. If it asks for more, the caller gets the
	// response at once. A random while comes on top of what it asks for: up to a quarter of that, or up to the wait that
	// Backoff would make of this attempt if that is more.
	MaxWait time.Duration
	// MaxAttempts is how often a request is sent, the first time included; 0 means 4, and 1 that nothing is sent again.
	MaxAttempts int
	// Backoff is the least wait after the first attempt where the server asks for none; 0 means 500 ms. It doubles with
	// each attempt up to half of MaxWait. The wait is between this and twice as long, at random.
	Backoff time.Duration

	// BudgetRatio and BudgetBurst keep retries from adding to the troubles of an API that denies everything. All requests
	// of a Transport share one budget. It holds BudgetBurst retries at most; 0 means 10. Each request adds BudgetRatio of
	// a retry, 0 means 0.1, and ten seconds fill it from empty. Whoever finds it empty gets the response at once. A
	// program whose workers should all wait, however long it takes, wants a large BudgetBurst.
	BudgetRatio float64
	BudgetBurst int

	// OnRetry is told of every retry before the wait. It is called by many goroutines at a time, and the request waits for
	// it to return.
	OnRetry func(Retry)
}

// Retry is a request that was denied and will be sent again.
type Retry struct {
	// Request is the caller's. It must not be changed.
	Request *http.Request
	// Status of the denial: 429 or 503.
	Status int
	// Attempt is the one that was denied; the first is 1.
	Attempt int
	// Wait until the next attempt.
	Wait time.Duration
	// Header that asks for the wait, such as "Retry-After"; empty if none does, and the wait is the transport's own.
	Header string
}

// Transport is an http.RoundTripper that backs off when it is denied. Use one for each API, since a budget is of use
// to one only. It is safe for use by many goroutines.
type Transport struct {
	next        http.RoundTripper
	maxWait     time.Duration
	maxAttempts int
	backoff     time.Duration
	budget      *budget
	onRetry     func(Retry)
}

// New sends requests through next; nil means http.DefaultTransport.
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

// RoundTrip sends the request until it is not denied any more, or waiting makes no sense; then it returns the last
// response. If the context ends during a wait, its cause is the error.
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
		if send, ok = again(req); !ok {
			return resp, nil
		}
		if t.onRetry != nil {
			t.onRetry(retry)
		}
		if err := pause(req.Context(), retry.Wait, resp.Body); err != nil {
			if send.Body != nil {
				_ = send.Body.Close() // never sent, so nobody else closes it
			}
			return nil, err
		}
	}
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls. It is passed on.
func (t *Transport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// plan says whether to send a request again and when. If it says so, the retry is paid for.
func (t *Transport) plan(req *http.Request, resp *http.Response, attempt int) (Retry, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return Retry{}, false
	}
	now := time.Now()
	told := adviceOf(resp.Header, now)
	if attempt >= t.maxAttempts || told.wait > t.maxWait || !replayable(req) || !harmless(req, resp, told) {
		return Retry{}, false
	}
	own := t.ownWait(attempt)
	least, spread := own, own
	if told.header != "" {
		least, spread = told.wait, max(told.wait/4, own)
	}
	if deadline, ok := req.Context().Deadline(); ok {
		slack := deadline.Sub(now) - least
		if slack <= 0 {
			return Retry{}, false
		}
		spread = min(spread, slack/2) // the other half is for the answer
	}
	if !t.budget.spend(now) {
		return Retry{}, false
	}
	return Retry{
		Request: req,
		Status:  resp.StatusCode,
		Attempt: attempt,
		Wait:    least + rand.N(spread+1), //nolint:gosec // chance is all that is needed of it
		Header:  told.header,
	}, true
}

// ownWait is the least wait after an attempt where the server names none.
func (t *Transport) ownWait(attempt int) time.Duration {
	wait, most := t.backoff, t.maxWait/2
	for i := 1; i < attempt && wait < most; i++ {
		wait = min(2*wait, most)
	}
	return wait
}

// replayable says whether the body, if there is one, can be sent twice.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// harmless says whether the denied request may be sent twice: because it was not carried out the first time, or
// because twice is as good as once.
func harmless(req *http.Request, resp *http.Response, told advice) bool {
	if resp.StatusCode == http.StatusTooManyRequests || told.header == retryAfter {
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// As for net/http, a key without a value is enough: it is not sent, but says that the request is idempotent.
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return key || xKey
}

// again is a copy of the request with a body of its own: the caller's must not be changed.
func again(req *http.Request) (*http.Request, bool) {
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

// pause waits from now on and meanwhile gives the connection back, which others may need.
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

// drain reads what is left of a body and closes it, within bounds. What goes wrong costs a connection and nothing else.
func drain(body io.ReadCloser) {
	if body == nil { // http.Client forgives this to transports, so it must not matter here
		return
	}
	shut := sync.OnceFunc(func() { _ = body.Close() })
	defer shut()
	late := time.AfterFunc(maxDrainTime, shut)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, maxDrain)
}
