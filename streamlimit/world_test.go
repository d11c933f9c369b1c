package streamlimit_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

var ada = headgate.Attributes{"user": "ada", "path": "/chat"}

// ofMessages returns a rule for the messages of each user.
func ofMessages(limit headgate.Limit) headgate.Rule {
	return headgate.Rule{
		ID: "messages", By: []string{"user"}, Limit: limit,
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": headgate.OneOf("received")}},
	}
}

func newLimiter(t testing.TB, store headgate.Store, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	limiter, err := headgate.New(store, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func inMemory() headgate.Store { return memstore.New(memstore.Options{}) }

func newLimits(t testing.TB, checker streamlimit.Checker, o streamlimit.Options) *streamlimit.Limits {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	limits, err := streamlimit.New(checker, o)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// passed returns how many of n messages of 100 bytes pass.
func passed(t testing.TB, gate *streamlimit.Gate, n int) int {
	t.Helper()
	count := 0
	for range n {
		if gate.Message(t.Context(), 100).Action == streamlimit.Pass {
			count++
		}
	}
	return count
}

// expect fails the test unless a verdict has this action, code and reason.
func expect(t testing.TB, what string, v streamlimit.Verdict, action streamlimit.Action, code int, reason string) {
	t.Helper()
	if v.Action != action || v.Code != code || v.Reason != reason {
		t.Errorf("%s: action %d, code %d, %q; want %d, %d, %q", what, v.Action, v.Code, v.Reason, action, code, reason)
	}
}

// brokenStore is a store that fails until it is repaired.
type brokenStore struct {
	headgate.Store
	calls    int
	repaired time.Time
}

func (s *brokenStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if s.calls++; time.Now().After(s.repaired) {
		return s.Store.Take(ctx, charges, results)
	}
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return errors.New("broken")
}
