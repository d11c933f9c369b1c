package streamlimit_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

// gates returns gates whose messages always pass, by what decides them.
func gates(t testing.TB) map[string]*streamlimit.Gate {
	t.Helper()
	open := func(checker streamlimit.Checker, limit headgate.Limit) *streamlimit.Gate {
		limits, err := streamlimit.New(checker, streamlimit.Options{Connection: limit})
		if err != nil {
			t.Fatal(err)
		}
		return limits.Open(headgate.Attributes{"user": "ada", "path": "/chat"})
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "requests", Match: headgate.Match{Path: "/api/**"}, By: []string{"user"}, Limit: headgate.PerSecond(1e9),
	})
	if err != nil {
		t.Fatal(err)
	}
	const count, window = 1e9, time.Second
	return map[string]*streamlimit.Gate{
		"token bucket":   open(nil, headgate.Per(count, window)),
		"fixed window":   open(nil, headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Window: window}),
		"sliding window": open(nil, headgate.Limit{Algorithm: headgate.SlidingWindow, Count: count, Window: window}),
		"sliding log":    open(nil, headgate.Limit{Algorithm: headgate.SlidingLog, Count: headgate.MaxLogCount, Window: time.Millisecond}),
		"no rule":        open(limiter, headgate.Per(count, window)),
	}
}

func BenchmarkMessage(b *testing.B) {
	for name, gate := range gates(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if gate.Message(b.Context(), 100).Action != streamlimit.Pass {
					b.Fatal("denied")
				}
			}
		})
	}
}

func TestNoAllocation(t *testing.T) {
	for name, gate := range gates(t) {
		message := func() { gate.Message(t.Context(), 100) }
		passed(t, gate, 100)
		if n := testing.AllocsPerRun(1000, message); n > 0 {
			t.Errorf("%s: %g allocations per message", name, n)
		}
	}
}
