package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// middleware measures what httplimit adds to a handler, with counters in memory.
func middleware(_ *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "by-ip", By: []string{"ip"}, Limit: headgate.PerMinute(headgate.MaxCost),
	})
	if err != nil {
		return nil, err
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	limited := httplimit.New(limiter, httplimit.Options{})(bare)
	// A server's context can end, and a request is charged all the same.
	live, cancel := context.WithCancel(context.Background())
	defer cancel()
	variants := []paired.Variant{
		{Name: "f0  handler", Callers: 1, Do: serves(context.Background(), bare)},
		{Name: "f1  handler behind httplimit", Callers: 1, Do: serves(context.Background(), limited)},
		{Name: "f2  the same, context may end", Callers: 1, Do: serves(live, limited)},
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\nnet/http, 1 caller, memstore, 1 rule, %d rounds of %s; medians and quartiles\n", rounds, slice)
	paired.Table(variants, s)
	added, kept := make([]float64, rounds), make([]float64, rounds)
	for i := range added {
		added[i] = s[variants[1].Name][i].ClientCPU - s[variants[0].Name][i].ClientCPU
		kept[i] = s[variants[1].Name][i].ClientCPU / s[variants[2].Name][i].ClientCPU
	}
	allocs := func(h http.Handler) float64 {
		do := serves(context.Background(), h)
		return testing.AllocsPerRun(10_000, func() { _ = do(0, 0) })
	}
	more := allocs(limited) - allocs(bare)
	return func() {
		aims.AtMost("f1 − f0, CPU µs that httplimit adds", paired.Of(added), 4)
		aims.AtLeast("f1 ÷ f2, throughput that is left if contexts may end", paired.Of(kept), 0.98)
		aims.AtMost("f1 − f0, allocations that httplimit adds", paired.Of([]float64{more}), 8)
	}, nil
}

// answer is a ResponseWriter that keeps nothing between requests.
type answer struct{ header http.Header }

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
func (a *answer) WriteHeader(int)             { clear(a.header) }

func serves(ctx context.Context, h http.Handler) func(caller, n int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/things", http.NoBody)
	if err != nil {
		return func(int, int) error { return err }
	}
	request.RequestURI, request.RemoteAddr = "/v1/things", "192.0.2.1:1234"
	w := &answer{http.Header{}}
	return func(int, int) error {
		h.ServeHTTP(w, request)
		return nil
	}
}
