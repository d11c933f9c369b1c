package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestTry: everything that a search draws can be prepared and measured.
func TestTry(t *testing.T) {
	s := newStage(t)
	for k := range kinds {
		for a := range headgate.SlidingLog + 1 {
			g := genome{When: afterLapse, Blocks: []block{{
				Counters: 3, Spread: k%2 == 0, Entries: 4, Holds: 4, Lapsed: 50, Used: 10, Others: 2,
				Limit:   headgate.Limit{Algorithm: a, Count: 100, Window: time.Hour},
				Charges: []gene{{Kind: k, Repeat: 2, Where: 50, Hold: time.Minute}},
			}}}
			g.fit(wide)
			samples, err := s.try(&g, 2, coarse, fine)
			if err != nil {
				t.Fatalf("%v: %v", g, err)
			}
			for _, m := range samples {
				if m < fine {
					t.Errorf("%v: %v µs", g, m)
				}
			}
		}
	}
}

// TestPrepare: the prepared state exists, and entries and holds that are to lapse have lapsed.
func TestPrepare(t *testing.T) {
	s := newStage(t)
	for _, test := range []struct {
		name string
		when timing
		block
		want int64 // remaining of 100
	}{
		{"holds", atOnce, block{Holds: 10, HoldMix: evenHolds}, 90},
		{"holds, half of them lapsed", afterLapse, block{Holds: 10, HoldMix: skewedHold, Lapsed: 50}, 95},
		{"use", atOnce, block{Used: 30}, 70},
		{"log", atOnce, block{Limit: headgate.Limit{Algorithm: headgate.SlidingLog}, Entries: 40}, 60},
		{"log, half of it lapsed", afterLapse, block{Limit: headgate.Limit{Algorithm: headgate.SlidingLog}, Entries: 40, Lapsed: 50}, 80},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := test.block
			b.Counters, b.Limit.Count, b.Limit.Window = 1, 100, 10*time.Hour
			b.Charges = []gene{{Kind: peek}}
			g := genome{When: test.when, Blocks: []block{b}}
			g.fit(wide)
			s.salts++
			scenes := []*scene{newScene(&g, s.salts)}
			if err := s.prepare(&g, scenes); err != nil {
				t.Fatal(err)
			}
			if test.when == afterLapse {
				time.Sleep(200 * time.Millisecond) // entries that reached Redis late lapse later
			}
			results := make([]headgate.Result, 1)
			if err := s.take(scenes[0].request(), results); err != nil {
				t.Fatal(err)
			}
			if results[0].Remaining != test.want {
				t.Errorf("%d remain, want %d", results[0].Remaining, test.want)
			}
		})
	}
}

func TestMeasureHolds(t *testing.T) {
	s := newStage(t)
	b := s.newHeldBucket(10)
	s.measureHolds([]*heldBucket{b}, 3)
	if len(b.plain) != 3 || len(b.reserve) != 6 || len(b.commit) != 3 || len(b.cancel) != 3 {
		t.Errorf("%d holds, %v", len(b.held), b)
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(1_700_000_000, 200_000_000)
	later := now.Add(100 * time.Millisecond)
	for _, test := range []struct {
		when        timing
		lapse, want time.Time
	}{
		{atOnce, later, now},
		{afterLapse, later, later.Add(2 * time.Millisecond)},
		{afterLapse, now.Add(-time.Second), now.Add(2 * time.Millisecond)},
		{afterExpiry, later, time.Unix(1_700_000_001, 2_000_000)},
		{afterCleanup, later, time.Unix(1_700_000_001, 300_000_000)},
	} {
		if got := due(test.when, test.lapse, now); !got.Equal(test.want) {
			t.Errorf("timing %d, lapse at %v: due at %v, want %v", test.when, test.lapse, got, test.want)
		}
	}
}

func TestMiddle(t *testing.T) {
	if got := middle([]float64{100, 8, 9, 8, 1, 9, 8, 9}); got != 8.5 {
		t.Errorf("got %v, want 8.5", got)
	}
}

func TestSearch(t *testing.T) {
	stage := newStage(t)
	stage.measureYardstick(10)
	s := &search{stage: stage, source: newSource(1), maxCharges: 100, length: 2 * time.Second}
	s.run(nil)
	if s.tried < 2 || len(s.pool) == 0 || s.best < s.pool[0].least() || len(s.failures) > 0 {
		t.Fatalf("%d tried, best %v, failures %v", s.tried, s.best, s.failures)
	}
}
