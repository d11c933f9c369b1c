package checkhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/memstore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the time of the tests: half a second past noon on a Sunday in a month of 30 days.
var noon = time.Date(2026, time.November, 15, 12, 0, 0, 500_000_000, time.UTC)

func clock() time.Time { return noon }

func rules() []headgate.Rule {
	byIP := []string{"ip"}
	at := func(path string) headgate.Match { return headgate.Match{Path: path} }
	return []headgate.Rule{
		{ID: "login-by-ip", Match: headgate.Match{Path: "/login", Method: "POST"}, By: byIP, Limit: headgate.PerMinute(10)},
		{ID: "model-tokens", Match: at("/chat"), By: []string{"user"}, Limit: headgate.PerHour(1000)},
		{ID: "exports", Match: at("/exports"), By: byIP, Limits: map[string]headgate.Limit{
			"peak": headgate.PerSecond(2), "month": headgate.Quota(3, headgate.Month, nil),
		}},
		{
			ID: "keys", Match: at("/keys"), By: []string{"api_key"}, Limit: headgate.PerMinute(5),
			OnMissing: headgate.DenyMissing,
		},
		{ID: "global", Match: at("/status"), By: headgate.Global, Limit: headgate.PerMinute(100)},
		{
			ID: "even", Match: at("/even"), By: byIP, MaxDelay: 10 * time.Second,
			Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 2, Window: time.Second},
		},
		{ID: "firm", Match: at("/firm"), By: byIP, OnStoreFailure: headgate.FailDeny, Limit: headgate.PerMinute(5)},
	}
}

func limiterOn(t testing.TB, store headgate.Store) *headgate.Limiter {
	t.Helper()
	limiter, err := headgate.New(store, rules()...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func limiter(t testing.TB) *headgate.Limiter {
	t.Helper()
	return limiterOn(t, memstore.New(memstore.Options{Clock: clock}))
}

// concurrencyLimiter returns a limiter that allows one report of a tenant in flight.
func concurrencyLimiter(t testing.TB) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(memstore.New(memstore.Options{Clock: clock}), headgate.Rule{
		ID: "reports", Match: headgate.Match{Path: "/reports"}, By: []string{"tenant"}, Strict: true, Limit: headgate.Concurrent(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// unavailableStore is a store that does not respond.
type unavailableStore struct{}

func (unavailableStore) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: fmt.Errorf("%w: connection refused", headgate.ErrUnavailable)}
	}
	return headgate.ErrUnavailable
}

func (unavailableStore) Shard(headgate.Subject) int { return 0 }

// brokenEngine is an engine whose calls fail.
type brokenEngine struct{ check.Engine }

var errBroken = errors.New("engine failure")

func (brokenEngine) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (brokenEngine) Begin(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (brokenEngine) Peek(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (brokenEngine) Reserve(context.Context, headgate.Request, time.Duration) (headgate.Reservation, error) {
	return headgate.Reservation{}, errBroken
}

func (brokenEngine) Extend(context.Context, []byte, headgate.Request, headgate.Request, time.Duration) (headgate.Reservation, error) {
	return headgate.Reservation{}, errBroken
}

func (brokenEngine) Commit(context.Context, []byte, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (brokenEngine) Cancel(context.Context, []byte) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (brokenEngine) Refund(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// trustingProxies returns a resolver that trusts proxies in 10.0.0.0/8.
func trustingProxies(t testing.TB, log *slog.Logger) *identity.Resolver {
	t.Helper()
	resolver, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		APIKey:         identity.APIKey{Header: "X-API-Key", Query: "key"}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return resolver
}

// newTest returns a handler with the default headers and without random delays.
func newTest(t testing.TB, engine check.Engine, o Options) *handler {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet()
	}
	if o.Identity == nil {
		o.Identity = trustingProxies(t, o.Log)
	}
	o.Headers = limitfields.Choice{Draft: true, Legacy: true}
	h := newHandler(engine, o)
	h.random = func(int64) int64 { return 0 }
	return h
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
