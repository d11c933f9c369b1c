package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
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

// each enables PerMessage for all streams.
func each(string) bool { return true }

func onMessages(p headgate.Pattern) headgate.Match {
	return headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": p}}
}

func perUser(id string, match headgate.Match, limit headgate.Limit) headgate.Rule {
	return headgate.Rule{ID: id, Match: match, By: []string{"user"}, Limit: limit}
}

// expectDenied fails the test unless the stream ended with a denial by the rule.
func expectDenied(t *testing.T, err error, rule string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || read(t, err).info.GetMetadata()["rule"] != rule {
		t.Errorf("ended with %v, want a denial by %s", err, rule)
	}
}

func TestStreamStart(t *testing.T) {
	t.Parallel()
	for _, method := range []string{list, collect, talk} {
		c := serve(t, limits(t, grpclimit.Options{}, perUser("starts", headgate.Match{}, headgate.PerHour(2))))
		for range 2 {
			stream := c.stream(t, t.Context(), method)
			if err := stream.SendMsg(&text{Value: "a"}); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			responses := 0
			var err error
			for err = stream.RecvMsg(&text{}); err == nil; err = stream.RecvMsg(&text{}) {
				responses++
			}
			want := map[string]int{list: 3, collect: 1, talk: 1}[method]
			if !errors.Is(err, io.EOF) || responses != want {
				t.Errorf("%s: %d responses, then %v", method, responses, err)
			}
		}
		expectDenied(t, exchangeLast(c.stream(t, t.Context(), method), "a"), "starts")
	}
}

// TestPerMessage tests that messages and the start of a stream can have different rules.
func TestPerMessage(t *testing.T) {
	t.Parallel()
	rules := []headgate.Rule{
		perUser("starts", onMessages(headgate.IsAbsent()), headgate.PerHour(2)),
		perUser("messages", onMessages(headgate.OneOf("received")), headgate.PerHour(5)),
	}
	c := serve(t, limits(t, grpclimit.Options{PerMessage: each}, rules...))
	stream := c.stream(t, t.Context(), talk)
	for range 3 {
		if err := exchange(stream, "a"); err != nil {
			t.Fatal(err)
		}
	}
	other := c.stream(t, t.Context(), talk)
	for range 2 {
		if err := exchange(other, "a"); err != nil {
			t.Fatal(err)
		}
	}
	err := exchange(other, "a")
	expectDenied(t, err, "messages")
	if wait := read(t, err).retry; wait < 11*time.Minute || wait > 14*time.Minute {
		t.Errorf("wait %s", wait)
	}
	if got := other.Trailer().Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "-1" {
		t.Errorf("trailer %v", other.Trailer())
	}
	expectDenied(t, exchange(stream, "a"), "messages")
	expectDenied(t, exchange(c.stream(t, t.Context(), talk), "a"), "starts")
}

// TestPerMessageUnary tests that a call with one message is checked once, even with PerMessage.
func TestPerMessageUnary(t *testing.T) {
	t.Parallel()
	c := serve(t, limits(t, grpclimit.Options{PerMessage: each},
		perUser("messages", onMessages(headgate.IsPresent()), headgate.PerHour(1)),
		perUser("calls", headgate.Match{}, headgate.PerHour(2))))
	if err := c.echo(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if err := exchangeLast(c.stream(t, t.Context(), list), ""); err != nil {
		t.Error(err)
	}
	expectDenied(t, c.echo(t.Context(), ""), "calls")
	expectDenied(t, exchangeLast(c.stream(t, t.Context(), list), ""), "calls")
}

// TestDeniedMessageEndsStream tests that a stream ends with the denial even if the handler ignores the error, and that no further
// message is received or checked.
func TestDeniedMessageEndsStream(t *testing.T) {
	t.Parallel()
	var denied atomic.Int64
	count := func(context.Context, string, *headgate.Decision) { denied.Add(1) }
	o := grpclimit.Options{PerMessage: each, OnDenied: count}
	c := serve(t, limits(t, o, perUser("messages", onMessages(headgate.IsPresent()), headgate.PerHour(2))))
	stream := c.stream(t, t.Context(), collect)
	for range 4 {
		if err := stream.SendMsg(&text{Value: "a"}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	response := &text{}
	err := stream.RecvMsg(response)
	if err == nil { // the response that the handler sent before it returned
		if response.GetValue() != "aa" {
			t.Errorf("the handler received %q", response.GetValue())
		}
		err = stream.RecvMsg(&text{})
	}
	expectDenied(t, err, "messages")
	if n := denied.Load(); n != 1 {
		t.Errorf("%d messages were denied, want 1", n)
	}
}

// TestRulesChangeDuringStream tests that attributes of new rules are resolved for an open stream.
func TestRulesChangeDuringStream(t *testing.T) {
	t.Parallel()
	limiter, err := headgate.New(memstore.New(memstore.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	resolved := 0
	c := serve(t, interceptors(t, limiter, grpclimit.Options{
		PerMessage: each, Attributes: func(context.Context, headgate.Attributes) { resolved++ },
	}))
	stream := c.stream(t, as(t.Context(), "x-room", "blue"), talk)
	for range 5 {
		if err := exchange(stream, "a"); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := headgate.Compile(headgate.Rule{
		ID: "rooms", By: []string{"header.x-room"}, OnMissing: headgate.SkipMissing, Limit: headgate.PerHour(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	limiter.SetRules(rules)
	for range 2 {
		if err := exchange(stream, "a"); err != nil {
			t.Fatal(err)
		}
	}
	expectDenied(t, exchange(stream, "a"), "rooms")
	if resolved != 2 {
		t.Errorf("attributes were resolved %d times, want 2", resolved)
	}
}

func leaky(perSecond int64, maxDelay time.Duration) headgate.Rule {
	return headgate.Rule{
		ID: "even", By: []string{"user"}, MaxDelay: maxDelay,
		Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: perSecond, Window: time.Second},
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, limits(t, grpclimit.Options{PerMessage: each}, leaky(10, time.Second)))
		start := time.Now()
		expect := func(when string, want time.Duration, err error) {
			t.Helper()
			if got := time.Since(start); got != want || err != nil {
				t.Errorf("%s: after %s, want %s: %v", when, got, want, err)
			}
		}
		expect("first", 0, c.echo(t.Context(), ""))
		expect("second", 100*time.Millisecond, c.echo(t.Context(), ""))
		expect("third", 200*time.Millisecond, c.echo(t.Context(), ""))
		stream := c.stream(t, t.Context(), talk)
		expect("the start and a message", 400*time.Millisecond, exchange(stream, ""))
		expect("a message", 500*time.Millisecond, exchange(stream, ""))
		expect("another", 600*time.Millisecond, exchange(stream, ""))
	})
}

// TestNotDelayed tests that a call that cannot be delayed is denied at once.
func TestNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		denied := 0
		o := grpclimit.Options{MaxWaiters: 2, OnDenied: func(_ context.Context, _ string, d *headgate.Decision) {
			if denied++; d.Allowed || d.DeniedBy().Rule != "even" {
				t.Errorf("denied: %+v", d)
			}
		}}
		c := serve(t, limits(t, o, leaky(1, time.Minute)))
		if err := c.echo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		start := time.Now()

		short, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		err := c.echo(short, "") // would be delayed by 1 s
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < time.Second || wait > 1100*time.Millisecond {
			t.Errorf("wait %s", wait)
		}

		canceled, cancelCall := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		go func() { ends <- c.echo(canceled, "") }() // 2 s
		synctest.Wait()
		go func() { ends <- c.echo(t.Context(), "") }() // 3 s
		synctest.Wait()
		err = c.echo(t.Context(), "") // 4 s, but MaxWaiters is reached
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < 4*time.Second || wait > 4400*time.Millisecond {
			t.Errorf("wait %s", wait)
		}
		if elapsed := time.Since(start); elapsed != 0 || denied != 2 {
			t.Errorf("%d were denied after %s", denied, elapsed)
		}

		cancelCall()
		if err := <-ends; status.Code(err) != codes.Canceled {
			t.Errorf("canceled call: %v", err)
		}
		synctest.Wait()
		go func() { ends <- c.echo(t.Context(), "") }() // 5 s; the canceled call freed a slot
		for _, want := range []time.Duration{3 * time.Second, 5 * time.Second} {
			if err := <-ends; err != nil || time.Since(start) != want {
				t.Errorf("delayed by %s, want %s: %v", time.Since(start), want, err)
			}
		}
	})
}

// TestCancelDuringDelay tests that canceling a stream while a message is delayed ends the stream and the server's goroutines.
func TestCancelDuringDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, limits(t, grpclimit.Options{PerMessage: each, MaxWaiters: 1}, leaky(1, time.Minute)))
		ctx, cancelCall := context.WithCancel(t.Context())
		stream := c.stream(t, ctx, talk)
		if err := stream.SendMsg(&text{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancelCall()
		if err := stream.RecvMsg(&text{}); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if err := c.echo(t.Context(), ""); err != nil { // the slot is free again
			t.Error(err)
		}
	})
}

// TestContextDone tests that a call whose context is done does not reach the handler.
func TestContextDone(t *testing.T) {
	t.Parallel()
	limit := limits(t, grpclimit.Options{}, leaky(1, time.Minute))
	calls := 0
	handler := func(context.Context, any) (any, error) { calls++; return nil, nil }
	ctx, cancelCall := context.WithCancel(t.Context())
	info := &grpc.UnaryServerInfo{FullMethod: echo}
	if _, err := limit.Unary(ctx, nil, info, handler); err != nil {
		t.Fatal(err)
	}
	cancelCall()
	if _, err := limit.Unary(ctx, nil, info, handler); status.Code(err) != codes.Canceled || calls != 1 {
		t.Errorf("%d calls reached the handler; the last ended with %v", calls, err)
	}
}

// TestNegativeMaxWaiters tests that no call is delayed.
func TestNegativeMaxWaiters(t *testing.T) {
	t.Parallel()
	c := serve(t, limits(t, grpclimit.Options{MaxWaiters: -1}, leaky(1, time.Minute)))
	if err := c.echo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	expectDenied(t, c.echo(t.Context(), ""), "even")
}
