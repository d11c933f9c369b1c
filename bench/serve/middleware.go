package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// middleware measures the overhead of httplimit on a handler, with counters in memory.
func middleware(s *paired.Suite) {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "by-ip", By: []string{"ip"}, Limit: headgate.PerMinute(headgate.MaxCost),
	})
	testenv.NoError(s, err)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	limited := httplimit.New(limiter, httplimit.Options{})(bare)
	slots, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "in-flight", By: []string{"ip"}, Limit: headgate.Concurrent(1000),
	})
	testenv.NoError(s, err)
	concurrent := httplimit.New(slots, httplimit.Options{})(bare)
	// A server's context can be cancelled; the request is charged nevertheless.
	live, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := s.Measure("net/http, 1 caller, memstore, 1 rule", s.Rounds, s.Slice, []paired.Variant{
		{Name: "f0  handler", Callers: 1, Do: serves(context.Background(), bare)},
		{Name: "f1  handler behind httplimit", Callers: 1, Do: serves(context.Background(), limited)},
		{Name: "f2  the same, cancellable context", Callers: 1, Do: serves(live, limited)},
		{Name: "f3  handler behind httplimit, concurrency limit", Callers: 1, Do: serves(live, concurrent)},
	})
	allocs := func(h http.Handler) float64 {
		do := serves(context.Background(), h)
		return testing.AllocsPerRun(10_000, func() { _ = do(0, 0) })
	}
	s.ExpectMax("f1 − f0, CPU µs that httplimit adds", got.Difference("f1", "f0", paired.ClientCPU), 4)
	s.ExpectMin("f1 ÷ f2, throughput that remains with cancellable contexts", got.Ratio("f1", "f2", paired.ClientCPU), 0.98)
	s.ExpectMax("f3 − f0, CPU µs that httplimit adds with a concurrency limit", got.Difference("f3", "f0", paired.ClientCPU), 6)
	s.ExpectMaxValue("f1 − f0, allocations that httplimit adds", allocs(limited)-allocs(bare), 8)
}

// response is a ResponseWriter that keeps nothing between requests.
type response struct{ header http.Header }

func (a *response) Header() http.Header         { return a.header }
func (a *response) Write(b []byte) (int, error) { return len(b), nil }
func (a *response) WriteHeader(int)             { clear(a.header) }

func serves(ctx context.Context, h http.Handler) func(caller, n int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/things", http.NoBody)
	if err != nil {
		return func(int, int) error { return err }
	}
	request.RequestURI, request.RemoteAddr = "/v1/things", "192.0.2.1:1234"
	w := &response{http.Header{}}
	return func(int, int) error {
		h.ServeHTTP(w, request)
		return nil
	}
}
