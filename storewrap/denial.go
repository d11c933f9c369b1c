package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxDenial is how long a refusal is believed. Meanwhile somebody may have given back units.
	maxDenial = 500 * time.Millisecond
	// minDenial is how long a refusal is believed though units come back sooner, if many ask for them: until there are some
	// that are worth a call. Nothing is lost by it, since they are granted then.
	minDenial = 10 * time.Millisecond
	// many is how often somebody asks then.
	many = 250 * time.Microsecond
)

// denial is that the store has refused so many units or more, until a time.
type denial struct {
	cost  int64
	until instant
	retry instant // when it will fit; 0 is never
	reset instant
	left  int64
	span  time.Duration // that it was believed for, while nothing was granted; others may give back units at any time
	times int64         // that it was believed
}

// refuses is true if a charge would be refused, as far as this node knows; the result then says how.
func (e *entry) refuses(c *headgate.Charge, r *headgate.Result, now instant) bool {
	d := &e.denial
	if now >= d.until || c.Observe || c.Cost < d.cost {
		return false
	}
	d.times++
	*r = headgate.Result{
		Remaining: d.left, RetryAfter: headgate.Never, ResetAfter: max(0, d.reset-now), Path: headgate.PathCache,
	}
	if d.retry != 0 && c.Cost <= c.Limit.Capacity() {
		r.RetryAfter = max(d.retry, d.until) - now
	}
	return true
}

// mistaken is how many requests were refused at the most for which there was room, now that the store has granted some: units were
// given back before they would have come back by themselves.
func (d *denial) mistaken(c *headgate.Charge, r *headgate.Result, now instant) int64 {
	if d.times == 0 || d.retry != 0 && now >= d.retry {
		return 0
	}
	return min(d.times, (r.Granted+r.Remaining)/max(1, c.Cost))
}

// deny notes a refusal.
func (e *entry) deny(c *headgate.Charge, r *headgate.Result, now instant, nodes int64) {
	d := denial{cost: c.Cost, until: now + maxDenial, reset: now + r.ResetAfter, left: r.Remaining}
	if r.RetryAfter >= 0 {
		d.retry = now + r.RetryAfter
		d.until = min(d.until, d.retry)
		if leasable(c) && mostAhead(c, nodes) > 1 {
			least := e.demand.worthwhile()
			d.span = max(least, time.Millisecond)
			if e.denial.span > 0 && now-e.denial.until < maxDenial {
				d.span = min(2*e.denial.span, maxDenial)
			}
			d.until = now + min(d.span, max(r.RetryAfter, least))
		}
	}
	e.denial = d
}

// exhausted notes that the store had no more than it has granted.
func (e *entry) exhausted(r *headgate.Result, now instant) {
	until := now + e.demand.worthwhile()
	e.denial = denial{cost: 1, until: until, retry: until, reset: now + r.ResetAfter}
}
