package redisstore

import (
	"time"

	"github.com/headgate/headgate"
)

// group is the charges that one script call decides.
type group struct {
	charges []headgate.Charge
	results []headgate.Result
	index   []int // position of each charge in the request

	reply    []byte // of the script, kept to evaluate the charges again if another group denies
	time     time.Time
	admitted bool
	err      error
}

// refund returns the group of charges that give back what g recorded.
func (g *group) refund() *group {
	back := &group{}
	for i := range g.results {
		if undo, ok := g.charges[i].Undo(&g.results[i]); ok {
			back.charges = append(back.charges, undo)
		}
	}
	back.results = make([]headgate.Result, len(back.charges))
	return back
}

// split groups charges by the partition of their subjects, in the order of the charges.
func split[P comparable](charges []headgate.Charge, partition func(headgate.Subject) P) []*group {
	var groups []*group
	at := map[P]*group{}
	for i := range charges {
		p := partition(charges[i].Subject)
		g := at[p]
		if g == nil {
			g = &group{}
			at[p] = g
			groups = append(groups, g)
		}
		g.add(charges[i:i+1], []int{i})
	}
	return groups
}

// bySubject splits the group into one per subject.
func (g *group) bySubject() []*group {
	groups := split(g.charges, func(s headgate.Subject) headgate.Subject { return s })
	for _, sub := range groups {
		for i := range sub.index {
			sub.index[i] = g.index[sub.index[i]]
		}
	}
	return groups
}

func (g *group) add(charges []headgate.Charge, index []int) {
	g.charges = append(g.charges, charges...)
	g.index = append(g.index, index...)
	g.results = append(g.results, make([]headgate.Result, len(charges))...)
}

// divide splits the group so that no part exceeds headgate.MaxWeight. Charges of one subject stay together if they can, and a
// candidate stays with the charge before it, which is its twin.
func (g *group) divide() []*group {
	if headgate.Weight(g.charges) <= headgate.MaxWeight {
		return []*group{g}
	}
	var parts []*group
	last := func() *group { return parts[len(parts)-1] }
	add := func(charges []headgate.Charge, index []int) {
		if len(parts) == 0 || headgate.Weight(last().charges)+headgate.Weight(charges) > headgate.MaxWeight {
			parts = append(parts, &group{})
		}
		last().add(charges, index)
	}
	for _, of := range g.bySubject() {
		if headgate.Weight(of.charges) <= headgate.MaxWeight {
			add(of.charges, of.index)
			continue
		}
		for from := 0; from < len(of.charges); {
			to := from + 1
			for to < len(of.charges) && of.charges[to].Twin != 0 && to-from < 2 {
				to++
			}
			add(of.charges[from:to], of.index[from:to])
			from = to
		}
	}
	return parts
}

// shareCounter reports whether two groups have charges on the same counter.
func shareCounter(groups []*group) bool {
	if len(groups) == 1 {
		return false
	}
	type counter struct {
		subject headgate.Subject
		counter headgate.Counter
	}
	owner := map[counter]int{}
	for i, g := range groups {
		for j := range g.charges {
			c := counter{g.charges[j].Subject, g.charges[j].Counter}
			if first, known := owner[c]; known && first != i {
				return true
			}
			owner[c] = i
		}
	}
	return false
}
