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
		if err := takeOne(store, id, counter); err != nil {
			return nil, err
		}
	}
	perCounter := float64(heap()-before)/many - 24 // the key: a subject and a counter
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, many-1)
	order := make([]uint32, 1<<20)
	for i := range order {
		order[i] = uint32(zipf.Uint64())
	}
	allocs := testing.AllocsPerRun(10_000, func() { _ = takeOne(store, ids[7], counter) })
	variants := []paired.Variant{
		{Name: "d1  memstore, all alike", Callers: 2, Do: func(caller, n int) error {
			return takeOne(store, ids[spread(caller, n)%many], counter)
		}},
		{Name: "d2  memstore, zipf", Callers: 2, Do: func(caller, n int) error {
			return takeOne(store, ids[order[(n+caller*7919)%len(order)]], counter)
		}},
		{Name: "d3  memstore, one hot key", Callers: 2, Do: func(int, int) error {
			return takeOne(store, ids[0], counter)
		}},
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\nmemstore, %d counters, 2 callers; CPU includes the harness\n", many)
	paired.Table(variants, s)
	nanos := func(i int) paired.Median {
		return paired.Of(paired.Field(s[variants[i].Name], func(s paired.Sample) float64 { return s.ClientCPU * 1000 }))
	}
	return func() {
		aims.AtMost("memstore zipf, CPU ns per decision", nanos(1), 300)
		aims.AtMost("memstore, allocations per decision", paired.Of([]float64{allocs}), 0)
		aims.AtMost("memstore, bytes per counter beside the key", paired.Of([]float64{perCounter}), 100)
	}, nil
}

func takeOne(store *memstore.Store, id headgate.Subject, counter headgate.Counter) error {
	charges := [1]headgate.Charge{{Subject: id, Counter: counter, Limit: headgate.PerMinute(1000), Cost: 1}}
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
