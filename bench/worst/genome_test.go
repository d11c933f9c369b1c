package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

var (
	evenPrices = prices{1, 1, 1, 1, 1, 1}
	wide       = bounds{charges: 600, weight: 1_000_000, prices: evenPrices}
)

// drawn returns genomes as a search would draw them.
func drawn(seed uint64, n int, to bounds) []genome {
	s := newSource(seed)
	all := []genome{s.genome(to), s.genome(to)}
	for len(all) < n {
		one, other := all[s.IntN(len(all))], all[s.IntN(len(all))]
		switch s.IntN(4) {
		case 0:
			all = append(all, s.genome(to))
		case 1:
			all = append(all, s.cross(one, other, to))
		default:
			all = append(all, s.mutate(one, to))
		}
	}
	return all
}

func TestSameSeedDrawsSameGenomes(t *testing.T) {
	one, again, other := drawn(3, 500, wide), drawn(3, 500, wide), drawn(4, 500, wide)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed drew other genomes")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("another seed drew the same genomes")
	}
}

// A mutation must not change what it was made from.
func TestMutationIsACopy(t *testing.T) {
	s := newSource(1)
	for range 500 {
		g := s.genome(wide)
		before := g.clone()
		s.mutate(g, wide)
		s.cross(g, g, wide)
		g.simpler()
		if !reflect.DeepEqual(g, before) {
			t.Fatalf("%v became %v", before, g)
		}
	}
}

func TestGenomesKeepToBounds(t *testing.T) {
	for _, to := range []bounds{wide, {255, 2000, evenPrices}, {1, 10, evenPrices}} {
		for _, g := range drawn(5, 2000, to) {
			if n := g.charges(); n < 1 || n > to.charges {
				t.Fatalf("%d charges, want 1 to %d: %v", n, to.charges, g)
			}
			if n := g.weight(to.prices); n > to.weight && to.weight > 100 {
				t.Fatalf("weight %v, want at most %v: %v", n, to.weight, g)
			}
			for i := range g.Blocks {
				b := &g.Blocks[i]
				if err := b.Limit.Validate(); err != nil {
					t.Fatalf("%v: %v", g, err)
				}
				if b.Holds > headgate.MaxHolds || b.Entries > headgate.MaxLogCount || b.Holds > 0 && !b.holds() {
					t.Fatalf("%d holds and %d entries: %v", b.Holds, b.Entries, g)
				}
			}
		}
	}
}

// All kinds of charges, algorithms and timings are searched.
func TestDrawsReachEverything(t *testing.T) {
	seenKinds, seenAlgorithms, seenWhen := map[kind]bool{}, map[headgate.Algorithm]bool{}, map[timing]bool{}
	for _, g := range drawn(6, 1000, wide) {
		seenWhen[g.When] = true
		for i := range g.Blocks {
			seenAlgorithms[g.Blocks[i].Limit.Algorithm] = true
			for _, c := range g.Blocks[i].Charges {
				seenKinds[c.Kind] = true
			}
		}
	}
	if len(seenKinds) != int(kinds) || len(seenAlgorithms) != 5 || len(seenWhen) != int(timings) {
		t.Errorf("kinds %v, algorithms %v, timings %v", seenKinds, seenAlgorithms, seenWhen)
	}
}

func TestSceneHasTheChargesOfItsGenome(t *testing.T) {
	for _, g := range drawn(7, 300, bounds{300, 3000, evenPrices}) {
		s := newScene(&g, 1)
		if got := len(s.request()); got != g.charges() {
			t.Fatalf("%d charges, want %d: %v", got, g.charges(), g)
		}
		steps := 0
		for _, c := range s.counters {
			steps += len(c.steps())
		}
		if weight := g.weight(evenPrices); float64(steps) > weight {
			t.Fatalf("%d steps, weight %v: %v", steps, weight, g)
		}
	}
}

func TestDescription(t *testing.T) {
	g := genome{When: afterLapse, Blocks: []block{
		{
			Counters: 64, Spread: true, Entries: 1000, Lapsed: 50,
			Limit:   headgate.Limit{Algorithm: headgate.SlidingLog, Count: 1000, Window: time.Hour},
			Charges: []gene{{Kind: credit, Cost: half, Repeat: 1}, {Kind: forceAged, Where: 25, Repeat: 3}},
		},
		{
			Counters: 1, Limit: headgate.PerHour(10), Used: 100, Holds: 5, HoldMix: evenHolds, Others: 7,
			Charges: []gene{{Kind: reserve, Hold: time.Minute, Repeat: 1, Partial: true}, {Kind: cancel, Where: 100, Repeat: 1}},
		},
	}}
	want := "64 × [1000/hour, sliding_log, 1000 entries, 50 % of them lapsed] on as many subjects: " +
		"credit of half, 3 × (force with an age of 1 at 25 %) + " +
		"1 × [10/hour, token_bucket, 100 % used, 5 holds evenly spread, 7 counters beside]: " +
		"reserve of 1 for 1m0s, cancel at 100 %; made after the lapse"
	if got := g.String(); got != want {
		t.Errorf("described as\n%s, want\n%s", got, want)
	}
}
