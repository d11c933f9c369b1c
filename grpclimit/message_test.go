package grpclimit_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/memstore"
)

// TestMessagesAndCallsWait tests that MaxWaiters caps calls and messages together.
func TestMessagesAndCallsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		denied := 0
		c := serve(t, limits(t, grpclimit.Options{
			PerMessage: each, MaxWaiters: 1, OnDenied: func(context.Context, string, *headgate.Decision) { denied++ },
		}, leaky(1, time.Minute)))
		stream := c.stream(t, t.Context(), talk) // is not delayed
		ends := make(chan error, 1)
		start := time.Now()
		go func() { ends <- exchange(stream, "") }()
		synctest.Wait()
		err := c.echo(t.Context(), "") // while the message is delayed
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < 2*time.Second || wait > 2200*time.Millisecond {
			t.Errorf("wait %s", wait)
		}
		if err := <-ends; err != nil || time.Since(start) != time.Second {
			t.Errorf("the message was delayed by %s: %v", time.Since(start), err)
		}

		go func() { ends <- c.echo(t.Context(), "") }()
		synctest.Wait()
		err = exchange(stream, "") // while the call is delayed
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < 3*time.Second || wait > 3300*time.Millisecond {
			t.Errorf("wait %s", wait)
		}
		if err := <-ends; err != nil || denied != 2 {
			t.Errorf("%d were denied, want 2; the delayed call ended with %v", denied, err)
		}
	})
}

// TestMessageDeadline tests that a message is denied at once if its stream ends before its delay.
func TestMessageDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, limits(t, grpclimit.Options{PerMessage: each}, leaky(1, time.Minute)))
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		start := time.Now()
		expectDenied(t, exchange(c.stream(t, ctx, talk), ""), "even")
		if waited := time.Since(start); waited != 0 {
			t.Errorf("denied after %s", waited)
		}
	})
}

// TestMessageNotDelayed tests that a message in excess of a limit that is not a leaky bucket ends the stream at once, however short the
// wait would be.
func TestMessageNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, limits(t, grpclimit.Options{PerMessage: each}, perUser("messages", onMessages(headgate.IsPresent()), headgate.PerSecond(1))))
		stream := c.stream(t, t.Context(), talk)
		if err := exchange(stream, ""); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		expectDenied(t, exchange(stream, ""), "messages")
		if waited := time.Since(start); waited != 0 {
			t.Errorf("denied after %s", waited)
		}
	})
}

// TestMessageContextDone tests that the handler does not get a message of a stream whose context is done, whether or not the message was
// delayed.
func TestMessageContextDone(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]headgate.Rule{"allowed": plenty, "delayed": leaky(1, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := limits(t, grpclimit.Options{PerMessage: each}, rule)
			ctx, cancel := context.WithCancel(t.Context())
			info := &grpc.StreamServerInfo{FullMethod: talk, IsClientStream: true}
			err := limit.Stream(nil, &fakeStream{ctx: ctx, messages: 3}, info, func(_ any, stream grpc.ServerStream) error {
				cancel()
				if n, err := receive(stream); n != 0 || status.Code(err) != codes.Canceled {
					t.Errorf("received %d messages, then %v", n, err)
				}
				return nil
			})
			if status.Code(err) != codes.Canceled {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestMessageAttribute tests that Options.Attributes cannot hide that a request is a message.
func TestMessageAttribute(t *testing.T) {
	t.Parallel()
	c := serve(t, limits(t, grpclimit.Options{
		PerMessage: each, Attributes: func(_ context.Context, a headgate.Attributes) { a["descriptor.message"] = "other" },
	}, perUser("messages", onMessages(headgate.OneOf("received")), headgate.PerHour(1))))
	stream := c.stream(t, t.Context(), talk)
	if err := exchange(stream, ""); err != nil {
		t.Fatal(err)
	}
	expectDenied(t, exchange(stream, ""), "messages")
}

// TestMessageStoreFailure tests that a message that the store does not decide ends the stream if the rule denies, and is logged.
func TestMessageStoreFailure(t *testing.T) {
	t.Parallel()
	rule := perUser("messages", onMessages(headgate.IsPresent()), headgate.PerHour(1))
	rule.OnStoreFailure = headgate.FailDeny
	limiter, err := headgate.New(failing{}, rule)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	o := grpclimit.Options{PerMessage: each, Log: slog.New(slog.NewTextHandler(&log, nil))}
	err = exchange(serve(t, interceptors(t, limiter, o)).stream(t, t.Context(), talk), "")
	if status.Code(err) != codes.Unavailable || read(t, err).info.GetReason() != "RATE_LIMIT_UNAVAILABLE" {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(log.String(), "request_path="+talk) {
		t.Errorf("log: %s", log.String())
	}
}

// suspicious is a limiter that denies a message for a reason of its own.
type suspicious struct {
	*headgate.Limiter
	checks int
}

func (s *suspicious) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := s.Limiter.Check(ctx, req)
	s.checks++
	d.Allowed = s.checks < 3
	return d, err
}

// TestCheckerDecidesEveryMessage tests that every message is checked, even if no rule matches: a Checker may decide by more than rules.
func TestCheckerDecidesEveryMessage(t *testing.T) {
	t.Parallel()
	limiter, err := headgate.New(memstore.New(memstore.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	stream := serve(t, interceptors(t, &suspicious{Limiter: limiter}, grpclimit.Options{PerMessage: each})).stream(t, t.Context(), talk)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if err := exchange(stream, ""); status.Code(err) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
}
