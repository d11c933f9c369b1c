package streamlimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/streamlimit"
)

// TestWait tests that Options.Wait is called for delays of leaky buckets, and may deny the message, which is then not charged again.
func TestWait(t *testing.T) {
	t.Parallel()
	const even = "too many messages: messages allows 1/second, leaky_bucket"
	for name, test := range map[string]struct {
		on     streamlimit.Action
		wait   func(ctx context.Context, d *headgate.Decision) error
		action streamlimit.Action
		code   int
		reason string
	}{
		"waits":        {streamlimit.Delay, func(context.Context, *headgate.Decision) error { return nil }, streamlimit.Pass, 0, ""},
		"denies":       {streamlimit.Delay, deny, streamlimit.Close, 1008, even + "; retry in 1s"},
		"denies, drop": {streamlimit.Drop, deny, streamlimit.Drop, 0, ""},
		"ends": {
			streamlimit.Delay, func(context.Context, *headgate.Decision) error { return context.Canceled },
			streamlimit.Close, 1001, "connection is closing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rule := ofMessages(headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second})
				rule.MaxDelay = time.Minute
				c := &countingChecker{Limiter: newLimiter(t, inMemory(), rule)}
				waits := 0
				gate := newLimits(t, c, streamlimit.Options{OnExcess: test.on, Wait: func(ctx context.Context, d *headgate.Decision) error {
					if waits++; d.Delay != time.Second {
						t.Errorf("delay %s", d.Delay)
					}
					return test.wait(ctx, d)
				}}).Open(ada)
				passed(t, gate, 1)
				expect(t, "second", gate.Message(t.Context(), 1), test.action, test.code, test.reason)
				if c.checks != 2 || waits != 1 {
					t.Errorf("%d checks and %d waits, want 2 and 1", c.checks, waits)
				}
			})
		})
	}
}

// deny denies a delayed message.
func deny(_ context.Context, d *headgate.Decision) error {
	d.Allowed, d.RetryAfter, d.Delay = false, d.Delay, 0
	for i := range d.Limits {
		d.Limits[i].Allowed = false
	}
	return nil
}
