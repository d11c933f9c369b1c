package denials

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func BenchmarkAllowed(b *testing.B) {
	w := newWorld(b, false)
	ob := denial("ann")
	ob.Decision.Allowed = true
	for b.Loop() {
		w.Observe(b.Context(), ob)
	}
}

func BenchmarkDeniedAgain(b *testing.B) {
	w := newWorld(b, false)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		ctx, ob := b.Context(), denial("ann")
		for p.Next() {
			w.Observe(ctx, ob)
		}
	})
}

// BenchmarkUnrecorded measures denials of more subjects than can be recorded.
func BenchmarkUnrecorded(b *testing.B) {
	w := newWorld(b, false)
	b.ReportAllocs()
	ob := denial("ann")
	i := 0
	for b.Loop() {
		i++
		limit := &ob.Decision.Limits[0]
		limit.Subject[0], limit.Subject[1], limit.Subject[2] = byte(i), byte(i>>8), byte(i>>16)
		w.Observe(b.Context(), ob)
	}
}

// BenchmarkFull measures a query on a full log, and reports its memory.
func BenchmarkFull(b *testing.B) {
	for name, length := range map[string]int{"usual": 12, "long": 1_000} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, false)
			heap := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before, now := heap(), time.Now()
			for i := range maxRecords {
				ob := denial(fmt.Sprintf("%0*d", length, i))
				if ob.Attributes["api_key"] = "k" + strconv.Itoa(i); length > maxValue {
					for _, name := range storedAttributes {
						ob.Attributes[name] = ob.Attributes["user"]
					}
				}
				r := w.newRecord(b.Context(), now, ob, &ob.Decision.Limits[0])
				w.add(key{ob.Decision.Limits[0].Subject, 1, 1}, r)
			}
			megabytes := float64(heap()-before) / (1 << 20)
			for b.Loop() {
				w.Result(Query{Attributes: headgate.Attributes{"client": "x"}})
			}
			b.ReportMetric(megabytes, "MB")
			b.ReportMetric(float64(len(w.records)), "records")
		})
	}
}
