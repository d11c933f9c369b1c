package storewrap

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// What is decided here, without the store.
func BenchmarkHere(b *testing.B) {
	for name, limit := range map[string]headgate.Limit{
		"lease": headgate.PerSecond(headgate.MaxCost), "refusal": headgate.PerHour(1),
	} {
		b.Run(name, func(b *testing.B) {
			s := wrap(b, memstore.New(memstore.Options{}), Options{})
			charges := []headgate.Charge{{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: limit, Cost: 1}}
			results := make([]headgate.Result, 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Take(b.Context(), charges, results); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
