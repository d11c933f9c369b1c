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
	seen := denial("ann")
	seen.Decision.Allowed = true
	for b.Loop() {
		w.Note(b.Context(), seen)
	}
}

func BenchmarkDeniedAgain(b *testing.B) {
	w := newWorld(b, false)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		ctx, seen := b.Context(), denial("ann")
		for p.Next() {
			w.Note(ctx, seen)
		}
	})
}

// BenchmarkUnrecorded is of more subjects than are recorded.
func BenchmarkUnrecorded(b *testing.B) {
	w := newWorld(b, false)
	b.ReportAllocs()
	seen := denial("ann")
	i := 0
	for b.Loop() {
		i++
		limit := &seen.Decision.Limits[0]
		limit.Subject[0], limit.Subject[1], limit.Subject[2] = byte(i), byte(i>>8), byte(i>>16)
		w.Note(b.Context(), seen)
	}
}

// BenchmarkFull is of a query while there is as much as can be, and says what that takes.
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
			for i := range mostRecords {
				seen := denial(fmt.Sprintf("%0*d", length, i))
				if seen.Attributes["api_key"] = "k" + strconv.Itoa(i); length > mostValue {
					for _, name := range kept {
						seen.Attributes[name] = seen.Attributes["user"]
					}
				}
				r := w.newRecord(b.Context(), now, seen, &seen.Decision.Limits[0])
				w.add(key{seen.Decision.Limits[0].Subject, 1, 1}, r)
			}
			took := float64(heap()-before) / (1 << 20)
			for b.Loop() {
				w.Answer(Query{Attributes: headgate.Attributes{"client": "x"}})
			}
			b.ReportMetric(took, "MB")
			b.ReportMetric(float64(len(w.records)), "records")
		})
	}
}
