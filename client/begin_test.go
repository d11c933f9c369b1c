package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/httplimit"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// inFlight is servers with a concurrency limit of 3, whose lease is too long to wait for: what is released is released by a call or
// with its stream.
type inFlight struct {
	*headgate.Limiter
	t         *testing.T
	nodes     []*slotNode
	addresses []string
	// began is called after a request was decided, if it is not nil. Its error replaces the decision.
	began atomic.Pointer[func() error]
}

const concurrent = 3

func newInFlight(t *testing.T, servers int) *inFlight {
	t.Helper()
	limit := headgate.Concurrent(concurrent)
	limit.Window = time.Hour
	f := &inFlight{t: t, Limiter: newLimiter(t, headgate.Rule{ID: "exports", By: headgate.Global, Strict: true, Limit: limit})}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for range servers {
		n := &slotNode{}
		n.restart(f)
		f.nodes, f.addresses = append(f.nodes, n), append(f.addresses, n.address)
	}
	return f
}

// Begin implements check.Engine.
func (f *inFlight) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := f.Limiter.Begin(ctx, req)
	if began := f.began.Load(); began != nil {
		if failure := (*began)(); failure != nil {
			return d, failure
		}
	}
	return d, err
}

func (f *inFlight) onBegan(do func() error) { f.began.Store(&do) }

func (f *inFlight) client(o client.Options) *client.Client {
	f.t.Helper()
	o.Addresses = f.addresses
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	return newClient(f.t, o)
}

// used returns how many units are in use.
func (f *inFlight) used() int64 {
	d, err := f.Peek(context.Background(), headgate.Request{})
	if err != nil {
		f.t.Fatal(err)
	}
	return concurrent - d.Limits[0].Remaining
}

// expect checks that n units are in use once releases are recorded.
func (f *inFlight) expect(when string, n int64) {
	f.t.Helper()
	eventually(f.t, when, func() bool { return f.used() == n })
}

// slotNode is a server with a concurrency limit. It counts the requests that begin.
type slotNode struct {
	node
	begins atomic.Int64
}

// restart starts the server again, or for the first time.
func (n *slotNode) restart(f *inFlight) { n.start(f.t, countedEngine{f, &n.begins}) }

type countedEngine struct {
	*inFlight
	begins *atomic.Int64
}

func (e countedEngine) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	e.begins.Add(1)
	return e.inFlight.Begin(ctx, req)
}

// begin begins a request, which must be allowed and have units.
func begin(t testing.TB, c *client.Client) *headgate.Decision {
	t.Helper()
	d, err := c.Begin(context.Background(), headgate.Request{})
	if err != nil || !d.Allowed || !d.Holds() {
		t.Fatalf("decision %+v, error %v", d, err)
	}
	return &d
}

func TestBegin(t *testing.T) {
	t.Parallel()
	f := newInFlight(t, 1)
	c := f.client(client.Options{})
	if d := check(t, c, "u"); !d.Allowed || d.Holds() || len(d.Skipped) != 1 || d.Skipped[0] != "exports" {
		t.Errorf("Check: %+v", d)
	}
	first, second, third := begin(t, c), begin(t, c), begin(t, c)
	d, err := c.Begin(t.Context(), headgate.Request{})
	if err != nil || d.Allowed || d.Holds() || d.RetryAfter < time.Second || d.DeniedBy().Rule != "exports" || d.Skipped != nil {
		t.Errorf("the fourth: %+v, %v", d, err)
	}
	d.Done(headgate.Outcome{})
	if n := f.used(); n != concurrent {
		t.Errorf("%d in use, want %d", n, concurrent)
	}
	second.Done(headgate.Outcome{Status: http.StatusOK})
	second.Done(headgate.Outcome{})
	f.expect("one has ended", 2)
	begin(t, c).Done(headgate.Outcome{})
	first.Done(headgate.Outcome{})
	third.Done(headgate.Outcome{})
	f.expect("all have ended", 0)
}

// TestBeginMiddleware checks that middleware with a client applies the limit.
func TestBeginMiddleware(t *testing.T) {
	t.Parallel()
	f := newInFlight(t, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	h := httplimit.New(f.client(client.Options{}), httplimit.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	request := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	var running sync.WaitGroup
	for range concurrent {
		running.Go(func() {
			if code := request(); code != http.StatusOK {
				t.Errorf("status %d", code)
			}
		})
	}
	for range concurrent {
		<-entered
	}
	if code := request(); code != http.StatusTooManyRequests {
		t.Errorf("status %d", code)
	}
	close(leave)
	running.Wait()
	f.expect("all have ended", 0)
}

// TestNoUnitsLost takes every path through Begin. Afterwards no unit may be in use.
func TestNoUnitsLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, f *inFlight){
		"request too large": func(t *testing.T, f *inFlight) {
			req := headgate.Request{Attributes: headgate.Attributes{"user": string(make([]byte, 3<<20))}}
			if d, err := f.client(client.Options{}).Begin(t.Context(), req); err == nil || d.Holds() {
				t.Errorf("%+v, %v", d, err)
			}
		},
		"unknown rule": func(t *testing.T, f *inFlight) {
			if d, err := f.client(client.Options{}).Begin(t.Context(), headgate.Request{Rule: "none"}); !errors.Is(err, headgate.ErrUnknownRule) || d.Holds() {
				t.Errorf("%+v, %v", d, err)
			}
		},
		"engine fails": func(t *testing.T, f *inFlight) {
			f.onBegan(func() error { return errors.New("broken") })
			if d, err := f.client(client.Options{}).Begin(t.Context(), headgate.Request{}); err != nil || failed(d) == nil || d.Holds() {
				t.Errorf("%+v, %v", d, err)
			}
		},
		"caller's context is done": func(t *testing.T, f *inFlight) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			d, err := f.client(client.Options{}).Begin(ctx, headgate.Request{})
			if err != nil || !d.Allowed || !d.Holds() {
				t.Errorf("%+v, %v", d, err)
			}
			f.expect("it is in use", 1)
			d.Done(headgate.Outcome{Cancelled: true})
		},
		"response too late": func(t *testing.T, f *inFlight) {
			c := f.client(client.Options{Timeout: 50 * time.Millisecond})
			eventually(t, "a connection", func() bool { return failed(check(t, c, "u")) == nil })
			pass := make(chan struct{})
			f.onBegan(func() error { <-pass; return nil })
			for range concurrent {
				if d, err := c.Begin(t.Context(), headgate.Request{}); err != nil || d.Holds() || !errors.Is(failed(d), headgate.ErrUnanswered) {
					t.Errorf("%+v, %v", d, err)
				}
			}
			f.expect("they are in use", concurrent)
			close(pass)
			f.expect("they are released", 0)
			if failed(check(t, c, "u")) != nil {
				t.Error("the stream was closed")
			}
		},
		"server stops while it decides": func(t *testing.T, f *inFlight) {
			c := f.client(client.Options{})
			stopped := make(chan struct{})
			f.onBegan(func() error {
				go func() { f.nodes[0].server.Stop(); close(stopped) }()
				return nil
			})
			d, _ := c.Begin(t.Context(), headgate.Request{})
			<-stopped
			d.Done(headgate.Outcome{})
		},
		"server stops before the end": func(t *testing.T, f *inFlight) {
			d := begin(t, f.client(client.Options{}))
			f.nodes[0].server.Stop()
			f.expect("the stream has ended", 0)
			f.nodes[0].restart(f)
			d.Done(headgate.Outcome{})
		},
		"client closes before the end": func(t *testing.T, f *inFlight) {
			c := f.client(client.Options{})
			d, _ := begin(t, c), begin(t, c)
			c.Close()
			f.expect("the client has closed", 0)
			d.Done(headgate.Outcome{})
			if d, err := c.Begin(t.Context(), headgate.Request{}); err != nil || d.Holds() || !errors.Is(failed(d), headgate.ErrUnavailable) {
				t.Errorf("after Close: %+v, %v", d, err)
			}
		},
		"client closes while the server decides": func(t *testing.T, f *inFlight) {
			c := f.client(client.Options{})
			closed := make(chan struct{})
			f.onBegan(func() error {
				go func() { c.Close(); close(closed) }()
				return nil
			})
			d, _ := c.Begin(t.Context(), headgate.Request{})
			<-closed
			f.expect("the client has closed", 0)
			d.Done(headgate.Outcome{})
		},
		"done by a copy": func(t *testing.T, f *inFlight) {
			d := begin(t, f.client(client.Options{}))
			copied := *d
			copied.Done(headgate.Outcome{})
			d.Done(headgate.Outcome{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newInFlight(t, 1)
			test(t, f)
			f.expect("nothing is in use", 0)
		})
	}
}

// TestBeginDrain checks that a connection to a draining server stays open until its requests have ended, but takes no new ones.
func TestBeginDrain(t *testing.T) {
	t.Parallel()
	f := newInFlight(t, 2)
	var log journal
	c := f.client(client.Options{Log: log.logger()})
	old, other := f.nodes[0], f.nodes[1]
	var held, others *headgate.Decision
	for held == nil || others == nil { // until both are connected
		before := old.begins.Load()
		switch d := begin(t, c); {
		case old.begins.Load() > before && held == nil:
			held = d
		case old.begins.Load() == before && others == nil:
			others = d
		default:
			before := f.used()
			d.Done(headgate.Outcome{})
			f.expect("it is released", before-1)
		}
	}
	last := begin(t, c)
	denied := old.begins.Load() + 1
	for old.begins.Load() < denied { // on the old server, too
		if d, err := c.Begin(t.Context(), headgate.Request{}); err != nil || d.Allowed || d.Holds() {
			t.Errorf("%+v, %v", d, err)
		}
	}
	last.Done(headgate.Outcome{})
	f.expect("one per server", 2)

	old.service.Drain()
	eventually(t, "the client knows that the server drains", func() bool { return log.count("draining") == 1 })
	stopped := make(chan struct{})
	go func() {
		old.server.GracefulStop() // returns when all streams are closed
		close(stopped)
	}()
	before := other.begins.Load()
	begin(t, c).Done(headgate.Outcome{})
	if other.begins.Load() != before+1 {
		t.Error("a request begins on the server that drains")
	}
	f.expect("one per server", 2)
	select {
	case <-stopped:
		t.Error("the stream has ended before its request")
	default:
	}
	held.Done(headgate.Outcome{})
	eventually(t, "the server has stopped", func() bool {
		select {
		case <-stopped:
			return true
		default:
			return false
		}
	})
	f.expect("only that of the other server", 1)
	others.Done(headgate.Outcome{})
	f.expect("none", 0)
}

// TestBeginRandomly begins and ends requests with many clients that close, while servers stall, drain, stop and start again. In the end
// nothing may be in use, without waiting for a lease.
func TestBeginRandomly(t *testing.T) {
	t.Parallel()
	f := newInFlight(t, 2)
	f.onBegan(func() error {
		switch n := rand.IntN(100); {
		case n < 2:
			return status.Error(codes.Internal, "broken")
		case n < 20:
			time.Sleep(time.Duration(rand.IntN(int(30 * time.Millisecond))))
		}
		return nil
	})
	const requests = 3_000
	var begun, held atomic.Int64
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			c := f.client(client.Options{Timeout: 20 * time.Millisecond})
			for begun.Add(1) < requests {
				d, err := c.Begin(context.Background(), headgate.Request{})
				if err != nil {
					t.Error(err)
				}
				if d.Holds() {
					held.Add(1)
				}
				time.Sleep(time.Duration(rand.IntN(int(2 * time.Millisecond))))
				if rand.IntN(200) == 0 {
					c.Close() // with a request in flight
					c = f.client(client.Options{Timeout: 20 * time.Millisecond})
				}
				d.Done(headgate.Outcome{})
			}
		})
	}
	for n := 0; begun.Load() < requests; n++ {
		node := f.nodes[n%2]
		time.Sleep(100 * time.Millisecond)
		if n%4 < 2 {
			node.service.Drain()
			time.Sleep(20 * time.Millisecond)
		}
		node.server.Stop()
		node.restart(f)
	}
	running.Wait()
	f.expect("nothing is in use", 0)
	t.Logf("%d of %d requests had units", held.Load(), requests)
	if held.Load() < requests/100 { // fewer, the busier the machine is
		t.Errorf("%d of %d requests had units", held.Load(), requests)
	}
}

// TestBeginUnreadable checks that a response that cannot be decoded ends the stream, and with it what the server has.
func TestBeginUnreadable(t *testing.T) {
	t.Parallel()
	var ended atomic.Int32
	f := newFake(func(_ int, s *session) error {
		defer ended.Add(1)
		if err := s.hello(); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				return err
			}
			response := &checkv1.CheckResponse{Allowed: true}
			response.ProtoReflect().SetUnknown([]byte{0xff}) // not a field
			if err := s.Send(&checkv1.CheckStreamResponse{Answers: []*checkv1.StreamAnswer{{Id: checks[0].GetId(), Response: response}}}); err != nil {
				return err
			}
		}
	})
	address, _ := f.start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient})
	if d, err := c.Begin(t.Context(), by("u")); err != nil || failed(d) == nil || d.Holds() {
		t.Errorf("%+v, %v", d, err)
	}
	eventually(t, "the stream ends", func() bool { return ended.Load() > 0 })
}
