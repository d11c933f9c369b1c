package main

import (
	"fmt"
	"strings"
	"time"
)

// The token bucket of two subjects, each of which asks for five times what comes back.
const (
	bucketSize   = 100
	bucketRefill = 10 * time.Second
)

// bucket is what a subject with a token bucket was admitted during a fault.
type bucket struct {
	asked, admitted int
	ideal           float64 // what was in the bucket and what came back, or what was asked for if that is less
	silent          int     // denials that do not say when to ask again
}

// part is what was admitted of what should have been.
func (b *bucket) part() float64 { return float64(b.admitted) / b.ideal }

// bucketOf counts the requests of a subject during the fault, which began with so many units in its bucket.
func (o *outcome) bucketOf(user int, full float64) (b bucket) {
	first, last := o.back, o.begin
	for i := range o.samples {
		s := &o.samples[i]
		if s.User != user || s.At < o.begin || s.At >= o.back || s.Path == "" {
			continue
		}
		first, last = min(first, s.At), max(last, s.At)
		b.asked++
		b.admitted += count(s.Allowed)
		b.silent += count(!s.Allowed && !s.Waits)
	}
	refilled := float64(bucketSize) * max(0, last-first).Seconds() / bucketRefill.Seconds()
	b.ideal = min(full+refilled, float64(b.asked))
	return b
}

// countBuckets is of servers only.
func (o *outcome) countBuckets(r *row) {
	if o.fault.nodes != nil {
		return
	}
	left := 0. // in the bucket of which units were asked for before the fault
	if o.fault.cold {
		left = bucketSize
	}
	r.buckets = []bucket{o.bucketOf(bucketUser, left), o.bucketOf(freshUser, bucketSize)}
}

// minBucket is how much of what it should a bucket must admit.
const minBucket = 0.9

// judgeBuckets expects of token buckets what they are with the store, but for a unit of each node and one of the store. Where the
// store comes and goes they are judged as windows of transition are.
func (o *outcome) judgeBuckets(r *row) {
	for i := range r.buckets {
		b := &r.buckets[i]
		rounding := float64(len(o.opened)+1) / b.ideal
		least, most := minBucket-rounding, maxWindow+o.fault.share+rounding
		if o.fault.flaps {
			least, most = minWindow, maxEdge
		}
		r.aim("token bucket admits nothing", b.admitted > 0)
		r.aim("token bucket admits too little", b.part() >= least)
		r.aim("token bucket admits too much", b.part() <= most)
		r.aim("token bucket denies without retry_after", b.silent == 0)
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
