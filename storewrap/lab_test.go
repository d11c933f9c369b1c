package storewrap

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// lab is one node in front of a store, in virtual time.
type lab struct {
	*testing.T
	inner *flaky
	node  *Store
	calls atomic.Int64 // to the store
	agent atomic.Int64 // calls that only acquire or return leases
	fails atomic.Pointer[func(charges []headgate.Charge) error]
}

func inLab(t *testing.T, o Options, test func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, inner: newFlaky()}
		l.inner.is(func(charges []headgate.Charge) error {
			l.calls.Add(1)
			if !slices.ContainsFunc(charges, func(c headgate.Charge) bool { return c.AtLeast == 0 && c.Refund.Units == 0 }) {
				l.agent.Add(1)
			}
			if fails := l.fails.Load(); fails != nil {
				return (*fails)(charges)
			}
			return nil
		})
		l.node = wrap(t, l.inner, o)
		test(l)
	})
}

func (l *lab) fail(fails func(charges []headgate.Charge) error) { l.fails.Store(&fails) }

func (l *lab) take(charges ...headgate.Charge) []headgate.Result {
	l.Helper()
	r, err := take(l.node, charges...)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// callsStore reports whether the charges cause a store call.
func (l *lab) callsStore(charges ...headgate.Charge) bool {
	l.Helper()
	before := l.calls.Load()
	l.take(charges...)
	return l.calls.Load() > before
}

// lease takes a charge every ten milliseconds until the node holds units of it, and returns how many units were granted.
func (l *lab) lease(c headgate.Charge) (granted int64) {
	l.Helper()
	for range 1_000 {
		granted += l.take(c)[0].Granted
		if l.held(c) > 1 {
			return granted
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.Fatal("no lease was taken")
	return 0
}

func (l *lab) held(c headgate.Charge) int64 { return l.node.held(c) }

// held returns how many units of a counter the node holds.
func (s *Store) held(c headgate.Charge) int64 {
	e, mu := s.cache.lock(c.Subject, c.Counter)
	defer mu.Unlock()
	if e != nil {
		return e.held(s.cache.now())
	}
	return 0
}

// settles fails the test if the store has not counted what was admitted. A token bucket has refilled a little since.
func (l *lab) settles(c headgate.Charge, admitted int64) {
	l.Helper()
	got, leak := used(l.T, l.inner, c), int64(0)
	if c.Limit.Algorithm == headgate.TokenBucket {
		leak = 1
	}
	if got > admitted || got < admitted-leak || l.held(c) != 0 {
		l.Errorf("the store counts %d of %d admitted, and %d are held", got, admitted, l.held(c))
	}
}

// yearly returns a charge on a limit that refills nothing while a test lasts.
func yearly(a headgate.Algorithm, n int64) headgate.Charge {
	c := hour(a, n)
	c.Limit.Window, c.Strict = 365*24*time.Hour, false
	return c
}

var leased = []headgate.Algorithm{headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow}
