package storewrap

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// Every denial of the default mode has the exact RetryAfter: the same request is denied a microsecond earlier, and allowed
// then. The rules are random, with one to five limits and any cost.
func TestWaitsAreExact(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	const enough = 10_000
	seed := newSeed()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with -run '%s$' -seed %d", t.Name(), seed)
		}
	})
	r := rand.New(rand.NewPCG(seed, 0))
	var j waitChecker
	for j.denials < enough && !t.Failed() {
		synctest.Test(t, func(t *testing.T) { j.run(t, r) })
	}
	t.Logf("%d denials, %d of them repeated by the cache; paths %v", j.denials, j.cached, j.paths)
	if j.cached < enough/10 || j.paths[headgate.PathLease] == 0 {
		t.Error("too few cached denials or leases for the default mode")
	}
}

// waitChecker counts decisions.
type waitChecker struct {
	denials, cached int
	paths           map[headgate.Path]int
}

// run simulates one client of one node, with random limits.
func (j *waitChecker) run(t *testing.T, r *rand.Rand) {
	rule := headgate.Rule{ID: "r", By: []string{"user"}, Limits: map[string]headgate.Limit{}}
	smallest, large := int64(1<<30), r.IntN(3) == 0 // units are leased of all limits, or of few
	for i := range 1 + r.IntN(5) {
		limit := drawLimit(r, large)
		rule.Limits[fmt.Sprint("l", i)] = limit
		smallest = min(smallest, limit.Capacity())
		if limit.Algorithm == headgate.LeakyBucket {
			rule.MaxDelay = time.Duration(r.IntN(500)) * time.Millisecond
		}
	}
	limiter, err := headgate.New(wrap(t, memstore.New(memstore.Options{}), Options{}), rule)
	if err != nil {
		t.Fatal(err)
	}
	if j.paths == nil {
		j.paths = map[headgate.Path]int{}
	}
	check := func(cost int64) headgate.Decision {
		d, err := limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		j.paths[d.Path]++
		return d
	}
	pause := time.Duration(1+r.IntN(50)) * time.Millisecond
	for range 300 {
		cost := int64(1)
		if r.IntN(3) == 0 && !large || r.IntN(50) == 0 {
			cost = 1 + r.Int64N(smallest)
		}
		d := check(cost)
		if d.Allowed {
			time.Sleep(time.Duration(r.Int64N(int64(pause))).Truncate(time.Microsecond))
			continue
		}
		j.denials++
		if d.RetryAfter <= 0 {
			t.Fatalf("%v: cost %d: %+v", rule.Limits, cost, d)
		}
		again := check(cost)
		if again.Path == headgate.PathCache {
			j.cached++
		}
		if again.Allowed || again.RetryAfter != d.RetryAfter || len(again.Limits) != len(d.Limits) {
			t.Fatalf("%v: cost %d, at once again: %+v, want %+v", rule.Limits, cost, again, d)
		}
		if part := time.Duration(r.Int64N(int64(d.RetryAfter))).Truncate(time.Microsecond); r.IntN(2) == 0 {
			time.Sleep(part)
			if again := check(cost); again.Allowed || again.RetryAfter != d.RetryAfter-part {
				t.Fatalf("%v: cost %d, after %v: %+v, want %+v", rule.Limits, cost, part, again, d)
			}
			d.RetryAfter -= part
		}
		time.Sleep(d.RetryAfter - time.Microsecond)
		if early := check(cost); early.Allowed || early.RetryAfter != time.Microsecond {
			t.Fatalf("%v: cost %d, a microsecond early: %+v, after %+v", rule.Limits, cost, early, d)
		}
		time.Sleep(time.Microsecond)
		if due := check(cost); !due.Allowed {
			t.Fatalf("%v: cost %d, in time: %+v, after %+v", rule.Limits, cost, due, d)
		}
		time.Sleep(10 * time.Millisecond) // a thousand requests a second make it contended
	}
}

func drawLimit(r *rand.Rand, large bool) headgate.Limit {
	for {
		l := headgate.Limit{
			Algorithm: headgate.Algorithm(r.IntN(5)), Count: 1 + r.Int64N(40),
			Window: time.Duration(1+r.IntN(600)) * 10 * time.Millisecond,
		}
		if r.IntN(4) == 0 {
			l.Count = 40 + r.Int64N(900)
		}
		if large {
			l.Algorithm = leased[r.IntN(len(leased))]
			l.Count, l.Window = 500+r.Int64N(5_000), time.Duration(5+r.IntN(60))*time.Second
		}
		switch {
		case l.Algorithm == headgate.TokenBucket && r.IntN(2) == 0:
			l.Burst = 1 + r.Int64N(2*l.Count)
		case l.Algorithm == headgate.FixedWindow:
			l.Align = headgate.Align(r.IntN(3))
		}
		if l.Validate() == nil {
			return l
		}
	}
}
