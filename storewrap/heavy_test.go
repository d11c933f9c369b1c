package storewrap

import (
	"context"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// slowForMany times out on requests that are heavier than one call may be.
type slowForMany struct{ *memstore.Store }

func (s slowForMany) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if headgate.Weight(charges) > headgate.MaxWeight {
		return failAll(results, errLate)
	}
	return s.Store.Take(ctx, charges, results)
}

// A request that times out because it is heavy says nothing about the store: the circuit stays closed.
func TestHeavyRequestsOpenNoCircuit(t *testing.T) {
	t.Parallel()
	s := wrap(t, slowForMany{memstore.New(memstore.Options{})}, Options{})
	limit := headgate.PerHour(1_000_000)
	var many []headgate.Charge
	for i := range headgate.MaxWeight + 1 {
		many = append(many, headgate.Charge{
			Subject: headgate.SubjectOf("tenant", "evil"), Counter: headgate.CounterOf("r", strconv.Itoa(i), limit.Algorithm),
			Limit: limit, Cost: 1, Strict: true,
		})
	}
	for range 10 * minFailures {
		_, _ = take(s, many...)
	}
	if stats := s.Stats(); stats.CircuitOpened != 0 {
		t.Errorf("the circuit opened %d times", stats.CircuitOpened)
	}
	if r, err := take(s, many[:headgate.MaxWeight]...); err != nil || r[0].Err != nil {
		t.Errorf("%+v, %v", r[0], err)
	}
}
