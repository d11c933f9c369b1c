package storewrap

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// lab is one node before a store, in virtual time.
type lab struct {
	*testing.T
	inner *flaky
	node  *Store
	calls atomic.Int64 // all of them
	agent atomic.Int64 // those that acquire or return leases only
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

func (l *lab) ask(charges ...headgate.Charge) []headgate.Result {
	l.Helper()
	r, err := take(l.node, charges...)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// asks reports whether the store is asked for that.
func (l *lab) asks(charges ...headgate.Charge) bool {
	l.Helper()
	before := l.calls.Load()
	l.ask(charges...)
	return l.calls.Load() > before
}

// lease asks for a charge every ten milliseconds until the node holds units of it, and says how many it was granted.
func (l *lab) lease(c headgate.Charge) (granted int64) {
	l.Helper()
	for range 1_000 {
		granted += l.ask(c)[0].Granted
		if l.held(c) > 1 {
			return granted
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.Fatal("no lease was taken")
	return 0
}

func (l *lab) held(c headgate.Charge) int64 { return l.node.held(c) }

// held is what the node holds of a counter.
func (s *Store) held(c headgate.Charge) int64 {
	e, mu := s.cache.lock(c.Subject, c.Counter)
	defer mu.Unlock()
	if e != nil {
		return e.held(s.cache.now())
	}
	return 0
}

// settles is an error if the store does not count what was admitted. A bucket has leaked a little since.
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

// yearly is a limit that gives back nothing while a test lasts.
func yearly(a headgate.Algorithm, n int64) headgate.Charge {
	c := hour(a, n)
	c.Limit.Window, c.Strict = 365*24*time.Hour, false
	return c
}

var leased = []headgate.Algorithm{headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow}
