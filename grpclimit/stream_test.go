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

// each asks about the messages of all streams.
func each(string) bool { return true }

func onMessages(p headgate.Pattern) headgate.Match {
	return headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": p}}
}

func perUser(id string, match headgate.Match, limit headgate.Limit) headgate.Rule {
	return headgate.Rule{ID: id, Match: match, By: []string{"user"}, Limit: limit}
}

// expectDenied looks at a stream's end.
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
			answers := 0
			var err error
			for err = stream.RecvMsg(&text{}); err == nil; err = stream.RecvMsg(&text{}) {
				answers++
			}
			want := map[string]int{list: 3, collect: 1, talk: 1}[method]
			if !errors.Is(err, io.EOF) || answers != want {
				t.Errorf("%s: %d answers, then %v", method, answers, err)
			}
		}
		expectDenied(t, ask(c.stream(t, t.Context(), method), "a"), "starts")
	}
}

// Messages have rules of their own, the start of a stream has others.
func TestPerMessage(t *testing.T) {
	t.Parallel()
	rules := []headgate.Rule{
		perUser("starts", onMessages(headgate.IsAbsent()), headgate.PerHour(2)),
		perUser("messages", onMessages(headgate.OneOf("received")), headgate.PerHour(5)),
	}
	c := serve(t, limits(t, grpclimit.Options{PerMessage: each}, rules...))
	stream := c.stream(t, t.Context(), talk)
	for range 3 {
		if err := say(stream, "a"); err != nil {
			t.Fatal(err)
		}
	}
	other := c.stream(t, t.Context(), talk)
	for range 2 {
		if err := say(other, "a"); err != nil {
			t.Fatal(err)
		}
	}
	err := say(other, "a")
	expectDenied(t, err, "messages")
	if wait := read(t, err).retry; wait < 11*time.Minute || wait > 14*time.Minute {
		t.Errorf("told to wait %s", wait)
	}
	if got := other.Trailer().Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "-1" {
		t.Errorf("trailer %v", other.Trailer())
	}
	expectDenied(t, say(stream, "a"), "messages")
	expectDenied(t, say(c.stream(t, t.Context(), talk), "a"), "starts")
}

// A call with one message is one request, also where each message is asked about.
func TestPerMessageOfOne(t *testing.T) {
	t.Parallel()
	c := serve(t, limits(t, grpclimit.Options{PerMessage: each},
		perUser("messages", onMessages(headgate.IsPresent()), headgate.PerHour(1)),
		perUser("calls", headgate.Match{}, headgate.PerHour(2))))
	if err := c.echo(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if err := ask(c.stream(t, t.Context(), list), ""); err != nil {
		t.Error(err)
	}
	expectDenied(t, c.echo(t.Context(), ""), "calls")
	expectDenied(t, ask(c.stream(t, t.Context(), list), ""), "calls")
}

// A handler that does not look at the error cannot make a success of it. It gets no more messages, and none is asked
// about.
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
	answer := &text{}
	err := stream.RecvMsg(answer)
	if err == nil { // what the handler sent before it returned
		if answer.GetValue() != "aa" {
			t.Errorf("the handler received %q", answer.GetValue())
		}
		err = stream.RecvMsg(&text{})
	}
	expectDenied(t, err, "messages")
	if n := denied.Load(); n != 1 {
		t.Errorf("%d messages were denied, want 1", n)
	}
}

// Rules that come while a stream is open find the attributes that they look at.
func TestRulesChangeMeanwhile(t *testing.T) {
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
		if err := say(stream, "a"); err != nil {
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
		if err := say(stream, "a"); err != nil {
			t.Fatal(err)
		}
	}
	expectDenied(t, say(stream, "a"), "rooms")
	if resolved != 2 {
		t.Errorf("the attributes were made %d times, want 2", resolved)
	}
}

func leaky(perSecond int64, most time.Duration) headgate.Rule {
	return headgate.Rule{
		ID: "even", By: []string{"user"}, MaxDelay: most,
		Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: perSecond, Window: time.Second},
	}
}

func TestHeld(t *testing.T) {
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
		expect("the start and a message", 400*time.Millisecond, say(stream, ""))
		expect("a message", 500*time.Millisecond, say(stream, ""))
		expect("another", 600*time.Millisecond, say(stream, ""))
	})
}

// Those who cannot wait are told so at once.
func TestNotHeld(t *testing.T) {
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
		err := c.echo(short, "") // would be held for 1 s
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < time.Second || wait > 1100*time.Millisecond {
			t.Errorf("told to wait %s", wait)
		}

		gone, leave := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		go func() { ends <- c.echo(gone, "") }() // 2 s
		synctest.Wait()
		go func() { ends <- c.echo(t.Context(), "") }() // 3 s
		synctest.Wait()
		err = c.echo(t.Context(), "") // 4 s, but there is no room
		expectDenied(t, err, "even")
		if wait := read(t, err).retry; wait < 4*time.Second || wait > 4400*time.Millisecond {
			t.Errorf("told to wait %s", wait)
		}
		if passed := time.Since(start); passed != 0 || denied != 2 {
			t.Errorf("%d were denied after %s", denied, passed)
		}

		leave()
		if err := <-ends; status.Code(err) != codes.Canceled {
			t.Errorf("who left: %v", err)
		}
		synctest.Wait()
		go func() { ends <- c.echo(t.Context(), "") }() // 5 s, in the place of who left
		for _, want := range []time.Duration{3 * time.Second, 5 * time.Second} {
			if err := <-ends; err != nil || time.Since(start) != want {
				t.Errorf("held for %s, want %s: %v", time.Since(start), want, err)
			}
		}
	})
}

// A client that leaves while its message is held ends the stream, and the server's goroutines with it.
func TestLeavesWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, limits(t, grpclimit.Options{PerMessage: each, MaxWaiters: 1}, leaky(1, time.Minute)))
		ctx, leave := context.WithCancel(t.Context())
		stream := c.stream(t, ctx, talk)
		if err := stream.SendMsg(&text{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leave()
		if err := stream.RecvMsg(&text{}); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if err := c.echo(t.Context(), ""); err != nil { // the place is free again
			t.Error(err)
		}
	})
}

// A call whose client is gone does not reach the handler.
func TestGone(t *testing.T) {
	t.Parallel()
	limit := limits(t, grpclimit.Options{}, leaky(1, time.Minute))
	calls := 0
	handler := func(context.Context, any) (any, error) { calls++; return nil, nil }
	ctx, leave := context.WithCancel(t.Context())
	info := &grpc.UnaryServerInfo{FullMethod: echo}
	if _, err := limit.Unary(ctx, nil, info, handler); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := limit.Unary(ctx, nil, info, handler); status.Code(err) != codes.Canceled || calls != 1 {
		t.Errorf("%d calls reached the handler; the last ended with %v", calls, err)
	}
}

// Nobody waits if MaxWaiters says so.
func TestNobodyHeld(t *testing.T) {
	t.Parallel()
	c := serve(t, limits(t, grpclimit.Options{MaxWaiters: -1}, leaky(1, time.Minute)))
	if err := c.echo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	expectDenied(t, c.echo(t.Context(), ""), "even")
}
