package storewrap

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// BenchmarkCacheDecision measures decisions that the cache makes without the store.
func BenchmarkCacheDecision(b *testing.B) {
	for name, limit := range map[string]headgate.Limit{
		"lease": headgate.PerSecond(headgate.MaxCost), "denial": headgate.PerHour(1),
	} {
		b.Run(name, func(b *testing.B) {
			s := wrap(b, memstore.New(memstore.Options{}), Options{})
			charges := []headgate.Charge{{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: limit, Cost: 1}}
			results := make([]headgate.Result, 1)
			for end := time.Now().Add(time.Second); time.Now().Before(end); { // warm up
				_ = s.Take(b.Context(), charges, results)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Take(b.Context(), charges, results); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheck measures a whole decision by three limits, mostly without the store.
func BenchmarkCheck(b *testing.B) {
	plenty := headgate.PerHour(headgate.MaxCost)
	for name, rules := range map[string][]headgate.Rule{
		"three rules": {
			{ID: "user", By: []string{"user"}, Limit: plenty},
			{ID: "tenant", By: []string{"tenant"}, Limit: plenty},
			{ID: "ip", By: []string{"ip"}, Limit: plenty},
		},
		"three limits": {{ID: "one", By: []string{"user"}, Limits: map[string]headgate.Limit{
			"second": headgate.PerSecond(headgate.MaxCost), "minute": headgate.PerMinute(headgate.MaxCost), "hour": plenty,
		}}},
	} {
		b.Run(name, func(b *testing.B) {
			limiter, err := headgate.New(wrap(b, memstore.New(memstore.Options{}), Options{}), rules...)
			if err != nil {
				b.Fatal(err)
			}
			requests := make([]headgate.Request, 1000)
			for i := range requests {
				requests[i].Attributes = headgate.Attributes{
					"path": "/v1/things", "method": "GET", "user": fmt.Sprintf("user-%d", i),
					"tenant": fmt.Sprintf("tenant-%d", i/10), "ip": fmt.Sprintf("192.0.2.%d", i%256),
				}
			}
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 999)
			draws := make([]uint16, 1<<16)
			for i := range draws {
				draws[i] = uint16(zipf.Uint64())
			}
			for i := range 1 << 13 { // warm up
				if _, err := limiter.Check(b.Context(), requests[draws[i]]); err != nil {
					b.Fatal(err)
				}
				time.Sleep(10 * time.Microsecond)
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := limiter.Check(b.Context(), requests[draws[n&(1<<16-1)]]); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
