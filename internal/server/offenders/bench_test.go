package offenders

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate"
)

func BenchmarkObserve(b *testing.B) {
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerMinute(100)})
	if err != nil {
		b.Fatal(err)
	}
	order := make([]headgate.Subject, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range order {
		order[i] = subject(random.IntN(1_000_000))
	}
	for _, bench := range []struct {
		name      string
		allowed   bool
		remaining int64
		subjects  []headgate.Subject
	}{
		{"far", true, 50, order[:1]},
		{"near", true, 5, order[:1]},
		{"near of many", true, 5, order},
		{"denied, known", false, 0, order[:1]},
		{"denied, 1000 known", false, 0, order[:1<<10]},
		{"denied, one of a million", false, 0, order},
	} {
		for _, clear := range []bool{false, true} {
			name := bench.name
			if clear {
				name += ", clear"
			}
			b.Run(name, func(b *testing.B) {
				o := New(Options{Rules: func() *headgate.RuleSet { return rules }, Clear: clear})
				ob := observation("a", bench.allowed, bench.remaining)
				ob.Attributes = headgate.Attributes{"user": "ann", "path": "/"}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					ob.Decision.Limits[0].Subject = bench.subjects[i%len(bench.subjects)]
					o.Observe(ob)
				}
			})
		}
	}
}
