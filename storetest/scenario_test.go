package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// mapStore is the least that is a store: a map around the specification.
type mapStore struct {
	now    time.Time
	states map[counterKey]headgate.State
}

func (m *mapStore) Part(headgate.Subject) int { return 0 }

func (m *mapStore) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	states := make([]headgate.State, len(charges))
	for i, c := range charges {
		states[i] = m.states[counterKey{c.Subject, c.Counter}]
	}
	headgate.Decide(charges, states, results, m.now)
	for i := len(charges) - 1; i >= 0; i-- { // the first of a counter's charges has its state, so it is written last
		m.states[counterKey{charges[i].Subject, charges[i].Counter}] = states[i]
	}
	return nil
}

func openMap(testing.TB) Target {
	m := &mapStore{states: map[counterKey]headgate.State{}}
	return Target{Store: m, SetTime: func(t time.Time) { m.now = t }}
}

func TestScenarios(t *testing.T) {
	Scenarios(t, openMap)
}
