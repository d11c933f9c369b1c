package region

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
)

const homeSubjects = 30_000

// homes returns the home of each of many subjects.
func homes(members ...Member) []string {
	s, all := NewShares(members, members[0].Name), make([]string, homeSubjects)
	for i := range all {
		all[i] = s.Home(headgate.SubjectOf("user", strconv.Itoa(i)))
	}
	return all
}

// parts returns the part of the subjects that each member is the home of.
func parts(all []string) map[string]float64 {
	of := map[string]float64{}
	for _, name := range all {
		of[name] += 1. / homeSubjects
	}
	return of
}

// TestHomesByWeight checks that regions are homes in the proportion of their weights, in whatever order they are listed and whichever of them
// computes it.
func TestHomesByWeight(t *testing.T) {
	t.Parallel()
	for _, members := range [][]Member{
		{{"eu", 1}, {"us", 1}, {"ap", 1}},
		{{"eu", 5}, {"us", 3}, {"ap", 1}},
		{{"eu", 1000}, {"us", 1}},
		{{"eu", 1000}, {"us", 999}, {"ap", 998}, {"sa", 500}},
	} {
		total := 0.
		for _, m := range members {
			total += float64(m.Weight)
		}
		all := homes(members...)
		for _, m := range members {
			want := float64(m.Weight) / total
			deviation := 5 * math.Sqrt(want*(1-want)/homeSubjects)
			if got := parts(all)[m.Name]; math.Abs(got-want) > deviation {
				t.Errorf("%v: %s is the home of %.4f, want %.4f ± %.4f", members, m.Name, got, want, deviation)
			}
		}
		slices.Reverse(members)
		if !slices.Equal(all, homes(members...)) {
			t.Errorf("%v: homes depend on the order of members", members)
		}
	}
}

// TestHomesMoveLittle checks that a change of the members moves only subjects from or to the region that changed, and no more than its part changes.
func TestHomesMoveLittle(t *testing.T) {
	t.Parallel()
	before := homes(Member{"eu", 2}, Member{"us", 2}, Member{"ap", 2})
	for _, test := range []struct {
		name  string
		after []string
		to    bool // subjects move to us, otherwise from us
		part  float64
	}{
		{"more weight", homes(Member{"eu", 2}, Member{"us", 3}, Member{"ap", 2}), true, 3./7 - 1./3},
		{"less weight", homes(Member{"eu", 2}, Member{"us", 1}, Member{"ap", 2}), false, 1./3 - 1./5},
		{"removed", homes(Member{"eu", 2}, Member{"ap", 2}), false, 1. / 3},
		{"all weights doubled", homes(Member{"eu", 4}, Member{"us", 4}, Member{"ap", 4}), true, 0},
	} {
		moved := 0
		for i := range before {
			if before[i] == test.after[i] {
				continue
			}
			moved++
			if test.to && test.after[i] != "us" || !test.to && before[i] != "us" {
				t.Fatalf("%s: a subject moves from %s to %s", test.name, before[i], test.after[i])
			}
		}
		if got := float64(moved) / homeSubjects; math.Abs(got-test.part) > 0.02 {
			t.Errorf("%s: %.3f of the subjects move, want %.3f", test.name, got, test.part)
		}
	}
}

// TestHomesStayTheSame checks some homes that must never change: regions with different versions of Headgate must agree.
func TestHomesStayTheSame(t *testing.T) {
	t.Parallel()
	all := homes(Member{"ap", 1}, Member{"eu", 3}, Member{"us", 2})
	if got := fmt.Sprint(all[:12]); got != "[us eu eu ap ap eu us eu us eu ap eu]" {
		t.Errorf("homes %s", got)
	}
}

// TestNegativeLog compares the logarithm with that of package math.
func TestNegativeLog(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{1, 3, 1<<32 - 1, 1<<63 + 1, math.MaxUint64, 0x123456789abcdef1} {
		want := 64 - math.Log2(float64(n))
		if got := float64(negativeLog(n)) / (1 << logBits); math.Abs(got-want) > 1e-8 {
			t.Errorf("%#x: %v, want %v", n, got, want)
		}
	}
}

func BenchmarkHome(b *testing.B) {
	s, subject := NewShares([]Member{{"ap", 1}, {"eu", 3}, {"us", 2}}, "eu"), headgate.SubjectOf("user", "ann")
	for b.Loop() {
		_ = s.Home(subject)
	}
}
