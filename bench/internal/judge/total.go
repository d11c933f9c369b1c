package judge

import (
	"cmp"
	"slices"
	"strings"
)

// judgeTotal judges the sum of the units admitted for each subject.
func judgeTotal(t *trial) {
	type group struct {
		limit             Limit
		runs, over, under int
		smallest, largest int64
		smallestAt        string
	}
	groups := map[Limit]*group{}
	var order []*group
	missed := 0
	for _, name := range t.names() {
		records, limit := t.subjects[name], t.limit(name)
		admitted := admissions(records)
		sum := units(admitted)
		g := groups[limit]
		if g == nil {
			g = &group{limit: limit, smallest: sum, largest: sum, smallestAt: name}
			groups[limit] = g
			order = append(order, g)
		}
		g.runs++
		if sum < g.smallest {
			g.smallest, g.smallestAt = sum, name
		}
		g.largest = max(g.largest, sum)
		if len(admitted) > 0 {
			last := slices.MaxFunc(admitted, func(a, b *Record) int { return cmp.Compare(a.Received, b.Received) }).Received
			if maximum := limit.maximum(last - admitted[0].Sent); sum > maximum {
				g.over++
				t.find("%s: %s admitted %d, at most %d", name, limit, sum, maximum)
			}
		}
		if float64(sum) < t.check.Least {
			g.under++
			missed++
		}
	}
	for _, g := range order {
		t.figure("%s %d to %d of %d in %d runs (%d over, %d under %g)",
			cmp.Or(strings.TrimRight(t.check.Subjects, "/"), g.limit.Algorithm), g.smallest, g.largest, g.limit.Count,
			g.runs, g.over, g.under, t.check.Least)
	}
	if missed > t.check.Misses {
		for _, g := range order {
			if g.under > 0 {
				t.find("%s: %s admitted %d in %s and less than %g in %d of %d runs; at most %d may", t.label(), g.limit, g.smallest,
					g.smallestAt, t.check.Least, g.under, g.runs, t.check.Misses)
			}
		}
	}
}

// judgeUse replays the requests of each subject on a counter without any caching: when they were sent, and when the store decided
// about them. What counts is the lower result, because on a busy machine requests arrive late and in bursts.
func judgeUse(t *trial) {
	var got, model int64
	for _, name := range t.names() {
		decided := func(r *Record) int64 {
			from, _ := r.Span()
			return from
		}
		ordered := slices.SortedStableFunc(slices.Values(t.subjects[name]), func(a, b *Record) int { return cmp.Compare(decided(a), decided(b)) })
		strict := min(replay(t.limit(name), t.subjects[name], 0), replayAt(t.limit(name), ordered, 0, decided))
		sum := units(admissions(t.subjects[name]))
		got += sum
		model += strict
		if float64(sum) < t.check.Least*float64(strict) {
			t.find("%s: %s admitted %d of %d that the limit allows: %.4f, at least %g", name, t.limit(name), sum, strict,
				float64(sum)/float64(strict), t.check.Least)
		}
	}
	t.figure("%s %.4f", t.label(), float64(got)/float64(max(1, model)))
}

// judgeClaims judges requests for all of Remaining. No other caller charges the subject.
func judgeClaims(t *trial) {
	claims, denied := 0, 0
	for _, name := range t.names() {
		var before *Record
		for _, r := range t.subjects[name] {
			if r.Op == OpCheck && r.Note == NoteClaim && before != nil && before.Remaining == r.Cost {
				claims++
				if !r.Allowed {
					if denied++; denied <= 3 {
						t.find("%s: %s: Remaining was %d (path %s), a request for %d was denied %s later (path %s)", name, t.limit(name),
							before.Remaining, before.Path, r.Cost, seconds(r.Sent-before.Received), r.Path)
					}
				}
			}
			before = r
		}
	}
	if denied > 3 {
		t.find("%s: %d more claims denied", t.label(), denied-3)
	}
	if claims == 0 {
		t.find("%s: no claims", t.label())
	}
	t.figure("%s: %d denied of %d", t.label(), denied, claims)
}
