package grpclimit_test

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/identity"
)

var _ grpclimit.Checker = (*headgate.Limiter)(nil)

func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := grpclimit.New(nil, grpclimit.Options{}); err == nil || !strings.Contains(err.Error(), "headgate.New") {
		t.Errorf("without a checker: %v", err)
	}
}

// recorder allows all requests and records them.
type recorder struct {
	mu       sync.Mutex
	names    []string
	requests []headgate.Request
}

func (s *recorder) Check(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	attributes := headgate.Attributes{}
	for name, value := range req.Attributes {
		attributes[name] = value
	}
	s.requests = append(s.requests, headgate.Request{Attributes: attributes, Cost: req.Cost})
	return headgate.Decision{Allowed: true}, nil
}

func (s *recorder) Attributes() []string { return s.names }

func TestAttributes(t *testing.T) {
	t.Parallel()
	behind := func(proxies ...string) *identity.Resolver {
		var o identity.Options
		for _, p := range proxies {
			o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(p))
		}
		who, err := identity.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	add := func(_ context.Context, attributes headgate.Attributes) {
		attributes["tenant"] = "of " + attributes["ip"]
	}
	for name, test := range map[string]struct {
		options grpclimit.Options
		want    headgate.Attributes
	}{
		"no proxy is trusted by default": {
			want: headgate.Attributes{"ip": "127.0.0.1", "user": "", "header.x-rows": "12"},
		},
		"a peer that is not a proxy": {
			options: grpclimit.Options{Identity: behind("10.0.0.0/8")},
			want:    headgate.Attributes{"ip": "127.0.0.1", "user": ""},
		},
		"a proxy": {
			options: grpclimit.Options{Identity: behind("127.0.0.0/8")},
			want:    headgate.Attributes{"ip": "192.0.2.7", "user": "ada"},
		},
		"what is added": {
			options: grpclimit.Options{Attributes: add},
			want:    headgate.Attributes{"ip": "127.0.0.1", "tenant": "of 127.0.0.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := &recorder{names: []string{"header.x-rows"}}
			limit, err := grpclimit.New(checker, test.options)
			if err != nil {
				t.Fatal(err)
			}
			c := serveTCP(t, limit)
			ctx := as(t.Context(), "x-forwarded-for", "192.0.2.7", "x-user-id", "ada", "x-rows", "12")
			if err := c.echo(ctx, ""); err != nil {
				t.Fatal(err)
			}
			got := checker.requests[0].Attributes
			test.want["path"], test.want["method"], test.want["host"] = echo, "POST", "127.0.0.1"
			for name, value := range test.want {
				if got[name] != value {
					t.Errorf("%s is %q, want %q", name, got[name], value)
				}
			}
			if !strings.HasPrefix(got["user_agent"], "grpc-go/") || len(checker.requests) != 1 {
				t.Errorf("checked requests: %v", checker.requests)
			}
		})
	}
}

// TestCost tests that Cost gets the message of a unary or server-streaming call, and nil at the start of a client stream.
func TestCost(t *testing.T) {
	t.Parallel()
	checker := &recorder{}
	c := serve(t, interceptors(t, checker, grpclimit.Options{
		Cost: func(method string, message any) int64 {
			if message == nil {
				return 100
			}
			return int64(len(message.(*text).GetValue()))
		},
		PerMessage: func(method string) bool { return method == talk },
	}))
	expect := func(when string, costs ...int64) {
		t.Helper()
		checker.mu.Lock()
		defer checker.mu.Unlock()
		if len(checker.requests) != len(costs) {
			t.Fatalf("%s: checked requests: %v", when, checker.requests)
		}
		for i, cost := range costs {
			if checker.requests[i].Cost != cost {
				t.Errorf("%s: check %d: cost %d, want %d", when, i, checker.requests[i].Cost, cost)
			}
		}
		checker.requests = nil
	}
	if err := c.echo(t.Context(), "abc"); err != nil {
		t.Fatal(err)
	}
	expect("unary", 3)
	if err := c.echo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	expect("free")

	stream := c.stream(t, t.Context(), list)
	if err := exchangeLast(stream, "abcd"); err != nil {
		t.Fatal(err)
	}
	expect("a server stream", 4)

	stream = c.stream(t, t.Context(), talk)
	for _, message := range []string{"a", "", "ccc"} {
		if err := exchange(stream, message); err != nil {
			t.Fatal(err)
		}
	}
	expect("messages", 100, 1, 3)

	stream = c.stream(t, t.Context(), collect)
	for range 3 {
		if err := stream.SendMsg(&text{Value: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&text{}); err != nil {
		t.Fatal(err)
	}
	expect("a stream whose messages are not checked", 100)
}

// TestConcurrent tests that concurrent calls and messages together do not exceed the limit.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	o := grpclimit.Options{Metadata: true, PerMessage: func(string) bool { return true }}
	c := serve(t, limits(t, o, headgate.Rule{ID: "all", By: []string{"user"}, Limit: headgate.PerDay(100)}))
	ctx := as(t.Context(), "x-user-id", "ada")
	var allowed atomic.Int64
	var callers sync.WaitGroup
	count := func(err error) bool {
		switch status.Code(err) {
		case codes.OK:
			allowed.Add(1)
			return true
		case codes.ResourceExhausted:
		default:
			t.Error(err)
		}
		return false
	}
	for range 4 {
		callers.Go(func() {
			for range 30 {
				count(c.echo(ctx, ""))
			}
		})
		callers.Go(func() {
			stream := c.stream(t, ctx, talk)
			if !count(exchange(stream, "")) {
				return
			}
			allowed.Add(1) // the start of the stream
			for range 30 {
				if !count(exchange(stream, "")) {
					return
				}
			}
		})
	}
	callers.Wait()
	// If the start of a stream used the last unit, its first message may be denied.
	if n := allowed.Load(); n < 96 || n > 100 {
		t.Errorf("%d allowed", n)
	}
	if err := c.echo(ctx, ""); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
}

// TestExact tests that exactly as many concurrent calls are allowed as the limit allows.
func TestExact(t *testing.T) {
	t.Parallel()
	rule := headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: headgate.PerDay(100)}
	c := serveTCP(t, limits(t, grpclimit.Options{}, rule))
	var allowed atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 25 {
				if c.echo(t.Context(), "") == nil {
					allowed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := allowed.Load(); n != 100 {
		t.Errorf("%d of 200 allowed, want 100", n)
	}
}
