package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
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

// patient is a timeout that no test reaches.
const patient = 30 * time.Second

// failed returns the error of a decision made by OnFailure, or nil.
func failed(d headgate.Decision) error {
	if d.Path != headgate.PathFailed {
		return nil
	}
	return d.Limits[0].Err
}

// connected waits until the client knows the attribute user of a fake.
func connected(t *testing.T, c *client.Client) {
	t.Helper()
	eventually(t, "the client is connected", func() bool { return slices.Equal(c.Attributes(), []string{"user"}) })
}

func TestResponsesReachTheirCallers(t *testing.T) {
	t.Parallel()
	const together = 100
	f := newFake(func(_ int, s *session) error {
		if err := s.hello("user"); err != nil {
			return err
		}
		var all []*checkv1.StreamCheck
		for len(all) < together {
			checks, err := s.next()
			if err != nil {
				return err
			}
			all = append(all, checks...)
		}
		for i := range all { // in reverse order, each with an unknown id
			unknown := &checkv1.StreamCheck{Id: 1 << 40}
			if err := s.respond(unknown, all[len(all)-1-i]); err != nil {
				return err
			}
		}
		return s.serve()
	})
	address, _ := f.start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient})
	var running sync.WaitGroup
	for i := range together {
		running.Go(func() {
			user := strconv.Itoa(i)
			if d := check(t, c, user); d.Version != user {
				t.Errorf("%s got the response for %q", user, d.Version)
			}
		})
	}
	running.Wait()
}

func TestNoResponse(t *testing.T) {
	t.Parallel()
	f := newFake(func(_ int, s *session) error {
		if err := s.hello("user"); err != nil {
			return err
		}
		_, err := s.next()
		<-s.Context().Done()
		return err
	})
	address, _ := f.start(t)
	for _, on := range []headgate.OnStoreFailure{headgate.FailLocal, headgate.FailAllow, headgate.FailDeny} {
		c := newClient(t, client.Options{Addresses: []string{address}, Timeout: 30 * time.Millisecond, OnFailure: on})
		connected(t, c)
		d := check(t, c, "u")
		err := failed(d)
		if d.Allowed != (on != headgate.FailDeny) || !errors.Is(err, headgate.ErrUnanswered) ||
			!errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("on failure %v: decision %+v", on, d)
		}
	}
}

// TestDeniedWithoutResponse tests the middleware's response: 503, without a rule's name.
func TestDeniedWithoutResponse(t *testing.T) {
	t.Parallel()
	c := newClient(t, client.Options{Addresses: []string{"127.0.0.1:1"}, OnFailure: headgate.FailDeny})
	w := httptest.NewRecorder()
	h := httplimit.New(c, httplimit.Options{Log: slog.New(slog.DiscardHandler)})(http.NotFoundHandler())
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		w.Header().Get("RateLimit-Policy") != "" {
		t.Errorf("status %d, headers %v", w.Code, w.Header())
	}
}

// TestContext tests that a request is charged even if its context is done, for example after a client reset it.
func TestContext(t *testing.T) {
	t.Parallel()
	n := &node{}
	n.start(t, newLimiter(t, headgate.Rule{ID: "all", By: []string{"user"}, Limit: headgate.PerHour(100)}))
	c := newClient(t, client.Options{Addresses: []string{n.address}, Timeout: patient})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 20 {
		d, err := c.Check(ctx, by("u"))
		if err != nil || failed(d) != nil || len(d.Limits) == 0 || d.Limits[0].Granted != 1 {
			t.Fatalf("check %d: decision %+v, error %v", i+1, d, err)
		}
	}
	if held, err := c.Reserve(ctx, by("u"), 0); err != nil || failed(held.Decision) != nil || held.Token == nil {
		t.Errorf("reserve: %+v, error %v", held, err)
	}
}

// TestNeverSentTwice breaks streams with pending checks: each check reaches a server at most once, even with failover.
func TestNeverSentTwice(t *testing.T) {
	t.Parallel()
	fragile := newFake(func(_ int, s *session) error {
		if err := s.hello("user"); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				return err
			}
			if len(checks) > 2 {
				return status.Error(codes.Internal, "broken")
			}
			if err := s.respond(checks...); err != nil {
				return err
			}
		}
	})
	healthy := newFake(willing)
	first, _ := fragile.start(t)
	second, _ := healthy.start(t)
	c := newClient(t, client.Options{Addresses: []string{first, second}, Timeout: patient})
	const each = 50
	end := time.Now().Add(patient)
	brokeTwice := func() bool {
		streams, _ := fragile.count()
		return streams >= 2
	}
	var lost atomic.Int64
	var running sync.WaitGroup
	for i := range 32 {
		running.Go(func() {
			for n := 0; n < each || !brokeTwice() && time.Now().Before(end); n++ {
				user := fmt.Sprintf("%d-%d", i, n)
				d := check(t, c, user)
				switch err := failed(d); {
				case err == nil:
					if d.Version != user {
						t.Errorf("%s got the response for %q", user, d.Version)
					}
				case errors.Is(err, headgate.ErrUnanswered):
					lost.Add(1)
				default:
					t.Errorf("%s: %v, although a server is available", user, err)
				}
			}
		})
	}
	running.Wait()
	streams, broken := fragile.count()
	_, taken := healthy.count()
	t.Logf("%d streams broke and lost %d checks; %d and %d arrived", streams, lost.Load(), broken, taken)
	if streams < 2 || lost.Load() == 0 {
		t.Error("nothing broke")
	}
	for _, f := range []*fake{fragile, healthy} {
		for user, n := range f.seen {
			if n > 1 || fragile.seen[user]+healthy.seen[user] > 1 {
				t.Errorf("%s arrived more than once", user)
			}
		}
	}
}

// TestHang tests a server that accepts connections and does not respond, like a stopped process.
func TestHang(t *testing.T) {
	t.Parallel()
	wakes := make(chan struct{})
	hangs := newFake(func(n int, s *session) error {
		if n > 1 {
			select {
			case <-wakes:
			case <-s.Context().Done():
				return nil
			}
			return willing(n, s)
		}
		if err := s.hello("user"); err != nil {
			return err
		}
		for { // reads and does not respond
			if _, err := s.next(); err != nil {
				return err
			}
		}
	})
	address, _ := hangs.start(t)
	var log journal
	const timeout = 100 * time.Millisecond
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: timeout, Log: log.logger()})
	connected(t, c)
	for n := range 5 {
		if err := failed(check(t, c, strconv.Itoa(n))); err == nil {
			t.Fatalf("check %d: %v", n, err)
		}
	}
	eventually(t, "the server is considered unavailable", func() bool { return log.count("server unavailable") == 1 })
	begin := time.Now()
	for range 100 {
		if err := failed(check(t, c, "u")); err == nil || errors.Is(err, headgate.ErrUnanswered) {
			t.Fatalf("with a server that hangs: %v", err)
		}
	}
	if elapsed := time.Since(begin); elapsed > 10*timeout {
		t.Errorf("100 checks without a server took %v", elapsed)
	}
	close(wakes)
	eventually(t, "checks are decided again", func() bool { return failed(check(t, c, "u")) == nil })
	if lost, recovered := log.count("server unavailable"), log.count("server recovered"); lost != 1 || recovered != 1 {
		t.Errorf("%d log lines for unavailable, %d for recovered", lost, recovered)
	}
}

// TestHangOfOne tests that checks go to the other server.
func TestHangOfOne(t *testing.T) {
	t.Parallel()
	hangs := newFake(func(n int, s *session) error {
		if n == 1 {
			if err := s.hello("user"); err != nil {
				return err
			}
		}
		for {
			if _, err := s.next(); err != nil {
				return err
			}
		}
	})
	first, _ := hangs.start(t)
	second, _ := newFake(willing).start(t)
	c := newClient(t, client.Options{Addresses: []string{first, second}, Timeout: 100 * time.Millisecond})
	eventually(t, "it hangs", func() bool {
		check(t, c, "u")
		_, lost := hangs.count()
		return lost > 0
	})
	for range 100 {
		check(t, c, "u")
	}
	if _, lost := hangs.count(); lost > 5 {
		t.Errorf("%d checks went to a server that hangs", lost)
	}
}

// TestSlowIsNotHanging tests that a server that responds late, after many timeouts, is not considered hung.
func TestSlowIsNotHanging(t *testing.T) {
	t.Parallel()
	slow := newFake(func(_ int, s *session) error {
		if err := s.hello("user"); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				return nil //nolint:nilerr // The caller may disconnect at any time.
			}
			time.Sleep(20 * time.Millisecond)
			if err := s.respond(checks...); err != nil {
				return err
			}
		}
	})
	address, _ := slow.start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: 5 * time.Second})
	check(t, c, "u")
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, err := c.Check(ctx, by("u")); err != nil {
			t.Error(err)
		}
		cancel()
	}
	err := failed(check(t, c, "u"))
	if streams, _ := slow.count(); streams != 1 || err != nil {
		t.Errorf("%d streams, error %v", streams, err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	var log journal
	c := newClient(t, client.Options{Addresses: []string{"127.0.0.1:1"}, Timeout: patient, Log: log.logger()})
	for range 3 {
		err := failed(check(t, c, "u"))
		if !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) {
			t.Errorf("without a server: %v", err)
		}
	}
	eventually(t, "a line in the log", func() bool { return log.count("127.0.0.1:1") > 0 })
}

func TestErrorResponses(t *testing.T) {
	t.Parallel()
	var code codes.Code
	f := newFake(func(_ int, s *session) error {
		if err := s.hello(); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				return nil //nolint:nilerr // The caller may disconnect at any time.
			}
			if err := s.Send(&checkv1.CheckStreamResponse{Answers: []*checkv1.StreamAnswer{
				{Id: checks[0].GetId(), Code: int32(code), Message: "because"},
			}}); err != nil {
				return err
			}
		}
	})
	address, _ := f.start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient})
	for code = codes.Canceled; code <= codes.Unauthenticated; code++ {
		d, err := c.Check(t.Context(), by("u"))
		switch code {
		case codes.NotFound:
			if !errors.Is(err, headgate.ErrUnknownRule) || !d.Allowed {
				t.Errorf("%v: decision %+v, error %v", code, d, err)
			}
		case codes.InvalidArgument, codes.PermissionDenied:
			if err == nil || err.Error() != "client: because" || !d.Allowed {
				t.Errorf("%v: decision %+v, error %v", code, d, err)
			}
		default:
			if err != nil || !d.Allowed || !errors.Is(failed(d), headgate.ErrUnavailable) {
				t.Errorf("%v: decision %+v, error %v", code, d, err)
			}
		}
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	address, _ := newFake(willing).start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient})
	if _, err := c.Check(t.Context(), by(string(make([]byte, 3<<20)))); err == nil {
		t.Error("a request of 3 MB is sent")
	}
	// Many requests of the largest accepted size.
	large := headgate.Request{Attributes: headgate.Attributes{"user": "u"}}
	for i := range 127 {
		large.Attributes["header.x-"+strconv.Itoa(i)] = string(make([]byte, 8<<10))
	}
	var running sync.WaitGroup
	for range 6 {
		running.Go(func() {
			if d, err := c.Check(t.Context(), large); err != nil || failed(d) != nil {
				t.Errorf("error %v, %v", err, failed(d))
			}
		})
	}
	running.Wait()
}

func TestClose(t *testing.T) {
	t.Parallel()
	requests := make(chan struct{}, 1)
	f := newFake(func(_ int, s *session) error {
		if err := s.hello(); err != nil {
			return err
		}
		for {
			if _, err := s.next(); err != nil {
				return err
			}
			select {
			case requests <- struct{}{}:
			default:
			}
		}
	})
	address, _ := f.start(t)
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient})
	var running sync.WaitGroup
	for range 100 {
		running.Go(func() {
			if failed(check(t, c, "u")) == nil {
				t.Error("a decision without a server")
			}
		})
	}
	<-requests
	c.Close()
	running.Wait()
	err := failed(check(t, c, "u"))
	if !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) {
		t.Errorf("after Close: %v", err)
	}
	if d, err := c.Peek(t.Context(), by("u")); err != nil || failed(d) == nil {
		t.Errorf("after Close: decision %+v, error %v", d, err)
	}
	c.Close()
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []client.Options{
		{},
		{Addresses: []string{"headgate"}},
		{Addresses: []string{"headgate:"}},
		{Addresses: []string{"headgate:8081", "dns:///headgate:8081"}},
		{Addresses: []string{"headgate:8081"}, Timeout: -1},
	} {
		if c, err := client.New(o); err == nil {
			c.Close()
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestQueuedChecksFailOver breaks a stream that the server does not read, with queued checks.
func TestQueuedChecksFailOver(t *testing.T) {
	t.Parallel()
	breaks := make(chan struct{})
	stuck := newFake(func(_ int, s *session) error {
		if err := s.hello("user"); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				return err
			}
			if checks[0].GetRequest().GetAttributes()["user"] == "stop" {
				<-breaks
				return status.Error(codes.Internal, "broken")
			}
			if err := s.respond(checks...); err != nil {
				return err
			}
		}
	})
	healthy := newFake(willing)
	first, _ := stuck.start(t)
	second, _ := healthy.start(t)
	c := newClient(t, client.Options{Addresses: []string{first, second}, Timeout: patient})
	eventually(t, "both get checks", func() bool {
		check(t, c, "u")
		_, checks := stuck.count()
		_, others := healthy.count()
		return checks > 0 && others > 0
	})
	var running sync.WaitGroup
	for range 2 { // round robin
		running.Go(func() { check(t, c, "stop") })
	}
	eventually(t, "one is stuck", func() bool {
		stuck.mu.Lock()
		defer stuck.mu.Unlock()
		return stuck.seen["stop"] > 0
	})
	req := by("u")
	req.Attributes["header.x"] = strings.Repeat("x", 30<<10)
	const requests = 64
	var lost, decided atomic.Int64
	for range requests {
		running.Go(func() {
			d, err := c.Check(t.Context(), req)
			if err != nil || failed(d) != nil {
				lost.Add(1)
			} else {
				decided.Add(1)
			}
		})
	}
	eventually(t, "the healthy server has decided its half", func() bool { return decided.Load() == requests/2 })
	close(breaks)
	running.Wait()
	if lost.Load() == 0 || lost.Load() > requests/4 {
		t.Errorf("%d of %d checks were lost, want those in two or three messages", lost.Load(), requests)
	}
}
