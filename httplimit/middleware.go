package httplimit

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/delay"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
	"github.com/headgate/headgate/internal/ratelog"
)

// Checker decides requests. A *headgate.Limiter is one.
type Checker interface {
	// Check decides a request and charges it. Its decision is acted on also if there is an error: a Checker that can do
	// no better lets the request pass. It is called with the context of the HTTP request, charges also if that has
	// ended, and sees to its own deadline.
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	// Attributes are the names of those that the rules look at.
	Attributes() []string
}

// Identity says who sent a request and what it is. An *identity.Resolver is one; one of your own may add what only
// your program knows, such as the user of a session, to what the resolver says.
type Identity interface {
	// Attributes of a request; names are those that the rules look at.
	Attributes(r *http.Request, names ...string) headgate.Attributes
}

// Headers says which headers tell clients of their limits. Retry-After is sent in any case.
type Headers uint8

const (
	// Both are those of Draft and of Legacy.
	Both Headers = iota
	// Draft is RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers.
	Draft
	// Legacy is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	Legacy
	// Off is none.
	Off
)

// DraftVersion is a version of draft-ietf-httpapi-ratelimit-headers. They differ in the names of parameters.
type DraftVersion uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11: RateLimit: "login";r=7;t=30.
	Draft11 = DraftVersion(ratelimitdraft.Draft11)
	// DraftNext is what is proposed for the version after it: RateLimit: "login";a=7;w=30. It is not published, and what this
	// writes follows the proposal from release to release.
	DraftNext = DraftVersion(ratelimitdraft.DraftNext)
)

// Options of the middleware. The zero value is right for a server that clients connect to directly.
type Options struct {
	// Identity says who is calling; nil means an identity.Resolver that believes nobody, and knows clients by their
	// address. Behind a proxy, or with API keys, make one.
	Identity Identity

	// Headers says which headers tell clients of their limits.
	Headers Headers
	// DraftVersion is the version of the draft that RateLimit-Policy and RateLimit follow; the zero value is Draft11.
	DraftVersion DraftVersion
	// OlderDraft adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, unless Headers is Off. They show the
	// limit that X-RateLimit headers show, except that RateLimit-Reset is in seconds from now, as t is.
	OlderDraft bool

	// Status of a denial; 0 means 429. That of a request that is denied only because the store does not answer is 503
	// in any case.
	Status int
	// Deny, if given, answers denied requests in place of the problem document. Headers are set already, Retry-After
	// included, and may be changed.
	OnDenied func(w http.ResponseWriter, r *http.Request, decision headgate.Decision)

	// MaxWaiters is how many requests may be held at a time for leaky buckets; 0 means 1,000, and less than 0 that none
	// is. A request beyond that is denied for as long as it would have been held. It was charged nevertheless, which
	// takes its place in the queue, but lets nobody pass early.
	MaxWaiters int

	// Log is told when the store does not decide, at most every 10 seconds; nil means slog.Default().
	Log *slog.Logger
}

const defaultMaxWaiters = 1000

// middleware is what all handlers that it was put in front of share.
type middleware struct {
	checker  Checker
	who      Identity
	headers  limitfields.Headers
	status   int
	answer   func(http.ResponseWriter, *http.Request, headgate.Decision)
	waiters  delay.Waiters
	log      *slog.Logger
	failures ratelog.Limiter
	// random is a number from 0 up to, not including, n.
	random func(n int64) int64
}

// New makes middleware: a function that puts limits in front of a handler. What it keeps, such as the number of
// requests held, is shared by all handlers that one such function was applied to.
//
// Outside of a http.ServeMux it sees all requests, but not yet which route they take: the attribute route is known
// only in front of the handlers that are registered with the mux.
func New(checker Checker, o Options) func(http.Handler) http.Handler {
	m := newMiddleware(checker, o)
	return func(next http.Handler) http.Handler { return &handler{m, next} }
}

func newMiddleware(checker Checker, o Options) *middleware {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Identity == nil {
		// Nothing is asked for that could be wrong, so there is no error; a test holds that.
		o.Identity, _ = identity.New(identity.Options{Log: o.Log})
	}
	if o.Status == 0 {
		o.Status = http.StatusTooManyRequests
	}
	if o.MaxWaiters == 0 {
		o.MaxWaiters = defaultMaxWaiters
	}
	m := &middleware{
		checker: checker, who: o.Identity, status: o.Status, answer: o.OnDenied,
		waiters: delay.Waiters{Max: int64(o.MaxWaiters)}, log: o.Log,
		random: rand.Int64N,
	}
	m.headers.Choice = limitfields.Choice{
		Draft: o.Headers == Both || o.Headers == Draft, Version: ratelimitdraft.Version(o.DraftVersion),
		Legacy: o.Headers == Both || o.Headers == Legacy, OlderDraft: o.OlderDraft && o.Headers != Off,
	}
	return m
}

type handler struct {
	*middleware
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	d, err := h.checker.Check(ctx, headgate.Request{
		Attributes: h.who.Attributes(r, h.checker.Attributes()...),
	})
	if err != nil || d.Path == headgate.PathFailed {
		limitfields.LogUndecided(ctx, h.log, &h.failures, &d, err)
	}
	if d.Delay > 0 && d.Allowed {
		// A deadline that was set in front of this handler becomes a denial: a handler that returns without a word has said 200.
		_ = h.waiters.Hold(ctx, &d)
	}
	again := limitfields.RetryAfter(&d, h.random)
	h.headers.Put(w.Header(), &d, again)
	if !d.Allowed {
		h.deny(w, r, &d, again)
		return
	}
	if ctx.Err() != nil { // the client has hung up, or a deadline set in front of this handler has passed
		w.WriteHeader(http.StatusServiceUnavailable) // a handler that returns without a word has said 200
		return
	}
	h.next.ServeHTTP(w, r)
}

// deny answers a request that may not pass, whose headers are set.
func (m *middleware) deny(w http.ResponseWriter, r *http.Request, d *headgate.Decision, again *int64) {
	if m.answer != nil {
		m.answer(w, r, *d)
		return
	}
	status, body := limitfields.Problem(d, again, m.status)
	w.Header().Set("Content-Type", limitfields.ProblemType)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // a client that is gone is not told
}
