package telemetry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// read returns the histogram of a collector.
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

// nativeCounts returns the count of each native bucket.
func nativeCounts(h *dto.Histogram) map[int32]int64 {
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

// TestHistogram compares the histogram with the library's, in both kinds of buckets.
func TestHistogram(t *testing.T) {
	t.Parallel()
	ours := newDuration("a", "a")
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "a", Help: "a", Buckets: buckets, NativeHistogramBucketFactor: 1.1,
		NativeHistogramZeroThreshold: prometheus.NativeHistogramZeroThresholdZero,
	})
	if shown := read(t, ours); shown.GetSampleCount() != 0 || len(shown.GetBucket()) != len(buckets) || len(shown.GetPositiveSpan()) != 1 {
		t.Errorf("without observations: %v", shown)
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
	for _, elapsed := range all {
		ours.Observe(elapsed)
		theirs.Observe(elapsed.Seconds())
	}
	got, want := read(t, ours), read(t, theirs)
	if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() ||
		got.GetSchema() != want.GetSchema() {
		t.Errorf("%d of %v, want %d of %v", got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
	}
	for i, bucket := range want.GetBucket() {
		if b := got.GetBucket()[i]; b.GetUpperBound() != bucket.GetUpperBound() || b.GetCumulativeCount() != bucket.GetCumulativeCount() {
			t.Errorf("up to %v: %v, want %v", bucket.GetUpperBound(), b, bucket)
		}
	}
	native := nativeCounts(got)
	for number, count := range nativeCounts(want) {
		if native[number] != count {
			t.Errorf("native bucket %d: %d, want %d", number, native[number], count)
		}
		delete(native, number)
	}
	for number, count := range native {
		if count != 0 {
			t.Errorf("native bucket %d: %d, want 0", number, count)
		}
	}
	// Durations outside the range of the buckets are counted in the first or the last one.
	ours.Observe(0)
	ours.Observe(1)
	ours.Observe(time.Hour)
	if n := read(t, ours).GetSampleCount(); n != uint64(len(all)+3) {
		t.Errorf("%d observations", n)
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
