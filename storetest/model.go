package storetest

import (
	"context"
	"maps"
	"time"

	"github.com/headgate/headgate"
)

// model is the specification as a store: a map around headgate.Decide, one group at a time.
type model struct {
	now    time.Time
	group  func(headgate.Subject) int
	states map[counter]headgate.State
}

type counter struct {
	subject headgate.Subject
	counter headgate.Counter
}

func newModel(group func(headgate.Subject) int) *model {
	if group == nil {
		group = func(headgate.Subject) int { return 0 }
	}
	return &model{group: group, states: map[counter]headgate.State{}}
}

func (m *model) Part(headgate.Subject) int { return 0 }

// Take decides each group by itself. If one denies, all others are judged as withheld, from the states they had, and what
// they recorded is refunded; an observing charge stays only in a group that alone denied.
func (m *model) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	byGroup := map[int][]int{}
	for i := range charges {
		g := m.group(charges[i].Subject)
		byGroup[g] = append(byGroup[g], i)
	}
	before := maps.Clone(m.states)
	denied := map[int]bool{}
	for g, index := range byGroup {
		some := pick(charges, index)
		states := m.load(some, m.states)
		got := make([]headgate.Result, len(some))
		if !headgate.Decide(some, states, got, m.now) {
			denied[g] = true
		}
		m.store(some, states)
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
		headgate.Withhold(some, m.load(some, before), got, m.now)
		for i, at := range index {
			results[at] = got[i]
		}
	}
	return nil
}

func (m *model) undo(c headgate.Charge) {
	back := []headgate.Charge{c}
	states := m.load(back, m.states)
	headgate.Decide(back, states, make([]headgate.Result, 1), m.now)
	m.store(back, states)
}

func (m *model) load(charges []headgate.Charge, from map[counter]headgate.State) []headgate.State {
	states := make([]headgate.State, len(charges))
	for i := range charges {
		states[i] = from[counter{charges[i].Subject, charges[i].Counter}]
	}
	return states
}

// store keeps the state of the first charge on each counter.
func (m *model) store(charges []headgate.Charge, states []headgate.State) {
	seen := map[counter]bool{}
	for i := range charges {
		k := counter{charges[i].Subject, charges[i].Counter}
		if !seen[k] {
			m.states[k] = states[i]
		}
		seen[k] = true
	}
}

func pick(charges []headgate.Charge, index []int) []headgate.Charge {
	some := make([]headgate.Charge, len(index))
	for i, at := range index {
		some[i] = charges[at]
	}
	return some
}
