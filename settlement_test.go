package headgate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// newLimitWorld returns a world with a rule for each limit.
func newLimitWorld(t *testing.T, limits ...headgate.Limit) *world {
	t.Helper()
	return newLimitWorldOf(t, headgate.ReleaseHold, limits...)
}

func newLimitWorldOf(t *testing.T, expiry headgate.OnHoldExpiry, limits ...headgate.Limit) *world {
	t.Helper()
	var rules []headgate.Rule
	for i, limit := range limits {
		rule := headgate.Rule{ID: fmt.Sprint("rule-", i), By: []string{"user"}, Limit: limit, OnHoldExpiry: expiry}
		if limit.Algorithm == headgate.LeakyBucket {
			rule.MaxDelay = time.Hour
		}
		rules = append(rules, rule)
	}
	return newWorld(t, rules...)
}

// failStore makes all calls to the store fail, or none if err is nil.
func (w *world) failStore(err error) { w.store.fails = func() error { return err } }

// failMarker makes only the call fail that checks whether a token was settled before.
func (w *world) failMarker(err error) {
	failed := false
	w.store.fails = func() error {
		if failed {
			return nil
		}
		failed = true
		return err
	}
}

// state returns the state of the counters as text.
func (w *world) state(t *testing.T) string {
	t.Helper()
	d, err := w.Peek(t.Context(), ann(1))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, l := range d.Limits {
		fmt.Fprintf(&text, "%s: %d left, delay %s, reset %s; ", l.Limit.Algorithm, l.Remaining, l.Delay, l.ResetAfter)
	}
	return text.String()
}

// ending is how a reservation ends: canceled, or committed with a cost.
type ending struct {
	cancel bool
	cost   int64
}

func (e ending) String() string {
	if e.cancel {
		return "cancel"
	}
	return fmt.Sprint("commit ", e.cost)
}

func (w *world) end(t *testing.T, token []byte, e ending) (headgate.Decision, error) {
	t.Helper()
	if e.cancel {
		return w.Cancel(t.Context(), token)
	}
	return w.Commit(t.Context(), token, headgate.Request{Cost: e.cost})
}

var endings = []ending{{cancel: true}, {cost: 10}, {cost: 20}, {cost: 30}} // of a reservation of 20

func allAlgorithms() (limits []headgate.Limit) {
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		limits = append(limits, headgate.Limit{Algorithm: a, Count: 100, Window: time.Minute})
	}
	return limits
}

// TestSettledOnce checks that a reservation ends once: a second Commit or Cancel changes nothing, whether the units were held, recorded
// at once or not seen by the store, even after the hold has expired.
func TestSettledOnce(t *testing.T) {
	t.Parallel()
	all := allAlgorithms()
	mixes := [][]headgate.Limit{all}
	for _, limit := range all {
		mixes = append(mixes, []headgate.Limit{limit})
	}
	for _, limits := range mixes {
		for _, variant := range []struct {
			expiry headgate.OnHoldExpiry
			unseen bool
		}{{}, {unseen: true}, {expiry: headgate.ChargeHold}, {headgate.ChargeHold, true}} {
			for _, late := range []time.Duration{0, 9500 * time.Millisecond, 15 * time.Second} {
				for _, first := range endings {
					for _, second := range endings {
						b := newLimitWorldOf(t, variant.expiry, limits...)
						name := fmt.Sprintf("%v, %+v, %v later, %v, %v", limits, variant, late, first, second)
						if variant.unseen {
							b.failStore(headgate.ErrUnavailable)
						}
						token := b.reserve(t, 20).Token
						b.failStore(nil)
						b.now = b.now.Add(late)
						d, err := b.end(t, token, first)
						if err != nil || !d.Allowed || len(d.Limits) != len(limits) {
							t.Fatalf("%s: %+v, %v", name, d, err)
						}
						used := first.cost
						if variant.expiry == headgate.ChargeHold && !variant.unseen && late > 10*time.Second {
							used = max(used, 20) // nothing is given back after the hold has expired
						}
						if l := d.Limits[0]; l.Limit.Algorithm == headgate.FixedWindow && l.Remaining != 100-used {
							t.Errorf("%s: %d are left", name, l.Remaining)
						}
						want := b.state(t)
						d, err = b.end(t, token, second)
						if err != nil || !d.Allowed || len(d.Limits) != len(limits) {
							t.Fatalf("%s: %+v, %v", name, d, err)
						}
						for _, l := range d.Limits {
							drains := l.Limit.Algorithm == headgate.LeakyBucket || variant.expiry == headgate.ChargeHold // since Reserve
							if l.Granted != 0 || !drains && l.Remaining > 100-first.cost {
								t.Errorf("%s: the second gets %+v", name, l)
							}
						}
						if got := b.state(t); got != want {
							t.Errorf("%s: %s before the second, then %s", name, want, got)
						}
					}
				}
			}
		}
	}
}

// TestTokensAreUnique checks that reservations of the same units at the same time, or not seen by the store, have different tokens.
func TestTokensAreUnique(t *testing.T) {
	t.Parallel()
	for _, limit := range allAlgorithms() {
		for _, unseen := range []bool{false, true} {
			b := newLimitWorld(t, limit)
			if unseen {
				b.failStore(headgate.ErrUnavailable)
			}
			one, other := b.reserve(t, 20).Token, b.reserve(t, 20).Token
			b.failStore(nil)
			if bytes.Equal(one, other) {
				t.Fatalf("%s: two reservations have one token", limit)
			}
			for _, token := range [][]byte{one, other} {
				if _, err := b.Commit(t.Context(), token, headgate.Request{Cost: 30}); err != nil {
					t.Fatal(err)
				}
			}
			if limit.Algorithm == headgate.LeakyBucket {
				continue // its remaining units depend on delays
			}
			if d, err := b.Peek(t.Context(), ann(1)); err != nil || d.Limits[0].Remaining != 40 {
				t.Errorf("%s, unseen %t: %+v, %v", limit, unseen, d, err)
			}
		}
	}
}

// TestSettledOnceConcurrently checks that only one of many concurrent calls settles a token.
func TestSettledOnceConcurrently(t *testing.T) {
	t.Parallel()
	for _, limit := range allAlgorithms() {
		if limit.Algorithm == headgate.LeakyBucket {
			continue
		}
		b := newLimitWorld(t, limit)
		token := b.reserve(t, 20).Token
		var changed atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				d, err := b.Commit(context.Background(), token, headgate.Request{Cost: 50})
				if err != nil {
					t.Error(err)
				} else if d.Limits[0].Granted > 0 {
					changed.Add(1)
				}
			})
		}
		all.Wait()
		if d, err := b.Peek(t.Context(), ann(1)); err != nil || d.Limits[0].Remaining != 50 || changed.Load() != 1 {
			t.Errorf("%s: %d changed it, then %+v, %v", limit, changed.Load(), d, err)
		}
	}
}

// TestSettlementsAreCheap checks that settling a token takes one call to the store if all its units are held, and otherwise two.
func TestSettlementsAreCheap(t *testing.T) {
	t.Parallel()
	for _, limit := range allAlgorithms() {
		b := newLimitWorld(t, limit)
		token := b.reserve(t, 20).Token
		b.store.calls.Store(0)
		if _, err := b.Commit(t.Context(), token, headgate.Request{Cost: 10}); err != nil {
			t.Fatal(err)
		}
		want := int64(1)
		if limit.Algorithm == headgate.LeakyBucket || limit.Algorithm == headgate.SlidingLog {
			want = 2
		}
		if calls := b.store.calls.Load(); calls != want {
			t.Errorf("%s: a commit took %d calls, want %d", limit, calls, want)
		}
	}
}

// TestSettledWithoutMarker checks that if the store cannot report whether a token was settled before, the cost is charged and nothing
// is given back: both err on the safe side.
func TestSettledWithoutMarker(t *testing.T) {
	t.Parallel()
	log := headgate.Limit{Algorithm: headgate.SlidingLog, Count: 100, Window: time.Minute}
	for _, failure := range []error{headgate.ErrUnavailable, fmt.Errorf("%w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered)} {
		for _, c := range []struct {
			limit  headgate.Limit
			unseen bool
			ending ending
			left   int64
			err    error
		}{
			{log, false, ending{cost: 30}, 70, nil},
			{log, false, ending{cost: 20}, 80, nil},
			{log, false, ending{cost: 10}, 80, failure},
			{log, false, ending{cancel: true}, 80, failure},
			{log, true, ending{cost: 30}, 70, nil},
			{log, true, ending{cancel: true}, 100, nil},
			{window(100), true, ending{cost: 30}, 70, nil},
		} {
			b := newLimitWorld(t, c.limit)
			if c.unseen {
				b.failStore(headgate.ErrUnavailable)
			}
			token := b.reserve(t, 20).Token
			b.failMarker(failure)
			d, err := b.end(t, token, c.ending)
			if !errors.Is(err, c.err) || !d.Allowed {
				t.Errorf("%+v: %+v, %v", c, d, err)
			}
			if d, err := b.Peek(t.Context(), ann(1)); err != nil || d.Limits[0].Remaining != c.left {
				t.Errorf("%+v: %+v, %v", c, d, err)
			}
		}
	}
}

// TestSettledOnceOverAnOutage checks that a reservation made in an outage, by the node's local share or a rule that allows, is charged
// once, whether it is committed during or after the outage, and that a second commit after it charges nothing.
func TestSettledOnceOverAnOutage(t *testing.T) {
	t.Parallel()
	for _, limit := range allAlgorithms() {
		if limit.Algorithm == headgate.LeakyBucket {
			continue // its remaining units depend on delays
		}
		limit.Window = 24 * time.Hour // so that no unit becomes available during the test
		for _, during := range []bool{false, true} {
			for _, otherwise := range []headgate.OnStoreFailure{headgate.FailLocal, headgate.FailAllow} {
				for _, expiry := range []headgate.OnHoldExpiry{headgate.ReleaseHold, headgate.ChargeHold} {
					t.Run(fmt.Sprintf("%s %t %s %s", limit.Algorithm, during, otherwise, expiry), func(t *testing.T) {
						t.Parallel()
						rule := headgate.Rule{ID: "rule", By: []string{"user"}, Limit: limit, OnStoreFailure: otherwise, OnHoldExpiry: expiry}
						settledOverAnOutage(t, rule, during)
					})
				}
			}
		}
	}
}

func settledOverAnOutage(t *testing.T, rule headgate.Rule, during bool) {
	t.Helper()
	var unavailable atomic.Bool
	inner := &outage{Store: memstore.New(memstore.Options{}), fails: func() error {
		if unavailable.Load() {
			return headgate.ErrUnavailable
		}
		return nil
	}}
	store := storewrap.New(inner, storewrap.Options{Log: slog.New(slog.DiscardHandler)})
	defer store.Close()
	l, err := headgate.New(store, rule)
	if err != nil {
		t.Fatal(err)
	}
	unavailable.Store(true)
	for range 20 { // until the outage is detected
		if _, err := l.Peek(t.Context(), ann(1)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Reserve(t.Context(), ann(20), time.Minute)
	if err != nil || r.Token == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	commit := func() {
		t.Helper()
		if d, err := l.Commit(t.Context(), r.Token, headgate.Request{Cost: 30}); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if during {
		commit()
	}
	unavailable.Store(false)
	left := func() int64 {
		d, err := headgate.NewLimiter(inner, l.Rules(), headgate.Options{}).Peek(t.Context(), ann(1))
		if err != nil {
			t.Fatal(err)
		}
		return d.Limits[0].Remaining
	}
	deadline := time.Now().Add(20 * time.Second)
	for owes := true; owes; time.Sleep(10 * time.Millisecond) {
		d, err := l.Peek(t.Context(), ann(1))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the store did not recover: %+v, %v", d, err)
		}
		owes = d.Path != headgate.PathStore || during && left() == rule.Limit.Count
	}
	if !during {
		commit()
	}
	commit()
	commit()
	if got := left(); got != rule.Limit.Count-30 {
		t.Errorf("%d are left, want %d", got, rule.Limit.Count-30)
	}
}
