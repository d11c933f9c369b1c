package grpclimit_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"
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

// concurrent is a limiter whose calls in flight a test can count.
type concurrent struct {
	*headgate.Limiter
	t *testing.T
	// begun is called after each decision of Begin, which it may change. The default does nothing.
	begun func(d *headgate.Decision) error
}

const maxInFlight = 2

// newConcurrent returns a limiter with the rule calls-in-flight, and others.
func newConcurrent(t *testing.T, others ...headgate.Rule) *concurrent {
	t.Helper()
	rules := append([]headgate.Rule{{ID: "calls-in-flight", By: headgate.Global, Expose: headgate.ExposeAlways, Limit: headgate.Concurrent(maxInFlight)}}, others...)
	limiter, err := headgate.New(memstore.New(memstore.Options{Clock: time.Now}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return &concurrent{Limiter: limiter, t: t}
}

func (c *concurrent) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := c.Limiter.Begin(ctx, req)
	if c.begun != nil {
		err = errors.Join(err, c.begun(&d))
	}
	return d, err
}

// expectInUse checks how many units are in use, after those that were released are no longer kept.
func (c *concurrent) expectInUse(when string, want int64) {
	c.t.Helper()
	time.Sleep(time.Second)
	d, err := c.Peek(c.t.Context(), headgate.Request{})
	if err != nil || len(d.Limits) == 0 {
		c.t.Fatalf("%+v: %v", d, err)
	}
	if got := maxInFlight - d.Limits[0].Remaining; got != want {
		c.t.Errorf("%s: %d units in use, want %d", when, got, want)
	}
}

func hourly() headgate.Rule {
	return headgate.Rule{ID: "hourly", By: headgate.Global, Limit: headgate.PerHour(1)}
}

func even() headgate.Rule {
	r := leaky(1, time.Minute)
	r.By = headgate.Global
	return r
}

type panickingLog struct{ slog.Handler }

func (panickingLog) Handle(context.Context, slog.Record) error { panic("log") }

// fakeStream has a number of messages to receive.
type fakeStream struct {
	grpc.ServerStream
	ctx      context.Context //nolint:containedctx // of the stream
	messages int
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) RecvMsg(any) error {
	if s.messages--; s.messages < 0 {
		return io.EOF
	}
	return nil
}

// receive receives messages until an error, and returns how many.
func receive(stream grpc.ServerStream) (n int, err error) {
	for ; err == nil; n++ {
		err = stream.RecvMsg(&text{})
	}
	return n - 1, err
}

// TestNoUnitIsLost ends calls in every way, and checks that none has units in use afterwards.
func TestNoUnitIsLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// handler is that of a call of any kind. The default receives all messages and succeeds.
		handler func(stream grpc.ServerStream) error
		options grpclimit.Options
		others  []headgate.Rule
		begun   func(*headgate.Decision) error
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		// times is how often the call is made at once. The default is 1.
		times int
		// codes are the results of the calls, by number. A panic counts as Internal.
		codes map[codes.Code]int
	}{
		"succeeds": {codes: map[codes.Code]int{codes.OK: 1}},
		"fails": {
			handler: func(grpc.ServerStream) error { return status.Error(codes.NotFound, "") },
			codes:   map[codes.Code]int{codes.NotFound: 1},
		},
		"panics": {handler: func(s grpc.ServerStream) error { _, _ = receive(s); panic("handler") }, codes: map[codes.Code]int{codes.Internal: 1}},
		"exits the goroutine": {
			handler: func(s grpc.ServerStream) error { _, _ = receive(s); runtime.Goexit(); return nil }, codes: map[codes.Code]int{},
		},
		"denied": {
			times: 5, handler: func(s grpc.ServerStream) error { _, err := receive(s); time.Sleep(time.Second); return ignoreEOF(err) },
			codes: map[codes.Code]int{codes.OK: maxInFlight, codes.ResourceExhausted: 5 - maxInFlight},
		},
		"denied by another rule": {times: 2, others: []headgate.Rule{hourly()}, codes: map[codes.Code]int{codes.OK: 1, codes.ResourceExhausted: 1}},
		"delayed":                {times: 2, others: []headgate.Rule{even()}, codes: map[codes.Code]int{codes.OK: 2}},
		"leaves while delayed": {
			times: 2, others: []headgate.Rule{even()}, codes: map[codes.Code]int{codes.OK: 1, codes.Canceled: 1},
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second/2, cancel)
				return ctx, cancel
			},
		},
		"over MaxWaiters": {
			times: 2, others: []headgate.Rule{even()}, options: grpclimit.Options{MaxWaiters: -1},
			codes: map[codes.Code]int{codes.OK: 1, codes.ResourceExhausted: 1},
		},
		"left before": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
			codes: map[codes.Code]int{codes.Canceled: 1},
		},
		"OnDenied panics": {
			times: 2, others: []headgate.Rule{even()}, codes: map[codes.Code]int{codes.OK: 1, codes.Internal: 1},
			options: grpclimit.Options{MaxWaiters: -1, OnDenied: func(context.Context, string, *headgate.Decision) { panic("denied") }},
		},
		"the log panics": {
			begun:   func(*headgate.Decision) error { return errors.New("no store") },
			options: grpclimit.Options{Log: slog.New(panickingLog{slog.Default().Handler()})}, codes: map[codes.Code]int{codes.Internal: 1},
		},
		"undecided":                {begun: func(*headgate.Decision) error { return errors.New("no store") }, codes: map[codes.Code]int{codes.OK: 1}},
		"denied despite its units": {begun: func(d *headgate.Decision) error { d.Allowed = false; return nil }, codes: map[codes.Code]int{codes.ResourceExhausted: 1}},
		"free":                     {options: grpclimit.Options{Cost: func(string, any) int64 { return 0 }}, codes: map[codes.Code]int{codes.OK: 1}},
		"receives after its return": {
			handler: func(s grpc.ServerStream) error {
				time.AfterFunc(time.Second, func() { _, _ = receive(s) })
				return nil
			},
			codes: map[codes.Code]int{codes.OK: 1},
		},
	} {
		for _, kind := range []string{"unary", "server stream", "client stream", "messages"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConcurrent(t, test.others...)
					c.begun = test.begun
					o := test.options
					o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
					if kind == "messages" {
						if len(test.others) > 0 {
							t.Skip("the messages would be denied or delayed as well")
						}
						o.PerMessage = each
					}
					limit := interceptors(t, c, o)
					handler := test.handler
					if handler == nil {
						handler = func(s grpc.ServerStream) error { _, err := receive(s); return ignoreEOF(err) }
					}
					call := func() error {
						ctx, cancel := t.Context(), func() {}
						if test.ctx != nil {
							ctx, cancel = test.ctx(ctx)
						}
						defer cancel()
						stream := &fakeStream{ctx: ctx, messages: 3}
						if kind == "unary" {
							_, err := limit.Unary(ctx, &text{}, &grpc.UnaryServerInfo{FullMethod: echo}, func(context.Context, any) (any, error) {
								return &text{}, handler(stream)
							})
							return err
						}
						info := &grpc.StreamServerInfo{FullMethod: talk, IsClientStream: kind != "server stream", IsServerStream: true}
						return limit.Stream(nil, stream, info, func(_ any, s grpc.ServerStream) error { return handler(s) })
					}
					var mu sync.Mutex
					got := map[codes.Code]int{}
					var all sync.WaitGroup
					for range max(1, test.times) {
						all.Go(func() {
							exited := true
							var err error
							defer func() {
								mu.Lock()
								defer mu.Unlock()
								switch {
								case recover() != nil:
									got[codes.Internal]++
								case !exited:
									got[status.Code(err)]++
								}
							}()
							err = call()
							exited = false
						})
					}
					all.Wait()
					time.Sleep(2 * time.Second) // for what continues
					c.expectInUse("after all calls have ended", 0)
					// The calls of a server stream are decided only if it receives the message.
					if kind == "server stream" && (name == "fails" || name == "receives after its return" || len(test.others) > 0) {
						return
					}
					for code, n := range test.codes {
						if got[code] != n {
							t.Errorf("%d calls ended with %s, want %d", got[code], code, n)
						}
					}
				})
			})
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestStreamHolds checks that a stream has one unit in use for its whole life, however many messages it receives, and that a further
// stream is denied.
func TestStreamHolds(t *testing.T) {
	t.Parallel()
	for name, perMessage := range map[string]func(string) bool{"stream": nil, "messages": each} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConcurrent(t)
				client := serve(t, interceptors(t, c, grpclimit.Options{PerMessage: perMessage, Metadata: true}))
				ctx, cancel := context.WithCancel(t.Context())
				var streams []grpc.ClientStream
				for range maxInFlight {
					stream := client.stream(t, ctx, talk)
					for range 5 {
						if err := exchange(stream, "a"); err != nil {
							t.Fatal(err)
						}
					}
					streams = append(streams, stream)
				}
				c.expectInUse("with open streams", maxInFlight)
				denied := client.stream(t, ctx, talk)
				err := exchange(denied, "a")
				expectDenied(t, err, "calls-in-flight")
				if d := read(t, err); d.retry < time.Second || d.retry > 1100*time.Millisecond ||
					d.violations[0] != "calls-in-flight allows 2 concurrent calls" {
					t.Errorf("%+v", d)
				}
				if got := denied.Trailer().Get("ratelimit"); len(got) != 1 || got[0] != `"calls-in-flight";r=0` {
					t.Errorf("trailer %v", denied.Trailer())
				}
				expectDenied(t, client.echo(ctx, ""), "calls-in-flight")
				if err := streams[0].CloseSend(); err != nil {
					t.Error(err)
				}
				c.expectInUse("after one stream has ended", maxInFlight-1)
				if err := client.echo(ctx, ""); err != nil {
					t.Error(err)
				}
				cancel()
				c.expectInUse("after the client has left", 0)
			})
		})
	}
}
