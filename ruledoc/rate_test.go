package ruledoc

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	bucket := headgate.Limit{Count: 10, Window: time.Minute, Burst: 5}
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 10, Window: time.Minute}
	quota := headgate.Quota(10, headgate.Month, zone("Europe/Berlin"))
	with := func(l headgate.Limit, count int64) headgate.Limit {
		l.Count = count
		return l
	}
	for _, c := range []struct {
		text     string
		replaced headgate.Limit
		want     headgate.Limit
	}{
		{"5000/minute", bucket, headgate.Limit{Count: 5000, Window: time.Minute, Burst: 2500}},
		{"5000/hour", bucket, headgate.Limit{Count: 5000, Window: time.Hour, Burst: 42}},
		{"1/hour", bucket, headgate.Limit{Count: 1, Window: time.Hour, Burst: 1}},
		{`{"rate": "5000/minute"}`, bucket, headgate.Limit{Count: 5000, Window: time.Minute, Burst: 2500}},
		{"5000/minute", headgate.PerMinute(10), headgate.PerMinute(5000)},
		{" 5_000 / 15m ", headgate.Limit{}, headgate.Per(5000, 15*time.Minute)},
		{"5000/minute burst 500", bucket, headgate.Limit{Count: 5000, Window: time.Minute, Burst: 500}},
		{"5000 burst 1_000", bucket, headgate.Limit{Count: 5000, Window: time.Minute, Burst: 1000}},
		{"100_000", bucket, headgate.Limit{Count: 100_000, Window: time.Minute, Burst: 50_000}},
		{"5000/minute", window, with(window, 5000)},
		{"5000", window, with(window, 5000)},
		{"5000", quota, with(quota, 5000)},
		{"5000/minute", quota, headgate.PerMinute(5000)},
		{`{"rate": "5/s", "burst": 7}`, bucket, headgate.Limit{Count: 5, Window: time.Second, Burst: 7}},
		{
			`{rate: 5/minute, algorithm: sliding_window}`, window,
			headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 5, Window: time.Minute},
		},
		{"20 concurrent", bucket, headgate.Concurrent(20)},
		{"1_000  concurrent , lease 1m30s", quota, inFlight(1000, 90*time.Second)},
		{"20 concurrent lease 1h", window, inFlight(20, time.Hour)},
		{"20 concurrent", inFlight(5, time.Minute), inFlight(20, time.Minute)},
		{"20", inFlight(5, time.Minute), inFlight(20, time.Minute)},
		{"20 concurrent, lease 10s", inFlight(5, time.Minute), headgate.Concurrent(20)},
		{"{concurrent: 20}", inFlight(5, time.Minute), inFlight(20, time.Minute)},
		{"{concurrent: 20, lease: 2s}", inFlight(5, time.Minute), inFlight(20, 2*time.Second)},
		{"20/minute", inFlight(5, time.Minute), headgate.PerMinute(20)},
		{`{quota: 5, calendar: day}`, window, headgate.Quota(5, headgate.Day, nil)},
	} {
		if got, err := ParseLimit(c.text, c.replaced); err != nil || got != c.want {
			t.Errorf("%s replacing %s: got %v (%+v), want %+v", c.text, c.replaced, err, got, c.want)
		}
	}
}

func inFlight(count int64, lease time.Duration) headgate.Limit {
	return headgate.Limit{Algorithm: headgate.Concurrency, Count: count, Window: lease}
}

// TestScaleBurst checks with random numbers that the burst scales with the rate, to half a unit.
func TestScaleBurst(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	count := func() int64 { return 1 + random.Int64N([]int64{10, 5000, headgate.MaxCost}[random.IntN(3)]) }
	windows := []time.Duration{time.Millisecond, time.Second, 7 * time.Second, time.Minute, time.Hour, day, 366 * day, 365*day + time.Millisecond}
	for range 20_000 {
		own := headgate.Limit{Count: count(), Window: windows[random.IntN(len(windows))], Burst: count()}
		limit := headgate.Limit{Count: count(), Window: windows[random.IntN(len(windows))]}
		if own.Burst == own.Count {
			continue
		}
		exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(own.Burst*limit.Count), big.NewInt(int64(own.Window))),
			new(big.Int).Mul(big.NewInt(own.Count), big.NewInt(int64(limit.Window))))
		want, _ := exact.Float64()
		want = min(max(want, 1), headgate.MaxCost)
		if got := scaleBurst(limit, own).Burst; math.Abs(float64(got)-want) > 0.5001 {
			t.Fatalf("%s replacing %s: burst %d, want %f", limit, own, got, want)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	t.Parallel()
	replaced := headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 10, Window: time.Minute}
	for text, want := range map[string]string{
		"":           `limit: must be a rate like 10/minute, 5/15m or 10_000/h, not ""`,
		"lots":       `limit: must be a rate like 10/minute, 5/15m or 10_000/h, not "lots"`,
		"5000/minut": `limit: unknown unit "minut"; did you mean 5000/minute?`,
		"0":          `limit: count 0: must be 1 to 1000000000; 0 would deny all requests`,
		"5k/minute":  `limit: count "5k": must be a whole number in digits, like 10_000`,
		"1.5/x": `limit: count "1.5": must be a whole number: use a longer window, like 3/2m for 1.5 per minute; ` +
			`limit: unknown unit "x": write second, minute, hour, day or week, or a multiple, like 5/15m`,
		"5000/month":                               `limit: a month has no fixed length: write {quota: 5000, calendar: month}, or 5000/30d`,
		"5000/minute burst many":                   `limit: burst "many": must be a whole number in digits, like 10_000`,
		"5000/minute burst 500":                    `limit: burst 500: only token_bucket has a burst, not sliding_window`,
		"x concurrent":                             `limit: count "x": must be a whole number in digits, like 10_000`,
		"20concurrent":                             `limit: must be 20 concurrent or {concurrent: 20, lease: 1m}, not "20concurrent"`,
		"20 concurrent,":                           `limit: must be 20 concurrent or {concurrent: 20, lease: 1m}, not "20 concurrent,"`,
		"20 concurrent burst 5":                    `limit: must be 20 concurrent or {concurrent: 20, lease: 1m}, not "20 concurrent burst 5"`,
		"0 concurrent, lease x":                    `limit: count 0: must be 1 to 1000000000; 0 would deny all requests; limit: lease "x": must be a duration like 10s or 1m`,
		"20 concurrent, lease 0s":                  `limit: lease 0s: must be 1s to 1h`,
		"20 concurrent, lease 2h":                  `limit: lease 2h0m0s: must be 1s to 1h`,
		"{concurrent: 20, lease: 500ms}":           `limit: lease 500ms: must be 1s to 1h`,
		"{rate: 5/minute, algorithm: concurrency}": `limit:1:29: algorithm: concurrency is not an algorithm of rates: write limit: {concurrent: 20}, without algorithm`,
		"{rate: 5/minut}":                          `limit:1:8: rate: unknown unit "minut"; did you mean 5/minute?`,
		"{rate: 1/366d, burst: 99}":                `limit: burst 99: only token_bucket has a burst, not sliding_window`,
		"{":                                        `limit:1:1: { is never closed: add }`,
	} {
		if l, err := ParseLimit(text, replaced); err == nil || strings.Split(err.Error(), "\n")[0] != want || l != (headgate.Limit{}) {
			t.Errorf("%s: got  %v\nwant %s", text, err, want)
		}
	}
	if _, err := ParseLimit("5000", headgate.Limit{}); err == nil || !strings.HasPrefix(err.Error(), "limit: 5000 has no time unit") {
		t.Error(err)
	}
}

// encodeLimit returns the shortest text that ParseLimit parses to this limit if it replaces the other one.
func encodeLimit(limit, replaced headgate.Limit) (string, error) {
	var e encoder
	n := e.limit("limit", limit, overrideDefaultsFrom(replaced))
	if e.problem != nil {
		return "", e.problem
	}
	if n.Kind == yamldoc.Text {
		return n.Text, nil
	}
	if burst, ok := n.Get("burst"); ok && len(n.Entries) == 2 {
		return n.Entries[0].Value.Text + " burst " + burst.Value.Text, nil
	}
	return string(encodeJSON(n)), nil
}

func TestEncodeLimit(t *testing.T) {
	t.Parallel()
	w := generator{rand.New(rand.NewPCG(3, 4))}
	shapes := map[string]int{}
	for range 3000 {
		limit, replaced := w.limit(allAlgorithms...), pick(w, headgate.Limit{}, w.limit(allAlgorithms...))
		text, err := encodeLimit(limit, replaced)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseLimit(text, replaced)
		if err != nil || got.String() != limit.String() {
			t.Fatalf("%v: %s replacing %s: got %s, want %s", err, text, replaced, got, limit)
		}
		switch {
		case strings.HasPrefix(text, "{"):
			shapes["document"]++
		case strings.Contains(text, " burst "):
			shapes["burst"]++
		default:
			shapes["rate"]++
		}
	}
	if len(shapes) != 3 {
		t.Error(shapes)
	}
	month := headgate.Quota(5, headgate.Month, time.UTC)
	month.AnchorDay = 1
	for want, limit := range map[string]headgate.Limit{
		"5/day":                          {Count: 5, Window: day, Burst: 5},
		"5/90m burst 6":                  {Count: 5, Window: 90 * time.Minute, Burst: 6},
		"5/36h":                          headgate.Per(5, 36*time.Hour),
		"5/1001ms":                       headgate.Per(5, 1001*time.Millisecond),
		`{"quota":5,"calendar":"month"}`: month,
	} {
		if text, err := encodeLimit(limit, headgate.PerMinute(1)); err != nil || text != want {
			t.Errorf("%v: got %s, want %s", err, text, want)
		}
	}
	if text, err := encodeLimit(headgate.Limit{}, headgate.Limit{}); err == nil {
		t.Error(text)
	}
}

func TestParseLimitDoesNotAllocate(t *testing.T) {
	replaced := headgate.Limit{Count: 10, Window: time.Minute, Burst: 3}
	for _, text := range []string{"5000/minute", "5000/15m burst 500", "100000", "20 concurrent, lease 1m"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = ParseLimit(text, replaced) }); n > 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

func BenchmarkParseLimit(b *testing.B) {
	replaced := headgate.PerMinute(10)
	for _, text := range []string{"5000/minute", "5000/15m burst 500", "100000"} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseLimit(text, replaced); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
