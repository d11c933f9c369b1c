package main

import (
	"slices"
	"testing"
	"time"
)

func TestStalls(t *testing.T) {
	const ms = time.Millisecond
	samples := []sample{
		{At: 0, Latency: ms},
		{At: 5 * ms, Latency: 30 * ms},                 // in flight during the stall
		{At: 10 * ms, Late: 20 * ms, Latency: 21 * ms}, // sent late
		{At: 12 * ms, Late: 18 * ms, Latency: 19 * ms}, // in the same stall
		{At: 40 * ms, Late: ms, Latency: 25 * ms},      // slow without a stall
		{At: 100 * ms, Late: 3 * ms, Latency: 4 * ms},  // another stall
		{At: 104 * ms, Late: ms / 10, Latency: 9 * ms}, // after it
		{At: 99*ms + ms/2, Late: 0, Latency: ms / 4},   // finished before it
	}
	all := stallsOf(samples[:7])
	if want := (stalls{{10 * ms, 30 * ms}, {100 * ms, 103 * ms}}); !slices.Equal(all, want) {
		t.Errorf("stalls %v, want %v", all, want)
	}
	for i, want := range []bool{false, true, true, true, false, true, false, false} {
		if got := all.during(&samples[i]); got != want {
			t.Errorf("request %d ignored: %v, want %v", i, got, want)
		}
	}
	o := outcome{samples: samples, stalls: all, stop: time.Second}
	if got := o.stalledShare(); got != 0.5 {
		t.Errorf("%v ignored, want 0.5", got)
	}
	if got := o.tail(0, time.Second, func(*sample) bool { return true }); got.n != 0 {
		t.Errorf("latencies of %d requests without a status", got.n)
	}
	for i := range samples {
		samples[i].Status = 200
	}
	if got := o.tail(0, time.Second, func(*sample) bool { return true }); got.n != 4 || got.p999 != 25*ms {
		t.Errorf("latencies of %d requests up to %s, want 4 up to 25ms", got.n, got.p999)
	}
}
