package main

import (
	"fmt"
	"strings"
	"time"
)

// The token bucket of two subjects, each of which requests five times its refill.
const (
	bucketSize   = 100
	bucketRefill = 10 * time.Second
)

// bucket counts the requests of a subject with a token bucket during a fault.
type bucket struct {
	requested, admitted int
	ideal               float64 // units in the bucket plus refill, at most the units requested
	withoutRetry        int     // denials without retry_after
}

// part returns the units admitted as a fraction of the ideal.
func (b *bucket) part() float64 { return float64(b.admitted) / b.ideal }

// bucketOf counts the requests of a subject during the fault. full is the content of its bucket when the fault began.
func (o *outcome) bucketOf(user int, full float64) (b bucket) {
	first, last := o.restored, o.begin
	for i := range o.samples {
		s := &o.samples[i]
		if s.User != user || s.At < o.begin || s.At >= o.restored || s.Path == "" {
			continue
		}
		first, last = min(first, s.At), max(last, s.At)
		b.requested++
		b.admitted += boolToInt(s.Allowed)
		b.withoutRetry += boolToInt(!s.Allowed && !s.Waits)
	}
	refilled := float64(bucketSize) * max(0, last-first).Seconds() / bucketRefill.Seconds()
	b.ideal = min(full+refilled, float64(b.requested))
	return b
}

// countBuckets counts the token buckets of servers. Clients have none.
func (o *outcome) countBuckets(r *row) {
	if o.fault.nodes != nil {
		return
	}
	left := 0. // in the bucket that was in use before the fault
	if o.fault.fromStart {
		left = bucketSize
	}
	r.buckets = []bucket{o.bucketOf(bucketUser, left), o.bucketOf(freshUser, bucketSize)}
}

// minBucket is the fraction of its ideal that a bucket must admit.
const minBucket = 0.9

// judgeBuckets expects token buckets to admit as much as with the store, but for one unit per node and one of the store. Where the
// store flaps, they are judged as windows of transition are.
func (o *outcome) judgeBuckets(r *row) {
	for i := range r.buckets {
		b := &r.buckets[i]
		rounding := float64(len(o.opened)+1) / b.ideal
		lowest, highest := minBucket-rounding, maxWindow+o.fault.share+rounding
		if o.fault.flaps {
			lowest, highest = minWindow, maxEdge
		}
		r.expect("token bucket admits nothing", b.admitted > 0)
		r.expect("token bucket admits too little", b.part() >= lowest)
		r.expect("token bucket admits too much", b.part() <= highest)
		r.expect("token bucket denies without retry_after", b.withoutRetry == 0)
	}
}

func bucketsText(all []bucket) string {
	if len(all) == 0 {
		return "–"
	}
	var texts []string
	for i := range all {
		texts = append(texts, fmt.Sprintf("%.2f", all[i].part()))
	}
	return strings.Join(texts, ", ")
}
