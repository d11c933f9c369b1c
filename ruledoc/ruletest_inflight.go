package ruledoc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// inFlightStore is the store of a test. It counts requests in flight at once and by the clock of the test, where a Limiter releases and
// renews their units in the background, by the clock of the machine.
type inFlightStore struct {
	headgate.Store
	mu    sync.Mutex
	seq   int64
	held  map[counterKey]*heldUnits
	begun []beginning   // units granted since the last call of keep
	open  []openRequest // in the order in which they end
	// accounts are the units of each counter as the limiter sees them, which never ends a request.
	accounts map[counterKey]int64
}

type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// heldUnits is the number of units in use of a counter, with the last charge on it.
type heldUnits struct {
	charge headgate.Charge
	units  int64
}

type beginning struct {
	counter counterKey
	units   int64
}

type openRequest struct {
	until time.Time
	begun []beginning
}

func newInFlightStore(store headgate.Store) *inFlightStore {
	return &inFlightStore{Store: store, held: map[counterKey]*heldUnits{}, accounts: map[counterKey]int64{}}
}

// testHolder has all units of a test.
const testHolder = 1

// Take implements headgate.Store.
func (s *inFlightStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(charges) > 0 && inBackground(&charges[0]) {
		for i := range charges {
			results[i] = s.reply(&charges[i])
		}
		return nil
	}
	own := slices.Clone(charges)
	for i := range own {
		if own[i].Limit.Algorithm == headgate.Concurrency {
			s.seq++
			own[i].Holder, own[i].Seq = testHolder, s.seq
		}
	}
	if err := s.Store.Take(ctx, own, results); err != nil {
		return err
	}
	for i := range own {
		if own[i].Limit.Algorithm == headgate.Concurrency {
			key := counterKey{own[i].Subject, own[i].Counter}
			s.begin(key, &own[i], results[i].Granted)
			results[i].HolderUnits = s.accounts[key]
		}
	}
	return nil
}

// inBackground reports whether a charge belongs to no request: it releases or renews units.
func inBackground(c *headgate.Charge) bool {
	return c.Limit.Algorithm == headgate.Concurrency && (c.Slots != headgate.AcquireSlots || c.Force && c.Cost == 0)
}

// reply returns the result that the limiter expects of a charge in the background, without counting it.
func (s *inFlightStore) reply(c *headgate.Charge) headgate.Result {
	key := counterKey{c.Subject, c.Counter}
	switch c.Slots {
	case headgate.ReleaseSlots:
		s.accounts[key] -= c.Cost
	case headgate.SetSlots:
		s.accounts[key] = c.Cost
	}
	return headgate.Result{Allowed: true, Granted: c.Cost, HolderUnits: s.accounts[key]}
}

// begin records units that were granted to a request.
func (s *inFlightStore) begin(key counterKey, c *headgate.Charge, units int64) {
	if units == 0 {
		return
	}
	s.accounts[key] += units
	if s.held[key] == nil {
		s.held[key] = &heldUnits{}
	}
	s.held[key].charge = *c
	s.held[key].units += units
	s.begun = append(s.begun, beginning{key, units})
}

// keep has the units of the last request in use until a time. If that is now, it ends the request.
func (s *inFlightStore) keep(now, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.begun
	s.begun = nil
	switch {
	case len(begun) == 0:
		return nil
	case until.After(now):
		i, _ := slices.BinarySearchFunc(s.open, until, func(r openRequest, t time.Time) int { return r.until.Compare(t) })
		s.open = slices.Insert(s.open, i, openRequest{until, begun})
		return nil
	}
	s.end(begun)
	return s.set()
}

// advance ends the requests that have ended by now, and renews the leases of the others.
func (s *inFlightStore) advance(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.open) > 0 && !s.open[0].until.After(now) {
		s.end(s.open[0].begun)
		s.open = s.open[1:]
	}
	return s.set()
}

func (s *inFlightStore) end(begun []beginning) {
	for _, b := range begun {
		s.held[b.counter].units -= b.units
	}
}

// set makes the store agree on all counters in use.
func (s *inFlightStore) set() error {
	for key, held := range s.held {
		s.seq++
		c := held.charge
		c.Slots, c.Cost, c.Seq, c.Observe = headgate.SetSlots, held.units, s.seq, false
		if err := s.Store.Take(context.Background(), []headgate.Charge{c}, make([]headgate.Result, 1)); err != nil {
			return err
		}
		if held.units == 0 {
			delete(s.held, key)
		}
	}
	return nil
}
