package denials

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// tracing is the context key of a trace ID.
type tracing struct{}

func traceOf(ctx context.Context) string {
	id, _ := ctx.Value(tracing{}).(string)
	return id
}

// world is a log with a limiter whose decisions it observes.
type world struct {
	*Log
	limiter *headgate.Limiter
	lines   *testenv.Log
}

// newWorld returns a world whose rules deny the second request of an hour.
func newWorld(t testing.TB, showClear bool, rules ...headgate.Rule) *world {
	t.Helper()
	return newWorldOn(t, memstore.New(memstore.Options{}), showClear, rules...)
}

func newWorldOn(t testing.TB, store headgate.Store, showClear bool, rules ...headgate.Rule) *world {
	t.Helper()
	for i := range rules {
		if rules[i].Limit == (headgate.Limit{}) && rules[i].Limits == nil {
			rules[i].Limit = headgate.PerHour(1)
		}
	}
	limiter, err := headgate.New(store, rules...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{lines: &testenv.Log{}}
	w.Log = New(Options{
		Rules: limiter.Rules, Clear: showClear, Node: "n1", TraceID: traceOf,
		Log: slog.New(slog.NewTextHandler(w.lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w.limiter = limiter.WithObserver(w.Observe)
	return w
}

// check makes the same request several times.
func (w *world) check(t testing.TB, times int, attributes headgate.Attributes) {
	t.Helper()
	for range times {
		if _, err := w.limiter.Check(t.Context(), headgate.Request{Attributes: attributes}); err != nil {
			t.Fatal(err)
		}
	}
}

// one returns the only record that matches a query.
func (w *world) one(t testing.TB, q Query) Record {
	t.Helper()
	found := w.Result(q).Records
	if len(found) != 1 {
		t.Fatalf("%+v finds %d records: %+v", q, len(found), found)
	}
	return found[0]
}

// denial returns the observation of a user who is denied by a rule.
func denial(user string) *headgate.Observation {
	return &headgate.Observation{
		Call: headgate.CallCheck,
		Attributes: headgate.Attributes{
			"ip": "192.0.2.1", "user": user, "method": "GET", "host": "api.example.com", "path": "/v1/search",
		},
		Decision: headgate.Decision{Path: headgate.PathStore, Version: "7", Limits: []headgate.LimitDecision{{
			Rule: "search", Limit: headgate.PerMinute(100), Subject: headgate.SubjectOf("user", user), Counter: 1, Cost: 1,
			Enforced: true, Result: headgate.Result{RetryAfter: time.Second},
		}}},
	}
}
