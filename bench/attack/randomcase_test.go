package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// randomCase is a limiter with random rules on a random store, and a request that it denies.
type randomCase struct {
	limiter *headgate.Limiter
	rules   []headgate.Rule
	request headgate.Request
	denied  headgate.Decision
	// states are the states of all counters according to the specification.
	states map[counterKey]headgate.State
	// mismatches are the results that differ from the specification.
	mismatches []string
	// unavailable is whether the store no longer responds.
	unavailable bool
	// exact is whether the clock is manual, so that all responses agree to the microsecond.
	exact bool
	close func()
}

// counterKey identifies a counter of a subject.
type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// replay decides the same charges by the specification and compares the results with the store's.
func (m *randomCase) replay(d *headgate.Decision, now time.Time) {
	charges, states := make([]headgate.Charge, len(d.Limits)), make([]headgate.State, len(d.Limits))
	results := make([]headgate.Result, len(d.Limits))
	for i := range d.Limits {
		l := &d.Limits[i]
		rule := m.rules[slices.IndexFunc(m.rules, func(r headgate.Rule) bool { return r.ID == l.Rule })]
		charges[i] = headgate.Charge{
			Subject: l.Subject, Counter: l.Counter, Limit: l.Limit, Cost: l.Cost, Observe: !l.Enforced, MaxDelay: rule.MaxDelay,
		}
		if l.Origin == headgate.FromCandidate {
			charges[i].Twin = d.Limits[i-1].Counter
		}
		states[i] = m.states[counterKey{l.Subject, l.Counter}]
	}
	admitted := headgate.Decide(charges, states, results, now)
	if admitted != d.Allowed {
		m.mismatches = append(m.mismatches, fmt.Sprintf("allowed is %v, by the specification %v", d.Allowed, admitted))
	}
	for i := range d.Limits {
		l, want := &d.Limits[i], &results[i]
		m.states[counterKey{l.Subject, l.Counter}] = states[i]
		if l.Allowed != want.Allowed || l.Remaining != want.Remaining || l.RetryAfter != want.RetryAfter ||
			l.ResetAfter != want.ResetAfter || l.Delay != want.Delay || l.Granted != want.Granted {
			m.mismatches = append(m.mismatches, fmt.Sprintf("%s: %+v, by the specification %+v", l.Rule, l.Result, *want))
		}
	}
}

// manualClock is a clock that only the test advances.
type manualClock struct{ now time.Time }

// failingStore is a store that can become unavailable.
type failingStore struct {
	headgate.Store
	unavailable atomic.Bool
}

func (s *failingStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if !s.unavailable.Load() {
		return s.Store.Take(ctx, charges, results)
	}
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return headgate.ErrUnavailable
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// hotRule is the ID of the rule with a busy counter.
const hotRule = "hot"

// secretID is the prefix of the IDs of hidden rules.
const secretID = "classified"

// newRandomCase returns a case whose request is denied; false if none of its requests is. If hot, one of its limits is so busy that
// it is leased.
func newRandomCase(t *testing.T, r *rand.Rand, hot bool) (*randomCase, bool) {
	t.Helper()
	m := &randomCase{states: map[counterKey]headgate.State{}, close: func() {}}
	clock := &manualClock{time.Unix(1_900_000_000, r.Int64N(1e9)/1_000*1_000)}
	store := &failingStore{}
	world := oneOf(r, "bare", "bare", "wrapped", "outage", "bare outage")
	if hot {
		world = "wrapped"
	}
	if m.exact = world == "bare" || world == "bare outage"; m.exact {
		store.Store = memstore.New(memstore.Options{Clock: func() time.Time { return clock.now }})
	} else {
		store.Store = memstore.New(memstore.Options{})
	}
	var top headgate.Store = store
	if !m.exact {
		wrapped := storewrap.New(store, storewrap.Options{Log: quiet(), Deadline: 5 * time.Second, LocalShare: oneOf(r, 100, 20)})
		top, m.close = wrapped, wrapped.Close
	}
	for i := range 1 + r.IntN(4) {
		m.rules = append(m.rules, randomRule(r, i))
	}
	if hot {
		m.rules = append(m.rules, headgate.Rule{ID: hotRule, By: []string{"user"}, Limit: headgate.PerHour(1_000_000)})
	}
	set, err := headgate.Compile(m.rules...)
	if err != nil {
		t.Fatalf("%v: %+v", err, m.rules)
	}
	m.limiter = headgate.NewLimiter(top, set, headgate.Options{})
	m.request = headgate.Request{Attributes: headgate.Attributes{"user": "ada", "ip": "192.0.2.1"}, Cost: oneOf[int64](r, 0, 0, 0, 1, 2, 7)}
	if chance(r, 40) {
		m.request.Attributes["tier"] = oneOf(r, "gold", "tin")
	}
	for _, rule := range m.rules {
		if len(rule.By) == 1 && rule.Limit.Count > 0 && rule.ID != hotRule && chance(r, 20) {
			override := headgate.Override{
				Rule: rule.ID, Subject: headgate.Attributes{rule.By[0]: m.request.Attributes[rule.By[0]]}, Limit: randomLimit(r),
			}
			if err := m.limiter.Exceptions().Set(override); err != nil && m.request.Attributes[rule.By[0]] != "" {
				t.Fatal(err)
			}
		}
	}
	for until := time.Now().Add(10 * time.Second); hot && time.Now().Before(until); {
		d, err := m.limiter.Check(t.Context(), headgate.Request{Attributes: m.request.Attributes, Rule: hotRule})
		if err != nil {
			t.Fatal(err)
		}
		hot = d.Path != headgate.PathLease
	}
	denied := m.exhaust(t, r, store, world, clock)
	return m, denied
}

// exhaust sends the request until it is denied.
func (m *randomCase) exhaust(t *testing.T, r *rand.Rand, store *failingStore, world string, clock *manualClock) bool {
	t.Helper()
	fails := r.IntN(6)
	more := r.IntN(3) // denials after the first, from the cache
	for i := range 40 {
		store.unavailable.Store((world == "outage" || world == "bare outage") && i >= fails)
		d, err := m.limiter.Check(t.Context(), m.request)
		if err != nil && d.Path != headgate.PathFailed {
			t.Fatal(err)
		}
		m.unavailable = store.unavailable.Load()
		missing := slices.ContainsFunc(d.Limits, func(l headgate.LimitDecision) bool { return l.Missing != "" })
		if m.exact && !m.unavailable && d.Path == headgate.PathStore && !missing {
			m.replay(&d, clock.now)
		}
		if m.denied = d; !d.Allowed {
			if more--; more < 0 {
				return true
			}
			continue
		}
		clock.now = clock.now.Add(time.Duration(r.Int64N(int64(20 * time.Second))).Truncate(time.Microsecond))
	}
	return !m.denied.Allowed
}

func randomLimit(r *rand.Rand) headgate.Limit {
	limit := headgate.Limit{
		Algorithm: headgate.Algorithm(r.IntN(5)), Count: 1 + r.Int64N(9),
		Window: oneOf(r, 1500*time.Millisecond, time.Minute, time.Minute, time.Hour, 24*time.Hour),
	}
	switch {
	case limit.Algorithm == headgate.TokenBucket && chance(r, 40):
		limit.Burst = 1 + r.Int64N(20)
	case limit.Algorithm == headgate.FixedWindow && chance(r, 30):
		limit = headgate.Quota(limit.Count, oneOf(r, headgate.Day, headgate.Month), nil)
	case limit.Algorithm == headgate.FixedWindow:
		limit.Align = oneOf(r, headgate.FromFirst, headgate.OnClock, headgate.OnClockSpread)
	}
	return limit
}

func randomRule(r *rand.Rand, n int) headgate.Rule {
	rule := headgate.Rule{
		ID: fmt.Sprint("rule", n), By: oneOf(r, []string{}, []string{"user"}, []string{"ip"}, []string{"user"}),
		Expose: oneOf(r, headgate.ExposeAuto, headgate.ExposeAuto, headgate.ExposeAlways, headgate.ExposeNever),
		Mode:   oneOf(r, headgate.Enforce, headgate.Enforce, headgate.Enforce, headgate.Shadow), Strict: chance(r, 20),
		OnStoreFailure: oneOf(r, headgate.FailLocal, headgate.FailLocal, headgate.FailAllow, headgate.FailDeny),
	}
	if chance(r, 5) {
		rule.By, rule.OnMissing = []string{"tenant"}, headgate.DenyMissing
	}
	if rule.Expose == headgate.ExposeNever || rule.Expose == headgate.ExposeAuto && len(rule.By) == 0 {
		rule.ID = fmt.Sprint(secretID, n)
	}
	if chance(r, 70) {
		rule.Limit = randomLimit(r)
	} else {
		rule.Limits = map[string]headgate.Limit{"short": randomLimit(r), "long": randomLimit(r)}
	}
	if rule.Limit.Algorithm == headgate.LeakyBucket && rule.Limit.Count > 0 {
		rule.MaxDelay = oneOf(r, 0, 30*time.Second)
	}
	if rule.Limit.Count > 0 && chance(r, 30) {
		rule.Tiers = map[string]headgate.Plan{"gold": {Limit: randomLimit(r)}}
	}
	if rule.Limit.Count > 0 && chance(r, 30) {
		rule.Candidate = headgate.Plan{Limit: randomLimit(r)}
	}
	return rule
}
