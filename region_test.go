package headgate_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// fractions returns the fractions of a random number of regions with random weights, some of them 0, in random order.
func (g generator) fractions() []headgate.Fraction {
	weights := make([]int64, 1+g.IntN(6))
	var sum int64
	for i := range weights {
		weights[i] = oneOf(g, 0, 1, 1, 2, 3, 50, g.number(1_000))
		sum += weights[i]
	}
	if sum == 0 {
		weights[0], sum = 1, 1
	}
	of := oneOf(g, sum, 10_000)
	all := make([]headgate.Fraction, len(weights))
	var before int64
	for i, w := range weights {
		all[i] = headgate.Fraction{From: before * of / sum, To: (before + w) * of / sum, Of: of}
		before += w
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// perSecond returns the rate of a bucket in units per second.
func perSecond(l headgate.Limit) *big.Rat {
	if l.Count == 0 || l.Window == 0 {
		return new(big.Rat)
	}
	return big.NewRat(l.Count*1_000_000, l.Window.Microseconds())
}

// TestSharesAddUp checks that the shares of all regions are limits that together allow what the whole allows.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	const cases, seed = 40_000, 1
	g := newGenerator(seed, 0)
	buckets, exact := 0, 0
	for i := range cases {
		whole := g.limit()
		if g.chance(8) {
			whole = headgate.Limit{Algorithm: headgate.Concurrency, Count: 1 + g.number(headgate.MaxCost-1), Window: time.Minute}
		}
		bucket := whole.Algorithm == headgate.TokenBucket || whole.Algorithm == headgate.LeakyBucket
		var count, burst int64
		rate, none, off := new(big.Rat), 0, false
		all := g.fractions()
		for _, f := range all {
			share := f.Share(whole)
			if err := share.Validate(); share.Count < 0 || (err == nil) != (share.Count > 0) {
				t.Fatalf("seed %d, case %d: %v: %+v of %+v: %v", seed, i, f, share, whole, err)
			}
			if f.From == f.To && share.Count != 0 {
				t.Fatalf("seed %d, case %d: %v: %+v of %+v", seed, i, f, share, whole)
			}
			if share.Count == 0 {
				none++
			}
			if bucket {
				part := new(big.Rat).Mul(perSecond(whole), big.NewRat(f.To-f.From, f.Of))
				off = off || share.Count > 0 && perSecond(share).Cmp(part) != 0
				if perSecond(share).Cmp(part) > 0 {
					t.Fatalf("seed %d, case %d: %v: the rate of %v exceeds its part of %v", seed, i, f, share, whole)
				}
			}
			count, burst = count+share.Count, burst+share.Burst
			rate.Add(rate, perSecond(share))
			checkRest(t, whole, share)
		}
		switch {
		case bucket:
			buckets++
			if rate.Cmp(perSecond(whole)) == 0 {
				exact++
			} else if none == 0 && !off {
				t.Fatalf("seed %d, case %d: the rates of %v of %v add up to %v", seed, i, all, whole, rate)
			}
			reserve := new(big.Rat).Mul(perSecond(whole), big.NewRat(int64(headgate.MaxTransfer), int64(time.Second)))
			if largest := new(big.Rat).Sub(new(big.Rat).SetInt64(whole.Capacity()), reserve); whole.Algorithm == headgate.TokenBucket &&
				burst > 0 && new(big.Rat).SetInt64(burst).Cmp(largest) > 0 {
				t.Fatalf("seed %d, case %d: the bursts of %v of %v add up to %d, want at most %v", seed, i, all, whole, burst, largest)
			}
		case count != whole.Count:
			t.Fatalf("seed %d, case %d: the counts of %v of %v add up to %d", seed, i, all, whole, count)
		}
	}
	if exact < buckets/4 {
		t.Errorf("of %d buckets, only the shares of %d have exactly the rate of the whole", buckets, exact)
	}
}

// checkRest checks what a share has in common with the whole.
func checkRest(t *testing.T, whole, share headgate.Limit) {
	t.Helper()
	align := whole.Align
	if windows := whole.Algorithm == headgate.FixedWindow || whole.Algorithm == headgate.SlidingWindow; windows &&
		whole.Calendar == headgate.NoCalendar && align == headgate.FromFirst {
		align = headgate.OnClockSpread
	}
	want := whole
	want.Count, want.Align = share.Count, align
	if whole.Algorithm == headgate.TokenBucket || whole.Algorithm == headgate.LeakyBucket {
		want.Window, want.Burst = share.Window, share.Burst
	}
	if share != want {
		t.Fatalf("share %+v of %+v", share, whole)
	}
}

// TestShareOfOneRegion checks that a region that is alone has everything, except the reserve of a token bucket.
func TestShareOfOneRegion(t *testing.T) {
	t.Parallel()
	alone := headgate.Fraction{From: 0, To: 7, Of: 7}
	for whole, want := range map[headgate.Limit]headgate.Limit{
		headgate.PerMinute(60):                                                                       {Count: 60, Window: time.Minute, Burst: 59},
		headgate.PerSecond(10):                                                                       {Count: 10, Window: time.Second, Burst: 6},
		{Count: 10, Window: time.Second, Burst: 20}:                                                  {Count: 10, Window: time.Second, Burst: 16},
		{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second}:                            {Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second},
		{Algorithm: headgate.SlidingLog, Count: 10, Window: time.Second}:                             {Algorithm: headgate.SlidingLog, Count: 10, Window: time.Second},
		{Algorithm: headgate.SlidingWindow, Count: 10, Window: time.Second}:                          {Algorithm: headgate.SlidingWindow, Count: 10, Window: time.Second, Align: headgate.OnClockSpread},
		{Algorithm: headgate.FixedWindow, Count: 10, Window: time.Second, Align: headgate.OnClock}:   {Algorithm: headgate.FixedWindow, Count: 10, Window: time.Second, Align: headgate.OnClock},
		headgate.Quota(10, headgate.Month, nil):                                                      headgate.Quota(10, headgate.Month, nil),
		headgate.Concurrent(10):                                                                      headgate.Concurrent(10),
		{Algorithm: headgate.FixedWindow, Count: 10, Window: time.Second, Align: headgate.FromFirst}: {Algorithm: headgate.FixedWindow, Count: 10, Window: time.Second, Align: headgate.OnClockSpread},
	} {
		if got := alone.Share(whole); got != want {
			t.Errorf("the share of %v is %+v, want %+v", whole, got, want)
		}
	}
}

// TestRateOfAShareIsRounded checks that a rate of which a part cannot be counted exactly is rounded down, hardly.
func TestRateOfAShareIsRounded(t *testing.T) {
	t.Parallel()
	third := headgate.Fraction{From: 3_333, To: 6_666, Of: 10_000}
	for _, whole := range []headgate.Limit{
		headgate.PerHour(999_999_937), headgate.PerHour(1_000_003), headgate.PerDay(999_999_937), headgate.Per(7_654_321, 365*24*time.Hour),
		{Algorithm: headgate.LeakyBucket, Count: 1_000_003, Window: time.Minute},
		headgate.Per(31, 366*24*time.Hour),
	} {
		share := third.Share(whole)
		if err := share.Validate(); err != nil {
			t.Errorf("the share of %v is %v: %v", whole, share, err)
			continue
		}
		part, _ := new(big.Rat).Quo(perSecond(share), perSecond(whole)).Float64()
		if lost := 1 - part/0.3333; lost < 0 || lost > 1e-3 && whole.Count > 100 || lost > 0.1 {
			t.Errorf("the share of %v is %v: %v of it", whole, share, part)
		}
	}
}

// TestShareWithoutUnits checks that a region without units denies everything.
func TestShareWithoutUnits(t *testing.T) {
	t.Parallel()
	half := headgate.Fraction{From: 0, To: 1, Of: 2}
	limits := []headgate.Limit{headgate.Quota(1, headgate.Day, nil), headgate.Concurrent(1), headgate.PerSecond(1), {Count: 9, Window: time.Second, Burst: 5}}
	for a := headgate.FixedWindow; a <= headgate.SlidingLog; a++ {
		limits = append(limits, headgate.Limit{Algorithm: a, Count: 1, Window: time.Minute})
	}
	for _, whole := range limits {
		m := meter{limit: half.Share(whole), now: 1_700_000_000_000_000}
		for _, cost := range []int64{0, 1} {
			if r := m.take(headgate.Charge{Cost: cost, Holder: 1, Seq: 1}); r.Allowed || r.RetryAfter != headgate.Never {
				t.Errorf("%v of %v: %+v", m.limit, whole, r)
			}
		}
	}
}

// TestShareOfALeakyBucket checks that a share's queue leaks at its rate, and that it allows no larger cost at once than its part of the
// whole, however large the count of its rate is.
func TestShareOfALeakyBucket(t *testing.T) {
	t.Parallel()
	whole := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second}
	m := meter{limit: headgate.Fraction{From: 0, To: 3_333, Of: 10_000}.Share(whole), now: 1_700_000_000_000_000}
	if r := m.take(headgate.Charge{Whole: whole, Cost: 4}); r.Allowed || r.RetryAfter != headgate.Never {
		t.Errorf("%+v", r)
	}
	r := m.take(headgate.Charge{Whole: whole, Cost: 3})
	if want := 900_091 * time.Microsecond; !r.Allowed || r.ResetAfter != want {
		t.Errorf("%+v, want a reset after %v", r, want)
	}
	slow := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second}
	m = meter{limit: headgate.Fraction{From: 0, To: 1, Of: 4}.Share(slow), now: 1_700_000_000_000_000}
	if r := m.take(headgate.Charge{Whole: slow, Cost: 1}); !r.Allowed || r.ResetAfter != 4*time.Second {
		t.Errorf("%+v", r)
	}
}

// sharedWorld returns a world in which this region has a quarter of what regions share, and counts calls of Options.Share.
func sharedWorld(t *testing.T, rules ...headgate.Rule) (w *world, calls *int) {
	t.Helper()
	w, calls = newWorld(t, rules...), new(int)
	w.Limiter = headgate.NewLimiter(w.store, compile(t, rules...), headgate.Options{
		Secret: []byte("0123456789abcdef0123456789abcdef"),
		Clock:  func() time.Time { return w.now },
		Share: func(_ headgate.Subject, whole *headgate.Limit) headgate.Limit {
			*calls++
			return headgate.Fraction{From: 1, To: 2, Of: 4}.Share(*whole)
		},
	})
	return w, calls
}

func shared(r *headgate.Rule) { r.Regions = headgate.SharedRegions }

func quarter(whole headgate.Limit) headgate.Limit {
	return headgate.Fraction{From: 1, To: 2, Of: 4}.Share(whole)
}

// TestSharedRule checks that a rule that regions share charges this region's share and shows both.
func TestSharedRule(t *testing.T) {
	t.Parallel()
	w, _ := sharedWorld(t, rule(func(r *headgate.Rule) { shared(r); r.Limit = window(20) }))
	w.wantAllowed(5, 8, "user=ann")
	d := w.check("user=ann")
	if l := d.Limits[0]; l.Limit != window(20) || !l.Shared || l.Share != 5 || l.Remaining != 0 || l.Allowed {
		t.Errorf("%+v", l)
	}
	w.now = w.now.Add(time.Minute)
	w.wantAllowed(5, 8, "user=ann")
}

// TestUnsharedRules checks that rules that regions do not share charge the whole limit.
func TestUnsharedRules(t *testing.T) {
	t.Parallel()
	for _, regions := range []headgate.Regions{headgate.EachRegion, headgate.HomeRegion} {
		w, calls := sharedWorld(t, rule(func(r *headgate.Rule) { r.Regions, r.Limit = regions, window(20) }))
		w.wantAllowed(20, 25, "user=ann")
		if l := w.check("user=ann").Limits[0]; *calls != 0 || l.Limit != window(20) || l.Shared {
			t.Errorf("%v: %d calls, %+v", regions, *calls, l)
		}
	}
	w := newWorld(t, rule(shared)) // there is only one region
	w.wantAllowed(3, 5, "user=ann")
	if l := w.check("user=ann").Limits[0]; l.Limit != headgate.PerMinute(3) || l.Shared {
		t.Errorf("%+v", l)
	}
}

// TestEveryLimitOfARuleIsShared checks tiers, overrides, further limits, candidates and limits of the caller.
func TestEveryLimitOfARuleIsShared(t *testing.T) {
	t.Parallel()
	w, _ := sharedWorld(t, rule(func(r *headgate.Rule) {
		shared(r)
		r.Limit = window(20)
		r.Candidate = headgate.Plan{Limit: window(12)}
		r.Tiers = map[string]headgate.Plan{"gold": {Limit: window(40)}}
		r.Limits = map[string]headgate.Limit{"day": headgate.Quota(80, headgate.Day, nil)}
	}))
	expect := func(request string, want ...headgate.Limit) {
		t.Helper()
		d := w.check(request)
		if len(d.Limits) != len(want) {
			t.Fatalf("%s: %+v", request, d.Limits)
		}
		for i, l := range d.Limits {
			if l.Limit != want[i] || l.Share != quarter(want[i]).Capacity() || l.Remaining != l.Share-1 {
				t.Errorf("%s: %v, share %d, %d left; want %v", request, l.Limit, l.Share, l.Remaining, want[i])
			}
		}
	}
	day := headgate.Quota(80, headgate.Day, nil)
	expect("user=ann", window(20), window(12), day)
	expect("user=bob tier=gold", window(40), day)
	if err := w.Exceptions().Set(headgate.Override{Rule: "r", Subject: headgate.Attributes{"user": "eve"}, Limit: window(60)}); err != nil {
		t.Fatal(err)
	}
	expect("user=eve", window(60), day)
}

// TestShareAllocatesNothing checks that a check allocates no more than its decision, whether or not regions share the rule.
func TestShareAllocatesNothing(t *testing.T) {
	allocations := func(w *world) float64 {
		req := ann(0)
		fewest := math.Inf(1)
		for range 100 { // the race detector has pools lose what they hold
			fewest = min(fewest, testing.AllocsPerRun(1, func() { _, _ = w.Check(t.Context(), req) }))
		}
		return fewest
	}
	each, _ := sharedWorld(t, rule(nil))
	all, _ := sharedWorld(t, rule(shared))
	if a, b := allocations(each), allocations(all); a > 2 || b > 2 { // of the decision
		t.Errorf("%v and %v allocations, want at most 2", a, b)
	}
}

// TestReservationOfAShare reserves units of a share, extends the reservation and commits it.
func TestReservationOfAShare(t *testing.T) {
	t.Parallel()
	sliding := window(400)
	sliding.Algorithm = headgate.SlidingWindow
	for _, whole := range []headgate.Limit{window(400), sliding, headgate.Quota(400, headgate.Day, nil), {Count: 400, Window: time.Hour, Burst: 401}} {
		w, _ := sharedWorld(t, headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: whole, Regions: headgate.SharedRegions})
		ctx := t.Context()
		first := w.reserve(t, 60)
		if l := first.Decision.Limits[0]; l.Limit != whole || l.Share != quarter(whole).Capacity() || !l.Held {
			t.Errorf("%v: %+v", whole, l)
		}
		w.expectLeft(t, 40)
		if r := w.reserve(t, 50); r.Decision.Allowed {
			t.Errorf("%v: %+v", whole, r)
		}
		second, err := w.Extend(ctx, first.Token, ann(20), ann(50), 10*time.Second)
		if err != nil || !second.Decision.Allowed {
			t.Fatalf("%v: %+v, %v", whole, second, err)
		}
		w.expectLeft(t, 50) // 20 were used, 30 are held
		d, err := w.Commit(ctx, second.Token, headgate.Request{Cost: 45})
		if err != nil || d.Limits[0].Remaining != 55 {
			t.Errorf("%v: %+v, %v", whole, d, err)
		}
		if l := d.Limits[0]; l.Limit != whole || l.Share != quarter(whole).Capacity() {
			t.Errorf("%v: committed: %+v", whole, l)
		}
		if d, err = w.Commit(ctx, second.Token, headgate.Request{Cost: 45}); err != nil || d.Limits[0].Granted != 0 {
			t.Errorf("%v: committed twice: %+v, %v", whole, d, err)
		}
		w.expectLeft(t, 55)
	}
}
