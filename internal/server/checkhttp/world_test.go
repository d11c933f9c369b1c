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

// noon is when tests are: a Sunday in a month of 30 days, half a second past.
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
		{ID: "everybody", Match: at("/status"), By: headgate.Global, Limit: headgate.PerMinute(100)},
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

// away is a store that does not answer.
type away struct{}

func (away) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: fmt.Errorf("%w: connection refused", headgate.ErrUnavailable)}
	}
	return headgate.ErrUnavailable
}

func (away) Shard(headgate.Subject) int { return 0 }

// broken is an engine that answers nothing.
type broken struct{ check.Engine }

var errBroken = errors.New("the engine is out of order")

func (broken) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (broken) Peek(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (broken) Reserve(context.Context, headgate.Request, time.Duration) (headgate.Reservation, error) {
	return headgate.Reservation{}, errBroken
}

func (broken) Commit(context.Context, []byte, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (broken) Cancel(context.Context, []byte) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func (broken) Refund(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, errBroken
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// behind believes proxies in 10.0.0.0/8.
func behind(t testing.TB, log *slog.Logger) *identity.Resolver {
	t.Helper()
	who, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		APIKey:         identity.APIKey{Header: "X-API-Key", Query: "key"}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// newTest makes a handler of the default headers, without chance.
func newTest(t testing.TB, engine check.Engine, o Options) *handler {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet()
	}
	if o.Identity == nil {
		o.Identity = behind(t, o.Log)
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
