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

// Checker decides requests. *headgate.Limiter implements it.
//
// If a Checker also has the method Begin of *headgate.Limiter, the middleware calls Begin instead of Check, and Decision.Done when the
// handler has returned: concurrency limits then apply. A type that embeds a *headgate.Limiter has both methods and must override both.
type Checker interface {
	// Check decides a request and charges it. The middleware applies the decision even if the error is not nil, so a Checker
	// that cannot decide should return an allowed decision. ctx is the context of the HTTP request. Check must charge even if
	// ctx is done, and must apply its own deadline.
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	// Attributes returns the names of the attributes that the rules use.
	Attributes() []string
}

// beginner is a Checker that applies concurrency limits.
type beginner interface {
	Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error)
}

// Identity resolves a request to its attributes, such as the client's address or API key. *identity.Resolver implements it.
// Your own implementation can wrap a Resolver and add attributes that only your program knows, such as the user of a session.
type Identity interface {
	// Attributes returns the attributes of a request. names lists the attributes that the rules use.
	Attributes(r *http.Request, names ...string) headgate.Attributes
}

// Headers selects the headers that report limits to clients. Choose Both, the default, if you do not know your clients. A denial
// has a Retry-After header regardless of this choice.
type Headers uint8

const (
	// Both selects the headers of Draft and of Legacy.
	Both Headers = iota
	// Draft selects RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers.
	Draft
	// Legacy selects X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	Legacy
	// Off selects no headers.
	Off
)

// DraftVersion is a version of draft-ietf-httpapi-ratelimit-headers. The versions differ in the names of parameters. Choose
// Draft11 unless your clients implement the unpublished proposal.
type DraftVersion uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11: RateLimit: "login";r=7;t=30.
	Draft11 = DraftVersion(ratelimitdraft.Draft11)
	// DraftNext is the proposal for the version after draft 11: RateLimit: "login";a=7;w=30. It is unpublished, and its output
	// may change with the proposal in any release.
	DraftNext = DraftVersion(ratelimitdraft.DraftNext)
)

// Options configures the middleware. The zero value suits a server that clients connect to directly.
type Options struct {
	// Identity resolves requests to attributes. The default is an identity.Resolver that trusts no proxy and identifies clients
	// by their address. Set it if the server is behind a proxy or if clients have API keys.
	Identity Identity
	// Cost returns the cost of a request: a factor of the cost that a rule defines, or, for rules with Cost.Max and without
	// Cost.From, the cost itself. The default, and a result of 0, is 1.
	Cost func(r *http.Request) int64

	// Headers selects the headers that report limits to clients. The default is Both.
	Headers Headers
	// DraftVersion is the version of the draft for RateLimit-Policy and RateLimit. The default is Draft11.
	DraftVersion DraftVersion
	// OlderDraft adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, unless Headers is Off. They report the same
	// limit as the X-RateLimit headers, but RateLimit-Reset is in seconds from now, like t. The default is false.
	OlderDraft bool

	// Status is the status code of a denial. The default is 429. A request that is denied only because the store is
	// unavailable always gets 503.
	Status int
	// OnDenied writes the response to a denied request. The default writes the problem document. The headers, including
	// Retry-After, are already set and may be changed.
	OnDenied func(w http.ResponseWriter, r *http.Request, decision headgate.Decision)

	// MaxWaiters caps the number of requests that are delayed for leaky buckets at the same time. The default (0) is 1,000; a
	// negative value means that no request is delayed. A request over this cap is denied, and its Retry-After is the delay that
	// it would have had. It is charged nevertheless: it keeps its slot in the queue, so no other request is allowed earlier.
	MaxWaiters int

	// Log receives an error when the store does not decide, at most every 10 seconds. The default is slog.Default().
	Log *slog.Logger
}

const defaultMaxWaiters = 1000

// middleware is the state shared by all handlers that one middleware function wraps.
type middleware struct {
	checker  Checker
	decide   func(context.Context, headgate.Request) (headgate.Decision, error) // Begin or Check of the checker
	who      Identity
	cost     func(*http.Request) int64
	headers  limitfields.Headers
	status   int
	onDenied func(http.ResponseWriter, *http.Request, headgate.Decision)
	waiters  delay.Waiters
	log      *slog.Logger
	failures ratelog.Limiter
	// random returns a number in [0, n).
	random func(n int64) int64
}

// New returns middleware: a function that wraps a handler. All handlers wrapped by the same function share its state, such as the
// number of delayed requests.
//
// Wrap an http.ServeMux to limit all requests, or the handlers registered with the mux to use the attribute route: the route is
// not known before the mux has matched the request.
func New(checker Checker, o Options) func(http.Handler) http.Handler {
	m := newMiddleware(checker, o)
	return func(next http.Handler) http.Handler { return &handler{m, next} }
}

func newMiddleware(checker Checker, o Options) *middleware {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Identity == nil {
		// These options cannot cause an error; TestDefaultIdentity checks that.
		o.Identity, _ = identity.New(identity.Options{Log: o.Log})
	}
	if o.Status == 0 {
		o.Status = http.StatusTooManyRequests
	}
	if o.MaxWaiters == 0 {
		o.MaxWaiters = defaultMaxWaiters
	}
	m := &middleware{
		checker: checker, decide: checker.Check, who: o.Identity, cost: o.Cost, status: o.Status, onDenied: o.OnDenied,
		waiters: delay.Waiters{Max: int64(o.MaxWaiters)}, log: o.Log,
		random: rand.Int64N,
	}
	if b, ok := checker.(beginner); ok {
		m.decide = b.Begin
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
	req := headgate.Request{Attributes: h.who.Attributes(r, h.checker.Attributes()...)}
	if h.cost != nil {
		req.Cost = h.cost(r)
	}
	d, err := h.decide(ctx, req)
	if d.Holds() {
		h.serveHolding(w, r, d, err)
		return
	}
	h.settle(ctx, &d, err)
	if h.admit(w, r, &d) {
		h.next.ServeHTTP(w, r)
	}
}

// settle logs a decision without the store, and waits for the delay of an allowed request.
func (m *middleware) settle(ctx context.Context, d *headgate.Decision, err error) {
	if err != nil || d.Path == headgate.PathFailed {
		limitfields.LogUndecided(ctx, m.log, &m.failures, d, err)
	}
	if d.Delay > 0 && d.Allowed {
		// If ctx ends during the delay, Hold turns d into a denial. Returning without writing a response would send 200.
		_ = m.waiters.Hold(ctx, d)
	}
}

// admit sets the headers. It reports whether the handler is to serve the request; otherwise it has written the response.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request, d *headgate.Decision) bool {
	retryAfter := limitfields.RetryAfter(d, m.random)
	m.headers.Put(w.Header(), d, retryAfter)
	if !d.Allowed {
		m.deny(w, r, d, retryAfter)
		return false
	}
	if r.Context().Err() != nil { // the client disconnected, or an outer handler's deadline expired
		w.WriteHeader(http.StatusServiceUnavailable) // returning without writing a response would send 200
		return false
	}
	return true
}

// deny writes the response to a denied request. The rate limit headers are already set.
func (m *middleware) deny(w http.ResponseWriter, r *http.Request, d *headgate.Decision, retryAfter *int64) {
	if m.onDenied != nil {
		m.onDenied(w, r, *d)
		return
	}
	status, body := limitfields.Problem(d, retryAfter, m.status)
	w.Header().Set("Content-Type", limitfields.ProblemType)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // an error means that the client disconnected
}
