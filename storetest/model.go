package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// model is the specification of a store: headgate.Decide on a map of states, one group at a time.
type model struct {
	now    time.Time
	group  func(headgate.Subject) int
	states map[counter]headgate.State
	holds  map[hold]headgate.Hold
}

// hold identifies one hold.
type hold struct {
	counter
	number int64
}

type counter struct {
	subject headgate.Subject
	counter headgate.Counter
}

func newModel(group func(headgate.Subject) int) *model {
	if group == nil {
		group = func(headgate.Subject) int { return 0 }
	}
	return &model{group: group, states: map[counter]headgate.State{}, holds: map[hold]headgate.Hold{}}
}

// take decides each group separately. If one group denies, what the others recorded is undone, and their results are those of
// headgate.DecideDenied on the states before. Observing charges stay recorded only in a group that is the only one to deny.
func (m *model) take(charges []headgate.Charge, results []headgate.Result) {
	byGroup := map[int][]int{}
	for i := range charges {
		g := m.group(charges[i].Subject)
		byGroup[g] = append(byGroup[g], i)
	}
	var before map[counter]headgate.State
	var holds map[hold]headgate.Hold
	if len(byGroup) > 1 { // otherwise nothing is decided again
		before, holds = maps.Clone(m.states), maps.Clone(m.holds)
	}
	denied := map[int]bool{}
	for g, index := range byGroup {
		some := pick(charges, index)
		states := load(some, m.states, m.holds)
		got := make([]headgate.Result, len(some))
		if !headgate.Decide(some, states, got, m.now) {
			denied[g] = true
		}
		m.store(some, states, got)
		for i, at := range index {
			results[at] = got[i]
		}
	}
	for g, index := range byGroup {
		if len(denied) == 0 || len(denied) == 1 && denied[g] {
			continue
		}
		some := pick(charges, index)
		for i, at := range index {
			if undo, ok := some[i].Undo(&results[at]); ok {
				m.undo(undo)
			}
		}
		got := make([]headgate.Result, len(some))
		headgate.DecideDenied(some, load(some, before, holds), got, m.now)
		for i, at := range index {
			results[at] = got[i]
		}
	}
}

func (m *model) undo(c headgate.Charge) {
	back := []headgate.Charge{c}
	states, results := load(back, m.states, m.holds), make([]headgate.Result, 1)
	headgate.Decide(back, states, results, m.now)
	m.store(back, states, results)
}

func load(charges []headgate.Charge, from map[counter]headgate.State, holds map[hold]headgate.Hold) []headgate.State {
	states := make([]headgate.State, len(charges))
	for i := range charges {
		c := counterOf(&charges[i])
		states[i] = from[c]
		states[i].Log = slices.Clip(states[i].Log) // Decide must not append to a shared log
		states[i].Hold = holds[hold{c, charges[i].Release.Mark}]
	}
	return states
}

func counterOf(c *headgate.Charge) counter { return counter{c.Subject, c.Counter} }

// store keeps the state of the first charge on each counter, and the holds.
func (m *model) store(charges []headgate.Charge, states []headgate.State, results []headgate.Result) {
	for i := len(charges) - 1; i >= 0; i-- { // backwards, so that the first charge on a counter is written last
		c, k := &charges[i], counterOf(&charges[i])
		m.states[k] = states[i]
		switch r := results[i].Receipt; {
		case c.Release.Units > 0:
			delete(m.holds, hold{k, c.Release.Mark})
		case r.Units > 0 && c.Holds():
			m.holds[hold{k, r.Mark}] = headgate.Hold{Units: r.Units, End: r.Time}
		}
	}
}

func pick(charges []headgate.Charge, index []int) []headgate.Charge {
	some := make([]headgate.Charge, len(index))
	for i, at := range index {
		some[i] = charges[at]
	}
	return some
}
