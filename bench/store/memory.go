package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
)

// memory measures memstore with a million counters: drawn uniformly, by zipf, and one hot counter.
func memory(s *paired.Suite) {
	const many = 1_000_000
	ids := make([]headgate.Subject, many)
	for i := range ids {
		ids[i] = headgate.SubjectOf(strconv.Itoa(i))
	}
	before := paired.Heap()
	store := memstore.New(memstore.Options{MaxEntries: 2 * many})
	counter := headgate.CounterOf("bench", "", headgate.TokenBucket)
	for _, id := range ids {
		testenv.NoError(s, takeSome(store, id, counter, 500_000_000)) // they expire only after minutes
	}
	if store.Len() != many {
		s.Fatalf("%d of %d counters were kept", store.Len(), many)
	}
	perCounter := (paired.Heap()-before)/many - 24 // the key: a subject and a counter
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, many-1)
	// In the order of use, so that fetching the subject is cheap: an application has just computed it.
	uniform, byZipf := make([]headgate.Subject, 1<<20), make([]headgate.Subject, 1<<20)
	for i := range byZipf {
		uniform[i], byZipf[i] = ids[bare.Spread(0, i)%many], ids[zipf.Uint64()]
	}
	allocs := testing.AllocsPerRun(10_000, func() { _ = takeSome(store, ids[7], counter, 1) })
	take := func(from []headgate.Subject) func(caller, n int) error {
		return func(caller, n int) error { return takeSome(store, from[(n+caller*7919)%len(from)], counter, 1) }
	}
	got := s.Measure(fmt.Sprintf("memstore, %d counters, 1 caller", many), s.Rounds, s.Slice, []paired.Variant{
		{Name: "d1  memstore, uniform", Callers: 1, Do: take(uniform)},
		{Name: "d2  memstore, zipf", Callers: 1, Do: take(byZipf)},
		{Name: "d2' memstore, zipf, 2 callers", Callers: 2, Do: take(byZipf)},
		{Name: "d3  memstore, one hot key", Callers: 1, Do: take(ids[:1])},
	})
	s.ExpectMax("d2, memstore zipf, CPU ns per decision", got.Median("d2", func(s paired.Sample) float64 { return s.ClientCPU * 1000 }), 300)
	s.ExpectMaxValue("memstore, allocations per decision", allocs, 0)
	s.ExpectMaxValue("memstore, bytes per counter without the key", perCounter, 100)
}

func takeSome(store *memstore.Store, id headgate.Subject, counter headgate.Counter, cost int64) error {
	limit := headgate.Limit{Count: 1_000_000, Window: time.Second, Burst: headgate.MaxCost}
	charges := [1]headgate.Charge{{Subject: id, Counter: counter, Limit: limit, Cost: cost}}
	var results [1]headgate.Result
	return store.Take(context.Background(), charges[:], results[:])
}
