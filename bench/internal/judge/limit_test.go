package judge

import "testing"

// TestWaitIsExact: for each algorithm a charge that must wait is allowed after the wait and not a microsecond earlier.
func TestWaitIsExact(t *testing.T) {
	for _, limit := range allLimits {
		c := limit.newCounter()
		denied := 0
		for at, step := int64(begin), int64(0); step < 3000; step++ {
			cost := 1 + step*step%limit.Capacity()
			wait := c.wait(at, cost)
			switch {
			case wait == 0:
				c.add(at, cost)
			case wait < 0:
				t.Fatalf("%s: cost %d is never allowed", limit, cost)
			default:
				denied++
				if c.wait(at+wait-1, cost) == 0 {
					t.Errorf("%s: cost %d is allowed before its wait of %d", limit, cost, wait)
				}
				if left := c.wait(at+wait, cost); left != 0 {
					t.Errorf("%s: cost %d must wait %d more after %d", limit, cost, left, wait)
				}
				at += wait
			}
			at += step * 977 % 40_000
		}
		if denied == 0 {
			t.Errorf("%s: nothing was denied", limit)
		}
		if c.wait(begin+100*second, limit.Capacity()+1) != -1 {
			t.Errorf("%s: a cost over the capacity is allowed", limit)
		}
	}
}

// TestWorstSpan compares worstSpan with the definition, applied to all spans.
func TestWorstSpan(t *testing.T) {
	const burst, rate = 3, 0.02
	for seed := range int64(50) {
		var records []*Record
		for i := range int64(40) {
			at := begin + (i*7919+seed*104_729)%10_000
			r := check("s", at, 1+(i+seed)%3, true, 0)
			if i%3 > 0 {
				r.Path = "lease"
			}
			records = append(records, &r)
		}
		worst := float64(-burst)
		for _, a := range records {
			for _, b := range records {
				from, _ := a.Span()
				_, to := b.Span()
				if to < from {
					continue
				}
				sum := 0.0
				for _, r := range records {
					if f, u := r.Span(); f >= from && u <= to {
						sum += float64(r.Cost)
					}
				}
				worst = max(worst, sum-burst-rate*float64(to-from))
			}
		}
		if got := worstSpan(records, burst, rate); got < worst-1e-6 || got > worst+1e-6 {
			t.Fatalf("seed %d: %f, want %f", seed, got, worst)
		}
	}
}
