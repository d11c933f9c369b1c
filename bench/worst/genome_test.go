package main

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate"
)

var wide = bounds{charges: 600, steps: 1_000_000}

// drawn returns genomes as a search would draw them.
func drawn(seed uint64, n int, to bounds) []genome {
	s := newSource(seed)
	all := []genome{s.genome(to), s.genome(to)}
	for len(all) < n {
		if s.chance(25) {
			all = append(all, s.genome(to))
		} else {
			all = append(all, s.mutate(all[s.IntN(len(all))], to))
		}
	}
	return all
}

func TestSameSeedDrawsSameGenomes(t *testing.T) {
	one, again, other := drawn(3, 500, wide), drawn(3, 500, wide), drawn(4, 500, wide)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed drew different genomes")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("different seeds drew the same genomes")
	}
}

// TestMutationIsACopy: a mutation does not change its original.
func TestMutationIsACopy(t *testing.T) {
	s := newSource(1)
	for range 500 {
		g := s.genome(wide)
		before := g.clone()
		s.mutate(g, wide)
		if !reflect.DeepEqual(g, before) {
			t.Fatalf("%v became %v", before, g)
		}
	}
}

func TestGenomesKeepToBounds(t *testing.T) {
	for _, to := range []bounds{wide, {255, 2000}, {100, light}} {
		for _, g := range drawn(5, 2000, to) {
			if n := g.charges(); n < 1 || n > to.charges {
				t.Fatalf("%d charges, want 1 to %d: %v", n, to.charges, g)
			}
			if n := g.steps(); n > to.steps {
				t.Fatalf("%d steps, want at most %d: %v", n, to.steps, g)
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

// TestDrawsReachEverything: draws include all kinds of charges, algorithms and timings.
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
	for _, g := range drawn(7, 300, bounds{300, 3000}) {
		s := newScene(&g, 1)
		if got := len(s.request()); got != g.charges() {
			t.Fatalf("%d charges, want %d: %v", got, g.charges(), g)
		}
		steps := 0
		for _, c := range s.counters {
			steps += len(c.steps())
		}
		if steps > g.steps() {
			t.Fatalf("%d steps, want at most %d: %v", steps, g.steps(), g)
		}
	}
}
