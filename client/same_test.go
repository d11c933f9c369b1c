package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
)

var byIP = []string{"ip"}

// unavailable is a store that is unavailable.
type unavailable struct{}

func (unavailable) Shard(headgate.Subject) int { return 0 }

func (unavailable) Namespace() string { return "" }

func (unavailable) SigningKeys(context.Context) ([][]byte, error) {
	return [][]byte{[]byte("it was known before")}, nil
}

func (unavailable) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return headgate.ErrUnavailable
}

// pair has the same rules twice: in this process and behind a server.
type pair struct {
	local  *headgate.Limiter
	remote *client.Client
}

func newPair(t *testing.T, store func() headgate.Store, rules ...headgate.Rule) pair {
	t.Helper()
	local, err := headgate.New(store(), rules...)
	if err != nil {
		t.Fatal(err)
	}
	behind, err := headgate.New(store(), rules...)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	checkgrpc.New(behind, checkgrpc.Options{}).Register(server)
	return pair{local, newClient(t, client.Options{Addresses: []string{listen(t, server)}, Timeout: patient})}
}

// TestSameAsLimiter sends the same requests to both repeatedly and compares all that clients receive.
func TestSameAsLimiter(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2026, time.November, 15, 12, 0, 0, 123_456_000, time.UTC) }
	memory := func() headgate.Store { return memstore.New(memstore.Options{Clock: now}) }
	onClock := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 2, Window: time.Hour, Align: headgate.OnClock}
	sliding := headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 5, Window: 90 * time.Millisecond}
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1000, Window: time.Second}
	noStore := func() headgate.Store { return unavailable{} }
	for name, test := range map[string]struct {
		store func() headgate.Store
		rules []headgate.Rule
	}{
		"no rule": {memory, []headgate.Rule{
			{ID: "a", Match: headgate.Match{Path: "/other"}, By: byIP, Limit: headgate.PerMinute(1)},
		}},
		"token bucket": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limit: headgate.Limit{Count: 7, Window: time.Minute, Burst: 3}},
		}},
		"several": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limits: map[string]headgate.Limit{"peak": headgate.PerSecond(4), "day": headgate.PerDay(3)}},
			{ID: "b", By: headgate.Global, Limit: headgate.PerHour(100)},
			{ID: "c", By: byIP, Limit: sliding},
			{ID: "d", By: byIP, Limit: headgate.Limit{Algorithm: headgate.SlidingLog, Count: 5, Window: time.Minute}},
		}},
		"on the clock": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limit: onClock},
		}},
		"calendar": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limits: map[string]headgate.Limit{
				"month": headgate.Quota(2, headgate.Month, berlin), "day": headgate.Quota(5, headgate.Day, nil),
			}},
		}},
		"shadow": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limit: headgate.PerMinute(1), Mode: headgate.Shadow, Expose: headgate.ExposeAlways},
			{ID: "b", By: byIP, Limit: headgate.PerMinute(3)},
		}},
		"tier and candidate": {memory, []headgate.Rule{
			{
				ID: "a", By: byIP, Limit: headgate.PerMinute(3), Candidate: headgate.Plan{Limit: headgate.PerMinute(1)},
				Tiers: map[string]headgate.Plan{"free": {Limit: headgate.PerMinute(2)}},
			},
		}},
		"never": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limit: headgate.PerMinute(3), Cost: headgate.Cost{From: "header.x-rows"}},
		}},
		"missing": {memory, []headgate.Rule{
			{ID: "a", By: []string{"user"}, OnMissing: headgate.DenyMissing, Limit: headgate.PerMinute(3)},
		}},
		"missing, day": {memory, []headgate.Rule{
			{ID: "a", By: []string{"user"}, OnMissing: headgate.DenyMissing, Limit: headgate.Quota(1, headgate.Day, nil)},
		}},
		"delay": {memory, []headgate.Rule{
			{ID: "a", By: byIP, Limit: leaky, MaxDelay: 2 * time.Millisecond},
		}},
		"store unavailable": {noStore, []headgate.Rule{
			{ID: "a", By: byIP, Limit: headgate.PerMinute(3)},
		}},
		"store unavailable, deny": {noStore, []headgate.Rule{
			{ID: "a", By: byIP, Limit: headgate.PerMinute(3), OnStoreFailure: headgate.FailDeny},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, test.store, test.rules...)
			if names := p.remote.Attributes(); !slices.Equal(names, p.local.Attributes()) {
				t.Errorf("attributes %q, want %q", names, p.local.Attributes())
			}
			for range 5 {
				p.compareHTTP(t)
			}
			p = newPair(t, test.store, test.rules...)
			for range 5 {
				p.compareGRPC(t)
			}
			p = newPair(t, test.store, test.rules...)
			for range 5 {
				p.compareDecisions(t)
			}
		})
	}
}

// compareHTTP compares HTTP responses, without the jitter of waits and the message.
func (p pair) compareHTTP(t *testing.T) {
	t.Helper()
	call := func(checker httplimit.Checker) string {
		w := httptest.NewRecorder()
		o := httplimit.Options{OlderDraft: true, Log: slog.New(slog.DiscardHandler)}
		r := httptest.NewRequest(http.MethodGet, "/x", http.NoBody)
		r.Header.Set("X-Rows", "5")
		httplimit.New(checker, o)(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Header().Get("Retry-After") != "" {
			w.Header().Set("Retry-After", "some")
		}
		var body map[string]any
		if json.Unmarshal(w.Body.Bytes(), &body) == nil {
			delete(body, "retry_after")
			delete(body, "message")
		}
		return fmt.Sprint(w.Code, w.Header(), body)
	}
	if local, remote := call(p.local), call(p.remote); local != remote {
		t.Errorf("in this process:\n%s\nby a server:\n%s", local, remote)
	}
}

// metadataOf collects the metadata sent to a client.
type metadataOf struct{ header, trailer metadata.MD }

func (m *metadataOf) Method() string { return "/shop.Orders/List" }
func (m *metadataOf) SetHeader(md metadata.MD) error {
	m.header = metadata.Join(m.header, md)
	return nil
}
func (m *metadataOf) SendHeader(md metadata.MD) error { return m.SetHeader(md) }
func (m *metadataOf) SetTrailer(md metadata.MD) error {
	m.trailer = metadata.Join(m.trailer, md)
	return nil
}

func (p pair) compareGRPC(t *testing.T) {
	t.Helper()
	call := func(checker grpclimit.Checker) string {
		i, err := grpclimit.New(checker, grpclimit.Options{Metadata: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var sent metadataOf
		_, err = i.Unary(grpc.NewContextWithServerTransportStream(t.Context(), &sent), nil,
			&grpc.UnaryServerInfo{FullMethod: sent.Method()}, func(context.Context, any) (any, error) { return struct{}{}, nil })
		for _, wait := range []string{"retry-after", "grpc-retry-pushback-ms"} {
			if sent.trailer.Get(wait) != nil {
				sent.trailer.Set(wait, "some")
			}
		}
		return fmt.Sprint(sent, err != nil)
	}
	if local, remote := call(p.local), call(p.remote); local != remote {
		t.Errorf("in this process:\n%s\nby a server:\n%s", local, remote)
	}
}

// compareDecisions compares decisions, without the fields that are not transferred: subjects, receipts and window alignment.
func (p pair) compareDecisions(t *testing.T) {
	t.Helper()
	req := headgate.Request{Attributes: headgate.Attributes{
		"ip": "192.0.2.1", "path": "/x", "tier": "free", "header.x-rows": "5",
	}}
	call := func(check func(context.Context, headgate.Request) (headgate.Decision, error)) string {
		d, err := check(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		d.Time = d.Time.UTC()
		for i := range d.Limits {
			l := &d.Limits[i]
			if l.Limit.Calendar != headgate.NoCalendar || l.Limit.Window >= 24*time.Hour {
				l.Limit.Window = 0 // the server sends the current length for a calendar
			}
			if l.Err != nil {
				l.Err = headgate.ErrUnavailable
			}
			l.Limit.Align, l.Limit.Calendar, l.Limit.TimeZone = 0, 0, nil
			l.Subject, l.Counter, l.Receipt, l.UnusedAfter, l.Nodes, l.Time = headgate.Subject{}, 0, headgate.Receipt{}, 0, 0, l.Time.UTC()
		}
		return fmt.Sprintf("%+v", d)
	}
	if local, remote := call(p.local.Check), call(p.remote.Check); local != remote {
		t.Errorf("in this process:\n%s\nby a server:\n%s", local, remote)
	}
}

// TestExact tests that thousands of concurrent checks over two servers allow exactly the limit.
func TestExact(t *testing.T) {
	t.Parallel()
	const limit, requests = 1_000, 4_000
	limiter := newLimiter(t, headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerDay(limit)})
	first, second := &node{}, &node{}
	first.start(t, limiter)
	second.start(t, limiter)
	c := newClient(t, client.Options{Addresses: []string{first.address, second.address}, Timeout: patient})
	var allowed atomic.Int64
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			d := check(t, c, "u")
			if err := failed(d); err != nil {
				t.Error(err)
			}
			if d.Allowed {
				allowed.Add(1)
			}
		})
	}
	running.Wait()
	if allowed.Load() != limit {
		t.Errorf("%d of %d allowed, want %d", allowed.Load(), requests, limit)
	}
}
