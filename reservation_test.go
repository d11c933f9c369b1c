package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// newTokenWorld returns a world with a limit on the tokens of a language model, by user.
func newTokenWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(100)})
}

func window(n int64) headgate.Limit {
	return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: time.Minute}
}

func ann(cost int64) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{"user": "ann"}, Cost: cost}
}

func (w *world) reserve(t *testing.T, cost int64) headgate.Reservation {
	t.Helper()
	r, err := w.Reserve(t.Context(), ann(cost), 10*time.Second)
	if err != nil || r.Decision.Allowed == (r.Token == nil) {
		t.Fatalf("%+v: %v", r, err)
	}
	return r
}

func (w *world) left(t *testing.T) []int64 {
	t.Helper()
	d, err := w.Peek(t.Context(), ann(1))
	if err != nil {
		t.Fatal(err)
	}
	var left []int64
	for _, l := range d.Limits {
		left = append(left, l.Remaining)
	}
	return left
}

func (w *world) expectLeft(t *testing.T, want ...int64) {
	t.Helper()
	if got := w.left(t); !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
}

func granted(t *testing.T, d headgate.Decision, err error) int64 {
	t.Helper()
	if err != nil || !d.Allowed || len(d.Limits) == 0 {
		t.Fatalf("%+v: %v", d, err)
	}
	return d.Limits[0].Granted
}

func TestReserve(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	first := w.reserve(t, 60)
	w.expectLeft(t, 40)
	if r := w.reserve(t, 50); r.Decision.Allowed || r.Decision.RetryAfter != 10*time.Second {
		t.Errorf("held units were available to another request: %+v", r.Decision)
	}
	d, err := w.Commit(t.Context(), first.Token, headgate.Request{Cost: 25})
	if n := granted(t, d, err); n != 25 || d.Limits[0].Rule != "tokens" || d.Limits[0].Remaining != 75 {
		t.Errorf("%+v", d)
	}
	if d, err := w.Commit(t.Context(), first.Token, headgate.Request{Cost: 25}); granted(t, d, err) != 0 {
		t.Errorf("committed twice: %+v", d)
	}
	w.expectLeft(t, 75)
	second := w.reserve(t, 60)
	if _, err := w.Cancel(t.Context(), second.Token); err != nil {
		t.Fatal(err)
	}
	w.expectLeft(t, 75)
}

func TestCommitAboveHold(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	r := w.reserve(t, 10)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 110}); granted(t, d, err) != 110 {
		t.Errorf("%+v", d)
	}
	w.expectLeft(t, 0)
	w.now = w.now.Add(time.Minute)
	w.expectLeft(t, 100)
}

// TestCommitIsBounded checks that a commit charges at most ten times the reserved cost, or the reserved cost plus the limit's capacity,
// so that it cannot deny a client for very long.
func TestCommitIsBounded(t *testing.T) {
	t.Parallel()
	for reserved, charged := range map[int64]int64{1: 101, 10: 110, 11: 111, 12: 120, 100: 1_000} {
		w := newTokenWorld(t)
		r := w.reserve(t, reserved)
		if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: headgate.MaxCost}); granted(t, d, err) != charged {
			t.Errorf("of %d reserved: %+v", reserved, d)
		}
	}
}

func TestReservationExpires(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	r := w.reserve(t, 60)
	w.now = w.now.Add(10 * time.Second)
	w.expectLeft(t, 100)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 70}); granted(t, d, err) != 70 {
		t.Errorf("a commit after the hold expired was not charged: %+v", d)
	}
	w.expectLeft(t, 30)
}

// TestReserveByAttribute makes one reservation on a rule that reads its cost from an attribute and a rule that counts requests.
func TestReserveByAttribute(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(100), Cost: headgate.Cost{From: "descriptor.tokens"}},
		headgate.Rule{ID: "requests", By: []string{"user"}, Limit: window(10)})
	req := headgate.Request{Attributes: headgate.Attributes{"user": "ann", "descriptor.tokens": "80"}}
	r, err := w.Reserve(t.Context(), req, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.expectLeft(t, 20, 9)
	actual := headgate.Request{Attributes: headgate.Attributes{"descriptor.tokens": "33"}}
	if d, err := w.Commit(t.Context(), r.Token, actual); granted(t, d, err) != 33 {
		t.Errorf("%+v", d)
	}
	w.expectLeft(t, 67, 9)
	if r, err = w.Reserve(t.Context(), req, 0); err != nil || r.Decision.Allowed {
		t.Errorf("%+v: %v", r.Decision, err)
	}
	w.expectLeft(t, 67, 9) // no limit holds units if another denies
}

// TestReserveWithoutHolding checks that leaky buckets and logs, which cannot hold units, are charged at once and corrected.
func TestReserveWithoutHolding(t *testing.T) {
	t.Parallel()
	log := headgate.Limit{Algorithm: headgate.SlidingLog, Count: 100, Window: time.Minute}
	w := newWorld(t, headgate.Rule{ID: "log", By: []string{"user"}, Limit: log})
	r := w.reserve(t, 60)
	w.expectLeft(t, 40)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 25}); granted(t, d, err) != 35 {
		t.Errorf("the excess was not refunded: %+v", d)
	}
	w.expectLeft(t, 75)
	r = w.reserve(t, 10)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 25}); granted(t, d, err) != 15 {
		t.Errorf("the difference was not charged: %+v", d)
	}
	w.expectLeft(t, 50)
	r = w.reserve(t, 10)
	if _, err := w.Cancel(t.Context(), r.Token); err != nil {
		t.Fatal(err)
	}
	w.expectLeft(t, 50)
}

func TestReservationOutlivesItsRule(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rule := headgate.Rule{ID: "month", By: []string{"user"}, Limits: map[string]headgate.Limit{
		"quota": headgate.Quota(100, headgate.Month, berlin), "peak": window(90),
	}}
	w := newWorld(t, rule)
	r := w.reserve(t, 60)
	none, err := headgate.Compile()
	if err != nil {
		t.Fatal(err)
	}
	old := w.Rules()
	w.SetRules(none)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 5}); granted(t, d, err) != 5 || len(d.Limits) != 2 {
		t.Errorf("%+v", d)
	}
	w.SetRules(old)
	w.expectLeft(t, 85, 95)
}

func TestReserveInShadow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "shadow", By: []string{"user"}, Limit: window(10), Mode: headgate.Shadow},
		headgate.Rule{ID: "live", By: []string{"user"}, Limit: window(100)})
	r := w.reserve(t, 60)
	w.expectLeft(t, 10, 40)
	if d, err := w.Commit(t.Context(), r.Token, headgate.Request{Cost: 5}); granted(t, d, err) != 5 || len(d.Limits) != 1 {
		t.Errorf("%+v", d)
	}
	w.expectLeft(t, 10, 95)
}

func TestInvalidTokensAreRejected(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	token := w.reserve(t, 60).Token
	bad := [][]byte{nil, {}, {1}, token[:len(token)-1], append(slices.Clone(token), 0), make([]byte, 100_000)}
	for i := range token {
		changed := slices.Clone(token)
		changed[i] ^= 1 << (i % 8)
		bad = append(bad, changed)
	}
	for _, b := range bad {
		if _, err := w.Commit(t.Context(), b, headgate.Request{}); !errors.Is(err, headgate.ErrInvalidToken) {
			t.Errorf("%x was accepted: %v", b, err)
		}
	}
	w.expectLeft(t, 40)
	other := headgate.NewLimiter(memstore.New(memstore.Options{}), w.Rules(), headgate.Options{Secret: []byte("another secret")})
	if _, err := other.Cancel(t.Context(), token); !errors.Is(err, headgate.ErrInvalidToken) {
		t.Errorf("a token of another secret was accepted: %v", err)
	}
}

// unsigned is a store that has no keys.
type unsigned struct{ headgate.Store }

// emptyKey is a store whose key is empty.
type emptyKey struct{ *memstore.Store }

func (emptyKey) SigningKeys(context.Context) ([][]byte, error) { return [][]byte{{}}, nil }

// TestNoTokenWithoutKey checks that nothing is reserved without a key to sign the token.
func TestNoTokenWithoutKey(t *testing.T) {
	t.Parallel()
	memory := memstore.New(memstore.Options{})
	for name, store := range map[string]headgate.Store{"no key": unsigned{memory}, "an empty key": emptyKey{memory}} {
		limiter, err := headgate.New(store, headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(100)})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := limiter.Reserve(t.Context(), ann(1), 0); !errors.Is(err, headgate.ErrUnavailable) || r.Token != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if d, err := limiter.Peek(t.Context(), ann(1)); err != nil || d.Limits[0].Remaining != 100 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		withSecret := headgate.NewLimiter(store, limiter.Rules(), headgate.Options{Secret: []byte("a secret of its own")})
		if r, err := withSecret.Reserve(t.Context(), ann(1), 0); err != nil || r.Token == nil {
			t.Errorf("%s, with a secret: %+v, %v", name, r, err)
		}
	}
}

// named is a store with a namespace.
type named struct {
	*memstore.Store
	namespace string
}

func (n named) Namespace() string { return n.namespace }

// TestTokenOfAnotherNamespace checks that a token is not valid in another namespace with the same secret.
func TestTokenOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	memory := memstore.New(memstore.Options{})
	set, err := headgate.Compile(headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(100)})
	if err != nil {
		t.Fatal(err)
	}
	secret := headgate.Options{Secret: []byte("one secret for all")}
	here := headgate.NewLimiter(named{memory, "here"}, set, secret)
	r, err := here.Reserve(t.Context(), ann(1), 0)
	if err != nil {
		t.Fatal(err)
	}
	there := headgate.NewLimiter(named{memory, "there"}, set, secret)
	if _, err := there.Cancel(t.Context(), r.Token); !errors.Is(err, headgate.ErrInvalidToken) {
		t.Errorf("another namespace accepted the token: %v", err)
	}
	if _, err := here.Cancel(t.Context(), r.Token); err != nil {
		t.Error(err)
	}
}

func TestHoldsAreBounded(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	for _, hold := range []time.Duration{-1, headgate.MaxHold + 1} {
		if _, err := w.Reserve(t.Context(), ann(1), hold); err == nil {
			t.Errorf("held for %v", hold)
		}
	}
}

func TestRefundOfRequest(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	if _, err := w.Check(t.Context(), ann(30)); err != nil {
		t.Fatal(err)
	}
	if d, err := w.Refund(t.Context(), ann(20)); granted(t, d, err) != 20 {
		t.Errorf("%+v", d)
	}
	w.expectLeft(t, 90)
	if d, err := w.Refund(t.Context(), ann(20)); granted(t, d, err) != 10 {
		t.Errorf("refunded more than was charged: %+v", d)
	}
	w.expectLeft(t, 100)
}

// TestReset checks that a refund of MaxCost resets a counter of every algorithm, even a window that has just rolled.
func TestReset(t *testing.T) {
	t.Parallel()
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		for _, later := range []time.Duration{0, 30 * time.Second, time.Minute, 90 * time.Second} {
			limit := headgate.Limit{Algorithm: a, Count: 100, Window: time.Minute}
			rule := headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: limit}
			if a == headgate.LeakyBucket {
				rule.MaxDelay = time.Hour
			}
			w := newWorld(t, rule)
			unused := w.left(t)
			for range 3 {
				if _, err := w.Check(t.Context(), ann(30)); err != nil {
					t.Fatal(err)
				}
			}
			w.now = w.now.Add(later)
			if _, err := w.Refund(t.Context(), ann(headgate.MaxCost)); err != nil {
				t.Fatal(err)
			}
			d, err := w.Check(t.Context(), ann(1))
			if err != nil || !d.Allowed || d.Delay != 0 {
				t.Errorf("%s, reset %v later: %+v, %v", a, later, d, err)
			}
			w.expectLeft(t, unused[0]-1)
		}
	}
}

func TestPeekChargesNothing(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	for range 3 {
		d, err := w.Peek(t.Context(), ann(100))
		if err != nil || !d.Allowed {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if d, _ := w.Peek(t.Context(), ann(101)); d.Allowed || d.RetryAfter != headgate.Never {
		t.Errorf("%+v", d)
	}
	w.expectLeft(t, 100)
}

// TestCheckByRule checks that a rule can be requested by its ID, whether it matches or not.
func TestCheckByRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		headgate.Rule{ID: "all", By: headgate.Global, Limit: window(1)},
		headgate.Rule{ID: "mails", By: []string{"user"}, Limit: window(2), Match: headgate.Match{Path: "/nowhere"}},
		headgate.Rule{ID: "off", By: []string{"user"}, Limit: window(1), Mode: headgate.Off})
	check := func(rule string) (headgate.Decision, error) {
		req := ann(1)
		req.Rule = rule
		return w.Check(t.Context(), req)
	}
	for i := range 3 {
		d, err := check("mails")
		if err != nil || d.Allowed != (i < 2) || len(d.Limits) != 1 || d.Limits[0].Rule != "mails" {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if d, err := check("off"); err != nil || !d.Allowed || len(d.Limits) != 0 {
		t.Errorf("%+v: %v", d, err)
	}
	d, err := check("nails")
	if !errors.Is(err, headgate.ErrUnknownRule) || !d.Allowed || err.Error() != `rule not found: "nails"` {
		t.Errorf("%+v: %v", d, err)
	}
	if d, err = w.Check(t.Context(), ann(1)); err != nil || !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("a request of one rule charged another: %+v: %v", d, err)
	}
}

// TestConcurrentReservations checks that the charges of many concurrent reservations exceed the limit by no more than their commits
// exceed the holds.
func TestConcurrentReservations(t *testing.T) {
	t.Parallel()
	const limit, callers = 10_000, 200
	w := newWorld(t, headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: window(limit)})
	var charged, excess, denied atomic.Int64
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for range 10 {
				expected := 1 + random.Int64N(100)
				r, err := w.Reserve(context.Background(), ann(expected), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if !r.Decision.Allowed {
					denied.Add(1)
					continue
				}
				actual := 1 + random.Int64N(120)
				if _, err := w.Commit(context.Background(), r.Token, headgate.Request{Cost: actual}); err != nil {
					t.Error(err)
				}
				charged.Add(actual)
				excess.Add(max(0, actual-expected))
			}
		})
	}
	done.Wait()
	if over := charged.Load() - limit; over > excess.Load() || denied.Load() == 0 {
		t.Errorf("%d charged, %d over the limit, commits were over by %d; %d denied", charged.Load(), over, excess.Load(), denied.Load())
	}
	w.expectLeft(t, max(0, limit-charged.Load()))
}

// TestReserveOnTooManyLimits checks that nothing stays reserved if the token is too large for the call that settles it.
func TestReserveOnTooManyLimits(t *testing.T) {
	t.Parallel()
	var rules []headgate.Rule
	for i := range 600 {
		rules = append(rules, headgate.Rule{
			ID: fmt.Sprintf("%s-%d", strings.Repeat("x", 100), i), Match: headgate.Match{Path: "/chat"}, By: []string{"user"}, Limit: headgate.PerHour(10),
		})
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	req := headgate.Request{Attributes: headgate.Attributes{"path": "/chat", "user": "ann"}, Cost: 4}
	if r, err := limiter.Reserve(t.Context(), req, time.Minute); err == nil || !strings.Contains(err.Error(), "match fewer rules") || r.Token != nil {
		t.Errorf("%v, a token of %d bytes", err, len(r.Token))
	}
	d, err := limiter.Peek(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range d.Limits {
		if l.Remaining != 10 {
			t.Fatalf("%s: %d remain", l.Rule, l.Remaining)
		}
	}
}
