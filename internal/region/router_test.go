package region

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

var errDown = fmt.Errorf("%w: down", headgate.ErrUnavailable)

// fakeRegion is the store of a region, which counts what it gets and can be down.
type fakeRegion struct {
	*memstore.Store
	mu      sync.Mutex
	calls   [][]headgate.Charge
	down    bool
	waiting chan struct{} // if not nil, calls wait until it is closed
}

func (f *fakeRegion) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	f.mu.Lock()
	f.calls = append(f.calls, slices.Clone(charges))
	down, waiting := f.down, f.waiting
	f.mu.Unlock()
	if waiting != nil {
		<-waiting
	}
	if down {
		for i := range results {
			results[i] = headgate.Result{Err: errDown}
		}
		return errDown
	}
	return f.Store.Take(ctx, charges, results)
}

func (f *fakeRegion) Namespace() string                             { return "test" }
func (f *fakeRegion) SigningKeys(context.Context) ([][]byte, error) { return [][]byte{{1}}, nil }

// callCount returns the number of calls.
func (f *fakeRegion) callCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// routed is a router of region eu, with the stores of all regions.
type routed struct {
	*Router
	of map[string]*fakeRegion
}

var routedMembers = []Member{{"ap", 1}, {"eu", 1}, {"us", 1}}

func newRouted(t *testing.T) *routed {
	t.Helper()
	w, homes := &routed{of: map[string]*fakeRegion{}}, map[string]headgate.Store{}
	for _, m := range routedMembers {
		w.of[m.Name] = &fakeRegion{Store: memstore.New(memstore.Options{})}
		if m.Name != "eu" {
			homes[m.Name] = w.of[m.Name]
		}
	}
	w.Router = NewRouter(w.of["eu"], NewShares(routedMembers, "eu"), homes)
	t.Cleanup(w.Close)
	return w
}

// subjectIn returns a subject with a home.
func subjectIn(home string) headgate.Subject {
	s := NewShares(routedMembers, home)
	for i := 0; ; i++ {
		if subject := headgate.SubjectOf(strconv.Itoa(i)); s.Home(subject) == home {
			return subject
		}
	}
}

// hourly returns a charge of one unit of an hourly limit on a subject, which is decided in its home if home is not "".
func hourly(home string, counter headgate.Counter, count int64) headgate.Charge {
	c := headgate.Charge{
		Subject: headgate.SubjectOf("here"), Counter: counter, Cost: 1,
		Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Window: time.Hour},
	}
	if home != "" {
		c.Subject, c.Regions = subjectIn(home), headgate.HomeRegion
	}
	return c
}

// take decides charges, and returns a letter for each of them: yes, no, error, or - if it was not decided.
func (w *routed) take(t *testing.T, charges ...headgate.Charge) string {
	t.Helper()
	verdicts, results := "", make([]headgate.Result, len(charges))
	err := w.Take(t.Context(), charges, results)
	w.undone.Wait()
	for i := range results {
		switch r := &results[i]; {
		case r.Err != nil:
			verdicts += "e"
		case r.Path == headgate.PathNone:
			verdicts += "-"
		case r.Allowed:
			verdicts += "y"
		default:
			verdicts += "n"
		}
	}
	if failed := slices.Contains([]byte(verdicts), 'e'); failed != (err != nil) || failed && !errors.Is(err, errDown) {
		t.Errorf("%s: %v", verdicts, err)
	}
	return verdicts
}

// used returns how many units of a charge's counter a region has recorded.
func (w *routed) used(t *testing.T, region string, c headgate.Charge) int64 {
	t.Helper()
	c.Cost, c.Observe, c.Force, c.Refund = 0, true, false, headgate.Receipt{}
	var results [1]headgate.Result
	if err := w.of[region].Store.Take(t.Context(), []headgate.Charge{c}, results[:]); err != nil {
		t.Fatal(err)
	}
	return c.Limit.Count - results[0].Remaining
}

// TestRouterTargets checks where charges are decided.
func TestRouterTargets(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	for _, home := range []string{"ap", "eu", "us"} {
		if got := w.take(t, hourly(home, 1, 5)); got != "y" {
			t.Errorf("%s: %s", home, got)
		}
	}
	each := hourly("us", 1, 5)
	each.Regions = headgate.EachRegion
	w.take(t, each)
	for name, want := range map[string]int{"ap": 1, "eu": 2, "us": 1} {
		if got := w.of[name].callCount(); got != want {
			t.Errorf("%s decided %d charges, want %d", name, got, want)
		}
	}
	if got := w.used(t, "eu", each); got != 1 {
		t.Errorf("%d units of a charge without a home", got)
	}
}

// TestRouterAllOrNothing checks that a request is charged in all regions, or in none.
func TestRouterAllOrNothing(t *testing.T) {
	t.Parallel()
	local, us, ap := hourly("", 1, 3), hourly("us", 2, 3), hourly("ap", 3, 3)
	for _, test := range []struct {
		name    string
		full    string // the region whose counter is used up
		want    string
		charges []headgate.Charge
	}{
		{"none", "", "yyy", []headgate.Charge{local, us, ap}},
		{"here", "eu", "n--", []headgate.Charge{local, us, ap}},
		{"here, in another order", "eu", "--n", []headgate.Charge{us, ap, local}},
		{"home", "us", "yny", []headgate.Charge{local, us, ap}},
		{"only homes", "ap", "yn", []headgate.Charge{us, ap}},
	} {
		w := newRouted(t)
		counters := map[string]headgate.Charge{"eu": local, "us": us, "ap": ap}
		if test.full != "" {
			for range 3 {
				w.take(t, counters[test.full])
			}
		}
		if got := w.take(t, test.charges...); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		for name, c := range counters {
			want := int64(0)
			switch test.full {
			case "":
				want = 1
			case name:
				want = 3
			}
			if got := w.used(t, name, c); got != want {
				t.Errorf("%s: %s has %d units, want %d", test.name, name, got, want)
			}
		}
	}
}

// TestRouterResultsOfUndone checks that results show no units that were given back.
func TestRouterResultsOfUndone(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	local, us := hourly("", 1, 9), hourly("us", 2, 1)
	w.take(t, us)
	charges, results := []headgate.Charge{local, local, us}, make([]headgate.Result, 3)
	if err := w.Take(t.Context(), charges, results); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if r := results[i]; !r.Allowed || r.Granted != 0 || r.Receipt != (headgate.Receipt{}) || r.Remaining != 9 {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// TestRouterAlways checks that charges which are always recorded are recorded even if the request is denied in another region.
func TestRouterAlways(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	local, us, forced := hourly("", 1, 1), hourly("us", 2, 9), hourly("us", 3, 9)
	forced.Force, forced.Cost = true, 4
	w.take(t, local)
	if got := w.take(t, local, us, forced); got != "n-y" {
		t.Errorf("%s", got)
	}
	if a, b := w.used(t, "us", us), w.used(t, "us", forced); a != 0 || b != 4 {
		t.Errorf("%d units and %d forced ones", a, b)
	}
}

// TestRouterObserving checks observing charges: one that is counted elsewhere is not recorded if the request is denied, and one on the counter that denies is.
func TestRouterObserving(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	local, us, shadow, candidate := hourly("", 1, 9), hourly("us", 2, 1), hourly("", 3, 9), hourly("us", 4, 9)
	shadow.Observe, candidate.Observe, candidate.Twin = true, true, us.Counter
	w.take(t, us)
	if got := w.take(t, local, shadow, us, candidate); got != "yyny" {
		t.Errorf("%s", got)
	}
	if a, b := w.used(t, "eu", shadow), w.used(t, "us", candidate); a != 0 || b != 1 {
		t.Errorf("shadow limit has %d units, candidate %d", a, b)
	}
	full := shadow
	full.Limit.Count = 0
	if got := w.take(t, full, hourly("us", 5, 9)); got != "ny" {
		t.Errorf("an observing charge denies: %s", got)
	}
}

// TestRouterPeek checks that a request with a charge that cannot fit is decided in all regions, and recorded in none.
func TestRouterPeek(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	local, us := hourly("", 1, 9), hourly("us", 2, 9)
	vetoes := []headgate.Charge{hourly("", 3, 1), hourly("us", 3, 1)}
	vetoes[0].Cost, vetoes[1].Cost = headgate.MaxCost, headgate.MaxCost
	if got := w.take(t, local, us, vetoes[0], vetoes[1]); got != "yynn" {
		t.Errorf("%s", got)
	}
	if a, b := w.used(t, "eu", local), w.used(t, "us", us); a != 0 || b != 0 {
		t.Errorf("%d and %d units", a, b)
	}
}

// TestRouterUnavailable checks that only the charges of a home that is down fail, and that nothing is sent to a home if this region will deny.
func TestRouterUnavailable(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	local, us, ap := hourly("", 1, 9), hourly("us", 2, 9), hourly("ap", 3, 9)
	w.of["us"].down = true
	if got := w.take(t, local, us, ap); got != "yey" {
		t.Errorf("%s", got)
	}
	before := w.of["ap"].callCount()
	w.of["eu"].down, local.OnStoreFailure = true, headgate.FailDeny
	if got := w.take(t, local, us, ap); got != "e--" || w.of["ap"].callCount() != before {
		t.Errorf("%s", got)
	}
	local.OnStoreFailure = headgate.FailAllow
	if got := w.take(t, local, ap); got != "ey" {
		t.Errorf("%s", got)
	}
}

// TestRouterDoesNotWaitForRefunds checks that a denial does not wait for a refund in another region, and Close does.
func TestRouterDoesNotWaitForRefunds(t *testing.T) {
	t.Parallel()
	w := newRouted(t)
	us, ap := hourly("us", 1, 1), hourly("ap", 2, 9)
	w.take(t, us)
	results := make([]headgate.Result, 2)
	hold := make(chan struct{})
	w.of["us"].waiting = hold // us decides only after ap has
	go func() {
		for w.of["ap"].callCount() == 0 {
			time.Sleep(time.Millisecond)
		}
		w.of["ap"].mu.Lock()
		w.of["ap"].waiting = make(chan struct{})
		w.of["ap"].mu.Unlock()
		close(hold)
	}()
	if err := w.Take(t.Context(), []headgate.Charge{us, ap}, results); err != nil || results[0].Allowed || results[1].Granted != 0 {
		t.Fatalf("%+v: %v", results, err)
	}
	close(w.of["ap"].waiting)
	w.Close()
	if got := w.used(t, "ap", ap); got != 0 {
		t.Errorf("%d units", got)
	}
}

// TestHomeStore checks that a region decides for others only if it is the home, and never by its own rules for outages.
func TestHomeStore(t *testing.T) {
	t.Parallel()
	store := &fakeRegion{Store: memstore.New(memstore.Options{})}
	h := NewHomeStore(store, NewShares(routedMembers, "eu"))
	results := make([]headgate.Result, 1)
	own, other := hourly("eu", 1, 5), hourly("us", 1, 5)
	if err := h.Take(t.Context(), []headgate.Charge{own}, results); err != nil || !results[0].Allowed {
		t.Errorf("%+v: %v", results, err)
	}
	if c := store.calls[0][0]; c.OnStoreFailure != headgate.FailDeny || c.Regions != headgate.HomeRegion {
		t.Errorf("%+v", c)
	}
	if err := h.Take(t.Context(), []headgate.Charge{own, other}, make([]headgate.Result, 2)); !errors.Is(err, ErrNotHome) || len(store.calls) != 1 {
		t.Errorf("%v", err)
	}
}

// TestRouterAllocatesNothing checks that charges of this region cost no allocation.
func TestRouterAllocatesNothing(t *testing.T) {
	w := newRouted(t)
	r := NewRouter(nothing{w.of["eu"]}, w.shares, nil)
	charges, results := []headgate.Charge{hourly("", 1, 5), hourly("eu", 2, 5)}, make([]headgate.Result, 2)
	if n := testing.AllocsPerRun(100, func() { _ = r.Take(t.Context(), charges, results) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// nothing is a store that does nothing.
type nothing struct{ *fakeRegion }

func (nothing) Take(context.Context, []headgate.Charge, []headgate.Result) error { return nil }
