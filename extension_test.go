package headgate_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

var expiries = []headgate.OnHoldExpiry{headgate.ReleaseHold, headgate.ChargeHold}

// forBudgets runs a test for each algorithm that has a hard budget, with both values of OnHoldExpiry. The window is so long that no unit
// becomes available during the test.
func forBudgets(t *testing.T, run func(t *testing.T, w *world, expiry headgate.OnHoldExpiry)) {
	t.Helper()
	for _, limit := range allAlgorithms() {
		if limit.Algorithm == headgate.LeakyBucket {
			continue // it delays
		}
		limit.Window = 30 * 24 * time.Hour
		for _, expiry := range expiries {
			t.Run(fmt.Sprintf("%s %s", limit.Algorithm, expiry), func(t *testing.T) {
				t.Parallel()
				run(t, newLimitWorldOf(t, expiry, limit), expiry)
			})
		}
	}
}

func (w *world) extend(t *testing.T, r headgate.Reservation, used, expected int64) headgate.Reservation {
	t.Helper()
	next, err := w.Extend(t.Context(), r.Token, ann(used), ann(expected), 10*time.Second)
	if err != nil || next.Token == nil {
		t.Fatalf("%+v: %v", next, err)
	}
	return next
}

func (w *world) commit(t *testing.T, r headgate.Reservation, cost int64) {
	t.Helper()
	if _, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: cost}); err != nil {
		t.Fatal(err)
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, _ headgate.OnHoldExpiry) {
		r := w.reserve(t, 20)
		if r.Covered != 20 {
			t.Errorf("%d are covered, want 20", r.Covered)
		}
		if r = w.extend(t, r, 15, 50); !r.Decision.Allowed || r.Covered != 50 {
			t.Errorf("%+v", r)
		}
		w.expectLeft(t, 50)
		if r = w.extend(t, r, 52, 60); r.Covered != 60 { // more was used than covered
			t.Errorf("%+v", r)
		}
		w.expectLeft(t, 40)
		w.commit(t, r, 55)
		w.expectLeft(t, 45)
		w.commit(t, r, 55)
		w.expectLeft(t, 45)
	})
}

// TestExtendToTheLastUnit checks that an extension gets what is left, that the next one is denied, and that what was used after the
// denial is still charged.
func TestExtendToTheLastUnit(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, _ headgate.OnHoldExpiry) {
		other := w.reserve(t, 70)
		r := w.extend(t, w.reserve(t, 20), 20, 60)
		if !r.Decision.Allowed || r.Covered != 30 {
			t.Errorf("%+v", r)
		}
		r = w.extend(t, r, 30, 60)
		if r.Decision.Allowed || r.Covered != 30 || r.Decision.DeniedBy() == nil {
			t.Errorf("%+v", r)
		}
		w.commit(t, other, 70)
		w.expectLeft(t, 0)
		w.commit(t, r, 33)
		if d, err := w.Refund(t.Context(), ann(headgate.MaxCost)); err != nil || d.Limits[0].Granted != 103 {
			t.Errorf("%d units were charged, want 103: %v", d.Limits[0].Granted, err)
		}
	})
}

// TestExtendProlongs checks that an extension begins another hold, and what happens to units when the last hold expires.
func TestExtendProlongs(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, expiry headgate.OnHoldExpiry) {
		r := w.reserve(t, 20)
		for range 5 {
			w.now = w.now.Add(9 * time.Second)
			r = w.extend(t, r, 10, 20)
			w.expectLeft(t, 80)
		}
		w.now = w.now.Add(12 * time.Second)
		want := int64(90) // 10 were charged by extensions
		if expiry == headgate.ChargeHold || w.Rules().Rules()[0].Limit.Algorithm == headgate.SlidingLog {
			want = 80
		}
		w.expectLeft(t, want)
	})
}

// TestExtendCountsRequestsOnce checks that a limit whose cost does not depend on what is extended is charged by Reserve only, and that it
// cannot deny an extension.
func TestExtendCountsRequestsOnce(t *testing.T) {
	t.Parallel()
	for _, expiry := range expiries {
		w := newWorld(t,
			headgate.Rule{
				ID: "tokens", By: []string{"user"}, Limit: window(100), OnHoldExpiry: expiry,
				Cost: headgate.Cost{From: "descriptor.tokens"},
			},
			headgate.Rule{ID: "requests", By: []string{"user"}, Limit: window(1)})
		tokens := func(n int) headgate.Request {
			return headgate.Request{Attributes: headgate.Attributes{"user": "ann", "descriptor.tokens": strconv.Itoa(n)}}
		}
		r, err := w.Reserve(t.Context(), tokens(20), 0)
		if err != nil || r.Covered != 20 {
			t.Fatalf("%+v: %v", r, err)
		}
		for used := 20; used < 80; used += 20 {
			if r, err = w.Extend(t.Context(), r.Token, tokens(used), tokens(used+20), 0); err != nil || r.Covered != int64(used)+20 {
				t.Fatalf("%+v: %v", r, err)
			}
		}
		w.expectLeft(t, 20, 0)
		if _, err := w.Commit(t.Context(), r.Token, tokens(61)); err != nil {
			t.Fatal(err)
		}
		w.expectLeft(t, 39, 0)
	}
}

// TestExtendFollowsRules checks that an extension is decided by the rules in force: a lower limit stops streams that are under way, and
// a removed one does not.
func TestExtendFollowsRules(t *testing.T) {
	t.Parallel()
	for _, expiry := range expiries {
		rule := headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(100), OnHoldExpiry: expiry}
		w := newWorld(t, rule)
		one, two := w.reserve(t, 20), w.reserve(t, 20)
		rule.Limit = window(40)
		w.SetRules(compile(t, rule))
		if one = w.extend(t, one, 20, 30); one.Decision.Allowed || one.Covered != 20 {
			t.Errorf("%+v", one)
		}
		w.SetRules(compile(t))
		if r, err := w.Extend(t.Context(), two.Token, ann(20), ann(1000), 0); err != nil || !r.Decision.Allowed || r.Covered != headgate.MaxCost || r.Token != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestExtendWithoutStore checks that whatever fails during an extension, what was used is charged, at least once.
func TestExtendWithoutStore(t *testing.T) {
	t.Parallel()
	unanswered := fmt.Errorf("%w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered)
	forBudgets(t, func(t *testing.T, w *world, _ headgate.OnHoldExpiry) {
		for i, failure := range []error{headgate.ErrUnavailable, unanswered} {
			before := w.left(t)[0]
			r := w.reserve(t, 10)
			w.failStore(failure)
			r, err := w.Extend(t.Context(), r.Token, ann(8), ann(30), time.Second)
			if !errors.Is(err, failure) || !r.Decision.Allowed || r.Token == nil || r.Covered != 30 {
				t.Fatalf("%+v: %v", r, err)
			}
			w.failStore(nil)
			w.commit(t, r, 12)
			if i == 1 { // the store may not have received what was used until then, and the hold may be orphaned
				w.now = w.now.Add(20 * time.Second)
			}
			if used := before - w.left(t)[0]; used < 4 || i == 0 && used != 12 {
				t.Errorf("%v: 12 were used and %d charged", failure, used)
			}
		}
	})
}

func TestExtendInvalidToken(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	r := w.reserve(t, 10)
	r.Token[len(r.Token)-1] ^= 1
	if _, err := w.Extend(t.Context(), r.Token, ann(1), ann(2), 0); !errors.Is(err, headgate.ErrInvalidToken) {
		t.Error(err)
	}
	r.Token[len(r.Token)-1] ^= 1
	if next, err := w.Extend(t.Context(), r.Token, ann(1), ann(2), 2*time.Hour); err == nil || !bytes.Equal(next.Token, r.Token) {
		t.Errorf("%+v: %v", next, err)
	}
	w.expectLeft(t, 90)
}

// TestBudgetOfStreams runs random streams that extend their reservations, finish, break off or vanish with their node, and checks that they
// never use more than the budget together, and that no unit is lost except those that vanished.
func TestBudgetOfStreams(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, expiry headgate.OnHoldExpiry) {
		for seed := range uint64(60) {
			streamOnBudget(t, w, expiry, seed)
			if _, err := w.Refund(t.Context(), ann(headgate.MaxCost)); err != nil {
				t.Fatal(err)
			}
			w.now = w.now.Add(2 * time.Hour) // all holds have expired
			w.expectLeft(t, 100)
		}
	})
}

func streamOnBudget(t *testing.T, w *world, expiry headgate.OnHoldExpiry, seed uint64) {
	t.Helper()
	type stream struct {
		headgate.Reservation
		used int64
	}
	random := rand.New(rand.NewPCG(seed, 1))
	var streams []*stream
	var used, lost int64
	for range 200 {
		w.now = w.now.Add(time.Duration(random.IntN(1500)) * time.Millisecond)
		if random.IntN(4) == 0 {
			if r := w.reserve(t, 1+random.Int64N(10)); r.Decision.Allowed {
				streams = append(streams, &stream{Reservation: r})
			}
		}
		for i := 0; i < len(streams); i++ {
			s := streams[i]
			n := min(random.Int64N(4), s.Covered-s.used)
			s.used, used = s.used+n, used+n
			ends := true
			switch random.IntN(12) {
			case 0:
				w.commit(t, s.Reservation, max(1, s.used))
				used += max(1, s.used) - s.used // a commit costs at least 1
			case 1:
				if expiry != headgate.ChargeHold {
					ends = false // a released hold would make the units available again
					break
				}
				lost += s.Covered - s.used // its node was killed
			default:
				if used += max(1, s.used) - s.used; s.used == 0 {
					s.used = 1
				}
				s.Reservation = w.extend(t, s.Reservation, s.used, s.used+1+random.Int64N(10))
				ends = !s.Decision.Allowed
				if ends {
					w.commit(t, s.Reservation, s.used)
				}
			}
			if used > 100 {
				t.Fatalf("seed %d: %d units of 100 were used", seed, used)
			}
			if ends {
				streams = append(streams[:i], streams[i+1:]...)
				i--
			}
		}
	}
	for _, s := range streams {
		w.commit(t, s.Reservation, max(1, s.used))
		used += max(1, s.used) - s.used
	}
	if left := w.left(t)[0]; left != 100-used-lost {
		t.Errorf("seed %d: %d units are left of 100; %d were used and %d lost", seed, left, used, lost)
	}
}

// TestExtendSettled checks that a token that was committed, cancelled or extended cannot be extended, and that nothing stays charged for
// the attempt.
func TestExtendSettled(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, _ headgate.OnHoldExpiry) {
		for _, end := range []func(headgate.Reservation){
			func(r headgate.Reservation) { w.commit(t, r, 20) },
			func(r headgate.Reservation) {
				if _, err := w.Cancel(t.Context(), r.Token); err != nil {
					t.Fatal(err)
				}
			},
			func(r headgate.Reservation) { w.commit(t, w.extend(t, r, 10, 30), 20) },
		} {
			r := w.reserve(t, 20)
			end(r)
			left := w.left(t)[0]
			next, err := w.Extend(t.Context(), r.Token, ann(999_999), ann(1_000_000), 0)
			if !errors.Is(err, headgate.ErrInvalidToken) || next.Covered != 0 || next.Decision.Allowed {
				t.Errorf("%+v: %v", next, err)
			}
			w.expectLeft(t, left)
		}
	})
}

// TestExtendUnanswered checks that a caller that did not get the token of an extension, and commits the old one, pays at least what it
// used, although the extension has reduced what was charged.
func TestExtendUnanswered(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, expiry headgate.OnHoldExpiry) {
		if expiry == headgate.ReleaseHold && w.Rules().Rules()[0].Limit.Algorithm != headgate.SlidingLog {
			return // the hold is gone, as after a commit
		}
		r := w.reserve(t, 50)
		w.extend(t, r, 10, 20) // the caller does not get the result
		w.expectLeft(t, 80)
		w.commit(t, r, 40)
		w.expectLeft(t, 40)
		w.commit(t, r, 40)
		w.expectLeft(t, 40)
	})
}

// TestExtendUsedLess checks that a caller that reports less used than before is not charged twice.
func TestExtendUsedLess(t *testing.T) {
	t.Parallel()
	forBudgets(t, func(t *testing.T, w *world, _ headgate.OnHoldExpiry) {
		r := w.extend(t, w.reserve(t, 50), 50, 51)
		for range 3 {
			r = w.extend(t, r, 1, 51)
		}
		w.commit(t, r, 51)
		w.expectLeft(t, 49)
	})
}

// TestReserveWithoutCost checks that a cost that is not given is 1, for what is covered, too.
func TestReserveWithoutCost(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	if r := w.reserve(t, 0); r.Covered != 1 {
		t.Errorf("%d are covered, want 1", r.Covered)
	}
	w.expectLeft(t, 99)
}
