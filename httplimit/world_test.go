package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the start of all tests: a Sunday in a month of 30 days, half a second past.
var noon = time.Date(2026, time.November, 15, 12, 0, 0, 500_000_000, time.UTC)

// world is a limiter whose store has a clock that the test advances.
type world struct {
	limiter *headgate.Limiter
	elapsed atomic.Int64
}

func newWorld(t testing.TB, rules ...headgate.Rule) *world {
	t.Helper()
	w := &world{}
	var err error
	if w.limiter, err = headgate.New(memstore.New(memstore.Options{Clock: w.now}), rules...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) now() time.Time { return noon.Add(time.Duration(w.elapsed.Load())) }

func (w *world) advance(d time.Duration) { w.elapsed.Add(int64(d)) }

// exact removes the jitter from Retry-After.
func exact(int64) int64 { return 0 }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// static is a Checker that always returns the same decision.
type static struct {
	decision headgate.Decision
	err      error
}

func (s static) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return s.decision, s.err
}

func (s static) Attributes() []string { return nil }

// unavailable is a store that is unavailable.
type unavailable struct{}

var errUnavailable = errors.New("connection refused")

func (unavailable) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: fmt.Errorf("%w: %w", headgate.ErrUnavailable, errUnavailable)}
	}
	return headgate.ErrUnavailable
}

func (unavailable) Shard(headgate.Subject) int { return 0 }

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })

func get(path string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// render returns a response as text: the status, the headers that the middleware may set, and the body.
func render(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Code)
	for _, name := range []string{
		"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "Content-Type",
	} {
		for _, value := range w.Header().Values(name) {
			if name != "Content-Type" || w.Code >= 400 {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
	}
	return b.String() + w.Body.String()
}

// compare fails the test unless the response is want, which may be indented.
func compare(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(want)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if got := strings.TrimSpace(render(w)); got != strings.Join(lines, "\n") {
		t.Errorf("got\n%s\n\nwant\n%s", got, strings.Join(lines, "\n"))
	}
}

func limits(w *world, o httplimit.Options) http.Handler {
	return httplimit.NewWithRandom(w.limiter, o, exact)(hello)
}
