package streamlimit_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/streamlimit"
)

// TestFlood tests that a client that sends 100 times as much as it may is held to the limit within 2 %, and is not disconnected.
func TestFlood(t *testing.T) {
	t.Parallel()
	const perSecond, span = 4, 10 * time.Minute
	chat := headgate.Limit{Count: 60 * perSecond, Window: time.Minute, Burst: 20}
	second := func(a headgate.Algorithm) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: perSecond, Window: time.Second}
	}
	bytes := ofMessages(headgate.Limit{Count: 100 * chat.Count, Window: chat.Window, Burst: 100 * chat.Burst}) // 100 per message
	bytes.Cost = headgate.Cost{From: "descriptor.bytes"}
	even := ofMessages(second(headgate.LeakyBucket))
	even.MaxDelay = time.Second
	for name, test := range map[string]struct {
		connection headgate.Limit
		rules      []headgate.Rule
		maxDelay   time.Duration
		gates      int
		burst      float64
	}{
		"token bucket":     {connection: chat, gates: 1, burst: 20},
		"leaky bucket":     {connection: second(headgate.LeakyBucket), gates: 1},
		"fixed window":     {connection: second(headgate.FixedWindow), gates: 1},
		"sliding window":   {connection: headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 240, Window: time.Minute}, maxDelay: 2 * time.Minute, gates: 1},
		"sliding log":      {connection: second(headgate.SlidingLog), gates: 1},
		"rule":             {rules: []headgate.Rule{ofMessages(chat)}, gates: 1, burst: 20},
		"rule, bytes":      {rules: []headgate.Rule{bytes}, gates: 3, burst: 20},
		"rule, windows":    {rules: []headgate.Rule{ofMessages(second(headgate.FixedWindow))}, gates: 1},
		"rule, many tabs":  {rules: []headgate.Rule{ofMessages(chat)}, gates: 5, burst: 20},
		"leaky rule":       {rules: []headgate.Rule{even}, gates: 3},
		"rule and own one": {connection: second(headgate.TokenBucket), rules: []headgate.Rule{ofMessages(chat)}, gates: 1, burst: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limits := newLimits(t, newLimiter(t, inMemory(), test.rules...), streamlimit.Options{
					Connection: test.connection, MaxDelay: test.maxDelay,
				})
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				counts := make(chan int)
				for range test.gates {
					wire := make(chan struct{}, 16) // what the network buffers
					go func() {
						for ctx.Err() == nil {
							select {
							case <-time.After(time.Second / perSecond / 100):
								select {
								case wire <- struct{}{}:
								case <-ctx.Done():
								}
							case <-ctx.Done():
							}
						}
					}()
					go func() { counts <- readUntilDone(ctx, t, limits.Open(ada), wire) }()
				}
				sum := 0
				for range test.gates {
					sum += <-counts
				}
				want := perSecond*span.Seconds() + test.burst
				if math.Abs(float64(sum)-want) > 0.02*want {
					t.Errorf("%d messages passed, want %.0f", sum, want)
				}
			})
		})
	}
}

// readUntilDone returns how many messages pass until ctx is done. The connection must not be closed before.
func readUntilDone(ctx context.Context, t *testing.T, gate *streamlimit.Gate, wire <-chan struct{}) int {
	count := 0
	for {
		select {
		case <-wire:
		case <-ctx.Done():
			return count
		}
		switch v := gate.Message(ctx, 100); {
		case v.Action == streamlimit.Pass:
			count++
		case ctx.Err() == nil:
			t.Errorf("closed after %d messages: %+v", count, v)
			return count
		}
	}
}
