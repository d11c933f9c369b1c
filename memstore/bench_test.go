package memstore_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

const million = 1_000_000

// lasting returns n charges on as many counters of one subject. The counters take 31 seconds to expire and allow millions of charges.
func lasting(n int) []headgate.Charge {
	limit := headgate.Limit{Count: 1_000_000, Window: 366 * 24 * time.Hour, Burst: 9_000_000}
	charges := make([]headgate.Charge, n)
	for i := range charges {
		charges[i] = headgate.Charge{Counter: headgate.Counter(mix(uint64(i)) >> 16), Limit: limit, Cost: 1}
	}
	return charges
}

func takeAs(tb testing.TB, store *memstore.Store, charges []headgate.Charge, results []headgate.Result, subject headgate.Subject) {
	for i := range charges {
		charges[i].Subject = subject
	}
	if err := store.Take(tb.Context(), charges, results); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkTake(b *testing.B) {
	zipf := make([]uint64, 1<<20)
	source := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, million-1)
	for i := range zipf {
		zipf[i] = source.Uint64()
	}
	hot := func(i int) headgate.Subject { return nth(uint64(i >> 21)) } // changes before the bucket is exhausted
	popular := func(i int) headgate.Subject { return nth(zipf[i%len(zipf)]) }
	uniform := func(i int) headgate.Subject { return nth(mix(uint64(i)) % million) }
	for _, bench := range []struct {
		name    string
		charges int
		held    uint64
		subject func(i int) headgate.Subject
	}{
		{"hot key", 1, 1, hot},
		{"hot key, 3 charges", 3, 1, hot},
		{"1M keys, zipf", 1, million, popular},
		{"1M keys, zipf, 3 charges", 3, million, popular},
		{"1M keys, uniform", 1, million, uniform},
	} {
		b.Run(bench.name, func(b *testing.B) {
			store := memstore.New(memstore.Options{MaxEntries: bench.charges * million * 11 / 10})
			charges, results := lasting(bench.charges), make([]headgate.Result, bench.charges)
			for n := range bench.held {
				takeAs(b, store, charges, results, nth(n))
			}
			b.Run("alone", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					takeAs(b, store, charges, results, bench.subject(i))
				}
			})
			b.Run("together", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					charges, results := lasting(bench.charges), make([]headgate.Result, bench.charges)
					for i := rand.IntN(len(zipf)); pb.Next(); i++ {
						takeAs(b, store, charges, results, bench.subject(i))
					}
				})
			})
		})
	}
}

// BenchmarkFlood charges a new counter each time: in a full store, where each evicts another, and in one whose counters expire.
func BenchmarkFlood(b *testing.B) {
	b.Run("evicting", func(b *testing.B) {
		store := memstore.New(memstore.Options{})
		charges, results := lasting(1), make([]headgate.Result, 1)
		n := uint64(0)
		for ; n < 2*million; n++ {
			takeAs(b, store, charges, results, nth(n))
		}
		b.ReportAllocs()
		for b.Loop() {
			takeAs(b, store, charges, results, nth(n))
			n++
		}
	})
	b.Run("expiring", func(b *testing.B) {
		now := time.Unix(1_700_000_000, 0)
		store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
		charges, results := lasting(1), make([]headgate.Result, 1)
		charges[0].Limit = headgate.PerSecond(1)
		b.ReportAllocs()
		for n := uint64(0); b.Loop(); n++ {
			now = now.Add(10 * time.Microsecond)
			takeAs(b, store, charges, results, nth(n))
		}
		b.ReportMetric(float64(store.Len()), "held")
	})
}

// BenchmarkMemory reports the bytes per counter, including the 24 of its key: in a full store and, the worst case, in one whose
// tables have all just grown.
func BenchmarkMemory(b *testing.B) {
	for _, bench := range []struct {
		name                string
		charged, maxEntries uint64
	}{
		{"full", 2 * million, million},
		{"just grown", 695_000, 2 * million},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				store := memstore.New(memstore.Options{MaxEntries: int(bench.maxEntries)})
				charges, results := lasting(1), make([]headgate.Result, 1)
				for n := range bench.charged {
					takeAs(b, store, charges, results, nth(n))
				}
				b.ReportMetric(float64(heap()-before)/float64(store.Len()), "B/counter")
				runtime.KeepAlive(store)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
