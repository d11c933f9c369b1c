package limitfields_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

func TestTightest(t *testing.T) {
	t.Parallel()
	candidate := func(l *headgate.LimitDecision) { l.Exposed, l.Origin = false, headgate.FromCandidate }
	for name, test := range map[string]struct {
		d    *headgate.Decision
		want string
	}{
		"none":            {decision(), ""},
		"shown":           {decision(limit("a", 7), change(limit("b", 1), hide)), "a"},
		"denies":          {decision(limit("a", 7), change(denying("b", time.Second), hide)), "b"},
		"least remaining": {decision(change(limit("a", 7), hide), change(limit("b", 1), hide)), "b"},
		"candidate":       {decision(change(limit("a", 7), hide), change(limit("b", 1), candidate)), "a"},
		"not decided":     {decision(change(limit("a", 7), func(l *headgate.LimitDecision) { l.Err = headgate.ErrUnavailable })), ""},
	} {
		got := ""
		if l := limitfields.Tightest(test.d); l != nil {
			got = l.Rule
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestRemaining tests that a denying limit has nothing remaining, and a leaky bucket at most its capacity.
func TestRemaining(t *testing.T) {
	t.Parallel()
	for want, l := range map[int64]headgate.LimitDecision{7: limit("a", 7), 0: denying("a", time.Second), 10: limit("a", 99)} {
		if got := limitfields.Remaining(&l); got != want {
			t.Errorf("remaining %d, want %d", got, want)
		}
	}
}

// TestWindow tests that the window of a calendar limit is the current one.
func TestWindow(t *testing.T) {
	t.Parallel()
	month := change(limit("a", 7), func(l *headgate.LimitDecision) {
		l.Limit = headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Calendar: headgate.Month}
	})
	for want, l := range map[time.Duration]headgate.LimitDecision{
		time.Minute: limit("a", 7), 30 * 24 * time.Hour: month, // November
		0: change(month, func(l *headgate.LimitDecision) { l.Time = time.Time{} }),
	} {
		if got := limitfields.Window(&l); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
