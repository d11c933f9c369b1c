package main

import (
	"slices"
	"testing"
	"time"
)

// bucketOutcome returns a fault of six seconds in which two subjects send 50 requests a second. The bucket of the first starts empty.
func bucketOutcome(admitted, fresh int, waits bool) *outcome {
	o := &outcome{fault: &fault{}, begin: time.Second, restored: 7 * time.Second, stop: 10 * time.Second, opened: []int{1, 1, 1}}
	for i := range 500 {
		at := time.Duration(i) * 20 * time.Millisecond
		during := i - 50 // since the fault began
		o.samples = append(o.samples,
			sample{At: at, User: bucketUser, Status: 200, Path: "local", Waits: waits, Allowed: during >= 0 && during < admitted},
			sample{At: at, User: freshUser, Status: 200, Path: "local", Waits: waits, Allowed: during >= 0 && during < fresh})
	}
	return o
}

func TestJudgeBuckets(t *testing.T) {
	for _, test := range []struct {
		name            string
		admitted, fresh int
		waits           bool
		want            []string
	}{
		{"as with the store", 60, 160, true, nil},
		{"rounded down", 54, 144, true, nil},
		{"nothing", 0, 160, true, []string{"token bucket admits nothing", "token bucket admits too little"}},
		{"too little", 48, 160, true, []string{"token bucket admits too little"}},
		{"a full bucket too little", 60, 135, true, []string{"token bucket admits too little"}},
		{"a unit of each node too much", 63, 163, true, nil},
		{"too much", 60, 166, true, []string{"token bucket admits too much"}},
		{"without retry_after", 60, 160, false, []string{"token bucket denies without retry_after", "token bucket denies without retry_after"}},
	} {
		o := bucketOutcome(test.admitted, test.fresh, test.waits)
		var r row
		o.countBuckets(&r)
		o.judgeBuckets(&r)
		if !slices.Equal(r.failed, test.want) {
			t.Errorf("%s: %s misses %q, want %q", test.name, bucketsText(r.buckets), r.failed, test.want)
		}
	}
}

func TestJudgeUnaccounted(t *testing.T) {
	for _, test := range []struct {
		unaccounted int64
		want        bool
	}{{5, true}, {6, false}} {
		o := bucketOutcome(60, 160, true)
		o.accounts, o.unanswered, o.leaseLost, o.unaccounted, o.maxOpened = true, 3, 2, test.unaccounted, 1
		r := o.rows()[0]
		if got := !slices.Contains(r.failed, "unaccounted"); got != test.want {
			t.Errorf("%s passes: %v, want %v", r.unaccounted, got, test.want)
		}
	}
}
