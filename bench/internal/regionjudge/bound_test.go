package regionjudge

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

const (
	second = int64(time.Second / time.Microsecond)
	ms     = second / 1000
	start  = 1_800_000_000 * second // a multiple of all windows below
)

func window(count int64) Rule {
	return Rule{ID: "window", Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: count, Window: 4 * time.Second}}
}

func sliding(count int64) Rule {
	r := window(count)
	r.ID, r.Limit.Algorithm, r.Limit.Align = "sliding", headgate.SlidingWindow, headgate.OnClockSpread
	return r
}

func bucket(count, burst int64) Rule {
	return Rule{ID: "bucket", Limit: headgate.Limit{Count: count, Window: time.Second, Burst: burst}, Strict: true}
}

func newHistory(rule Rule) *History {
	return &History{Regions: []string{"eu", "us", "ap"}, Nodes: 2, Rules: []Rule{rule}, Skew: map[string]int64{}}
}

// add adds an admission that the store of a region decided at a time after start; for a window with its end.
func (h *History) add(region string, at, cost int64) *Record {
	rule := &h.Rules[0]
	r := Record{
		Region: region, Rule: rule.ID, Subject: "ann", Sent: start + at - ms, Received: start + at + ms, Cost: cost, Allowed: true, Path: pathStore,
		Store: start + at + h.Skew[region],
	}
	if length := rule.Limit.Window.Microseconds(); rule.Limit.Algorithm != headgate.TokenBucket {
		r.Reset = (r.Store/length + 1) * length
	}
	h.Records = append(h.Records, r)
	return &h.Records[len(h.Records)-1]
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name    string
		history func() *History
		worst   float64
		finding string // part of it; empty if there is none
	}{
		{"window: regions together use all of it", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 4)
			h.add("us", second, 4)
			h.add("ap", 3*second, 2)
			h.add("ap", 4*second, 10) // in the next window
			return h
		}, 1, ""},
		{"window: one unit too many", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 4)
			h.add("us", second, 4)
			h.add("ap", 3*second, 3)
			return h
		}, 1.1, "ann of window: 11 admitted in the window from 1800000000000000, at most 10 and 0 lost"},
		{"window: each region admits all of it", func() *History {
			h := newHistory(window(10))
			for _, region := range h.Regions {
				h.add(region, second, 10)
			}
			return h
		}, 3, "30 admitted"},
		{"window: the same start on different clocks", func() *History {
			h := newHistory(window(10))
			h.Skew["us"] = 30 * second
			h.add("eu", 32*second, 6)
			h.add("us", 2*second, 6)
			return h
		}, 1.2, "12 admitted"},
		{"window: different starts at the same time", func() *History {
			h := newHistory(window(10))
			h.Skew["us"] = 30 * second
			h.add("eu", 2*second, 6)
			h.add("us", 2*second, 6)
			return h
		}, 0.6, ""},
		{"window: subjects have counters of their own", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 6)
			h.add("us", 0, 6).Subject = "bob"
			return h
		}, 0.6, ""},
		{"window: denied and failed requests do not count", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 6)
			h.add("us", 0, 6).Allowed = false
			failed := h.add("us", 0, 6)
			failed.Allowed, failed.Path = false, ""
			return h
		}, 0.6, ""},
		{"window: a lease belongs to the nearest window", func() *History {
			h := newHistory(window(10))
			h.add("eu", 3*second, 6)
			leased := h.add("us", 3*second, 6)
			leased.Path, leased.Reset = string(headgate.PathLease), leased.Reset+20*ms
			return h
		}, 1.2, "12 admitted"},
		{"window: regions do not agree when it begins", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 6)
			h.add("us", 0, 6).Reset += second
			return h
		}, 0.6, "windows begin at different times: 0 µs and 1000000 µs"},
		{"window: local shares are not counted by a store", func() *History {
			h := newHistory(window(12))
			h.add("eu", 0, 4)
			h.add("us", 0, 4)
			h.add("ap", 0, 4).Path = pathLocal
			h.add("ap", 0, 2).Path = pathLocal
			return h
		}, 8. / 12, ""},
		{"window: local shares of a region exceed its share", func() *History {
			h := newHistory(window(12))
			h.Losses = []Loss{{"ap", start, start + 3*second}}
			h.add("ap", second, 6).Path = pathLocal // 4, and one for each node
			h.add("ap", second, 1).Path = pathLocal
			return h
		}, 0, "7 admitted by local fallback shares in ap in the window from 1800000000000000, at most 6"},
		{"window: local shares of several windows", func() *History {
			h := newHistory(window(12))
			h.Losses = []Loss{{"ap", start, start + 6*second}}
			h.add("ap", second, 6).Path = pathLocal
			h.add("ap", 5*second, 6).Path = pathLocal
			return h
		}, 0, ""},
		{"window: a local decision of a busy machine", func() *History {
			h := newHistory(window(12))
			h.add("ap", 0, 7).Path = pathLocal
			return h
		}, 0, ""},
		{"window: a store lost its units", func() *History {
			h := newHistory(window(12))
			h.add("eu", 0, 4)
			h.add("us", 0, 8)
			h.Losses = []Loss{{"eu", start + second, start + 2*second}}
			h.add("eu", 3*second, 4)
			return h
		}, 1, ""},
		{"window: more than a store lost", func() *History {
			h := newHistory(window(12))
			h.add("eu", 0, 6)
			h.add("us", 0, 6)
			h.Losses = []Loss{{"eu", start + second, start + 2*second}}
			h.add("eu", 3*second, 6) // of which it had borrowed 2
			return h
		}, 14. / 12, "18 admitted in the window from 1800000000000000, at most 12 and 4 lost"},
		{"window: a loss in another window", func() *History {
			h := newHistory(window(10))
			h.add("eu", 0, 6)
			h.add("eu", 3*second, 6)
			h.Losses = []Loss{{"eu", start + 5*second, start + 6*second}}
			return h
		}, 1.2, "12 admitted"},
		{"sliding: the previous window counts with its weight", func() *History {
			h := newHistory(sliding(10))
			h.add("eu", 3*second, 8)
			h.add("us", 5*second, 4) // and 6 of the 8
			return h
		}, 1, ""},
		{"sliding: more than that", func() *History {
			h := newHistory(sliding(10))
			h.add("eu", 3*second, 8)
			h.add("us", 5*second, 5)
			return h
		}, 1.1, "5 admitted in the window from 1800000004000000 until 1800000005000000, and 6.00 in the window before it"},
		{"bucket: burst and rate", func() *History {
			h := newHistory(bucket(10, 20))
			h.add("eu", 0, 10)
			h.add("us", 0, 10)
			h.add("ap", second, 10)
			return h
		}, 1, ""},
		{"bucket: each region has its burst", func() *History {
			h := newHistory(bucket(10, 20))
			for _, region := range h.Regions {
				h.add(region, 0, 20)
			}
			return h
		}, 3, "exceeded by 40.00"},
		{"bucket: times within which it fits are possible", func() *History {
			h := newHistory(bucket(10, 20))
			h.add("eu", 0, 20)
			late := h.add("us", 0, 10)
			late.Path, late.Received = string(headgate.PathLease), late.Sent+second+ms
			return h
		}, 1, ""},
		{"bucket: clocks of stores are compared by their skew", func() *History {
			h := newHistory(bucket(10, 20))
			h.Skew["us"] = -30 * second
			h.add("eu", 0, 20)
			h.add("us", second, 11)
			return h
		}, 1.05, "exceeded by 1.00"},
		{"bucket: leases", func() *History {
			rule := bucket(10, 20)
			rule.Strict = false
			h := newHistory(rule)
			h.add("eu", 0, 21)
			return h
		}, 1, ""},
		{"bucket: more than leases", func() *History {
			rule := bucket(10, 20)
			rule.Strict = false
			h := newHistory(rule)
			h.add("eu", 0, 22)
			return h
		}, 1.05, "exceeded by 1.00"},
		{"bucket: a store lost its units", func() *History {
			h := newHistory(bucket(10, 20))
			h.add("eu", 0, 20)
			h.Losses = []Loss{{"eu", start + second/4, start + second/2}}
			h.add("eu", second, 15) // 10 refilled, and its share of the burst is 5
			return h
		}, 1, ""},
		{"bucket: more than a store lost", func() *History {
			h := newHistory(bucket(10, 20))
			h.add("eu", 0, 20)
			h.Losses = []Loss{{"eu", start + second/4, start + second/2}}
			h.add("eu", second, 16)
			return h
		}, 1.05, "exceeded by 1.00"},
		{"bucket: a loss does not count before it happened", func() *History {
			h := newHistory(bucket(10, 20))
			h.add("eu", 0, 20)
			h.add("eu", second/2, 20)
			h.Losses = []Loss{{"eu", start + second, start + 2*second}}
			return h
		}, 1.75, "exceeded by 15.00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.history().Bounds()[0]
			if diff := b.Worst - c.worst; diff > 1e-6 || diff < -1e-6 {
				t.Errorf("worst %v, want %v", b.Worst, c.worst)
			}
			text := strings.Join(b.Findings, "\n")
			if c.finding == "" && text != "" || !strings.Contains(text, c.finding) {
				t.Errorf("findings %q, want %q", text, c.finding)
			}
		})
	}
}

// TestNoFalseAlarm records histories of one exact counter for all regions, whose times are as uncertain as those of nodes.
func TestNoFalseAlarm(t *testing.T) {
	for _, rule := range []Rule{window(50), sliding(50), bucket(20, 30)} {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 1))
			h := newHistory(rule)
			limit := rule.Limit
			if limit.Algorithm == headgate.SlidingWindow {
				limit.Align = headgate.OnClock
			}
			var state headgate.State
			for at := int64(0); at < 20*second; at += random.Int64N(60 * ms) {
				r := h.add(h.Regions[random.IntN(3)], at, 1+random.Int64N(5))
				var result headgate.Result
				state, result = limit.Take(state, headgate.Charge{Cost: r.Cost}, time.UnixMicro(start+at))
				r.Allowed = result.Allowed
				r.Sent, r.Received = r.Sent-random.Int64N(20*ms), r.Received+random.Int64N(200*ms)
				if random.IntN(2) == 0 {
					r.Path = string(headgate.PathLease)
				}
			}
			if b := h.Bounds()[0]; len(b.Findings) > 0 || b.Worst < 0.8 {
				t.Fatalf("seed %d: %s: worst %.3f, %q", seed, rule.ID, b.Worst, b.Findings)
			}
		}
	}
}
