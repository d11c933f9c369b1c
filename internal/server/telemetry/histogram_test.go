package telemetry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// read is what a collector shows.
func read(t *testing.T, c prometheus.Collector) *dto.Histogram {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetHistogram()
}

// natively is how many there are in each native bucket.
func natively(h *dto.Histogram) map[int32]int64 {
	counts := map[int32]int64{}
	at, count, next := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		at += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next]
			counts[at] = count
			next++
			at++
		}
	}
	return counts
}

// It shows what the library's does, of both kinds.
func TestHistogram(t *testing.T) {
	t.Parallel()
	ours := newDuration("a", "a")
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "a", Help: "a", Buckets: buckets, NativeHistogramBucketFactor: 1.1,
		NativeHistogramZeroThreshold: prometheus.NativeHistogramZeroThresholdZero,
	})
	if shown := read(t, ours); shown.GetSampleCount() != 0 || len(shown.GetBucket()) != len(buckets) || len(shown.GetPositiveSpan()) != 1 {
		t.Errorf("of nothing: %v", shown)
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := []time.Duration{time.Second / 8, time.Second / 4, time.Second / 2, time.Second, 2 * time.Second, 64 * time.Second, 100 * time.Nanosecond}
	for _, bound := range buckets {
		at := time.Duration(math.Round(bound * 1e9))
		all = append(all, at-1, at, at+1)
	}
	for range 100_000 {
		all = append(all, time.Duration(60*math.Exp2(30*random.Float64()))) // 60 ns to a minute
	}
	for _, took := range all {
		ours.Observe(took)
		theirs.Observe(took.Seconds())
	}
	got, want := read(t, ours), read(t, theirs)
	if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() ||
		got.GetSchema() != want.GetSchema() {
		t.Errorf("%d of %v, and not %d of %v", got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
	}
	for i, bucket := range want.GetBucket() {
		if b := got.GetBucket()[i]; b.GetUpperBound() != bucket.GetUpperBound() || b.GetCumulativeCount() != bucket.GetCumulativeCount() {
			t.Errorf("up to %v: %v, and not %v", bucket.GetUpperBound(), b, bucket)
		}
	}
	native := natively(got)
	for number, count := range natively(want) {
		if native[number] != count {
			t.Errorf("native bucket %d: %d, and not %d", number, native[number], count)
		}
		delete(native, number)
	}
	for number, count := range native {
		if count != 0 {
			t.Errorf("native bucket %d: %d, and not none", number, count)
		}
	}
	// What is too short or too long for any bucket is in the first or in the last.
	ours.Observe(0)
	ours.Observe(1)
	ours.Observe(time.Hour)
	if n := read(t, ours).GetSampleCount(); n != uint64(len(all)+3) {
		t.Errorf("%d were counted", n)
	}
}

func BenchmarkHistogram(b *testing.B) {
	ours := newDuration("a", "a")
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: buckets, NativeHistogramBucketFactor: 1.1})
	b.Run("ours", func(b *testing.B) {
		for i := time.Duration(0); b.Loop(); i++ {
			ours.Observe(i % 1_000_000)
		}
	})
	b.Run("theirs", func(b *testing.B) {
		for i := time.Duration(0); b.Loop(); i++ {
			theirs.Observe((i % 1_000_000).Seconds())
		}
	})
}
