package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/memstore"
)

// memory measures memstore over a million counters: all alike, by zipf, and one hot one.
func memory(_ *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	const many = 1_000_000
	ids := make([]headgate.Subject, many)
	for i := range ids {
		ids[i] = headgate.SubjectOf(strconv.Itoa(i))
	}
	before := heap()
	store := memstore.New(memstore.Options{MaxEntries: 2 * many})
	counter := headgate.CounterOf("bench", "", headgate.TokenBucket)
	for _, id := range ids {
		if err := takeSome(store, id, counter, 500_000_000); err != nil { // they live on for minutes
			return nil, err
		}
	}
	if store.Len() != many {
		return nil, fmt.Errorf("%d of %d counters are held", store.Len(), many)
	}
	perCounter := float64(heap()-before)/many - 24 // the key: a subject and a counter
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, many-1)
	// In the order of use, so that fetching the subject costs little: in life it has just been computed.
	alike, byZipf := make([]headgate.Subject, 1<<20), make([]headgate.Subject, 1<<20)
	for i := range byZipf {
		alike[i], byZipf[i] = ids[bare.Spread(0, i)%many], ids[zipf.Uint64()]
	}
	allocs := testing.AllocsPerRun(10_000, func() { _ = takeOne(store, ids[7], counter) })
	pick := func(from []headgate.Subject, caller, n int) headgate.Subject { return from[(n+caller*7919)%len(from)] }
	variants := []paired.Variant{
		{Name: "d1  memstore, all alike", Callers: 1, Do: func(caller, n int) error {
			return takeOne(store, pick(alike, caller, n), counter)
		}},
		{Name: "d2  memstore, zipf", Callers: 1, Do: func(caller, n int) error {
			return takeOne(store, pick(byZipf, caller, n), counter)
		}},
		{Name: "d2' memstore, zipf, 2 callers", Callers: 2, Do: func(caller, n int) error {
			return takeOne(store, pick(byZipf, caller, n), counter)
		}},
		{Name: "d3  memstore, one hot key", Callers: 1, Do: func(int, int) error {
			return takeOne(store, ids[0], counter)
		}},
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("memstore, %d counters, 1 caller, %d rounds of %s; medians and quartiles\n", many, rounds, slice)
	paired.Table(variants, s)
	nanos := paired.Of(paired.Field(s[variants[1].Name], func(s paired.Sample) float64 { return s.ClientCPU * 1000 }))
	return func() {
		aims.AtMost("d2, memstore zipf, CPU ns per decision", nanos, 300)
		aims.AtMost("memstore, allocations per decision", paired.Of([]float64{allocs}), 0)
		aims.AtMost("memstore, bytes per counter beside the key", paired.Of([]float64{perCounter}), 100)
	}, nil
}

func takeOne(store *memstore.Store, id headgate.Subject, counter headgate.Counter) error {
	return takeSome(store, id, counter, 1)
}

func takeSome(store *memstore.Store, id headgate.Subject, counter headgate.Counter, cost int64) error {
	limit := headgate.Limit{Count: 1_000_000, Window: time.Second, Burst: headgate.MaxCost}
	charges := [1]headgate.Charge{{Subject: id, Counter: counter, Limit: limit, Cost: cost}}
	var results [1]headgate.Result
	return store.Take(context.Background(), charges[:], results[:])
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
