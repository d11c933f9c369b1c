package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// world is a limiter on a store whose clock the test sets and that may fail.
type world struct {
	*headgate.Limiter
	store *outage
	now   time.Time
	t     *testing.T
}

// outage is a store that fails while fails returns an error.
type outage struct {
	*memstore.Store
	fails func() error
	calls atomic.Int64
}

func (o *outage) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	o.calls.Add(1)
	var err error
	if o.fails != nil {
		err = o.fails()
	}
	if err == nil {
		return o.Store.Take(ctx, charges, results)
	}
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}

func newWorld(t *testing.T, rules ...headgate.Rule) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	w.store = &outage{Store: memstore.New(memstore.Options{Clock: clock})}
	w.Limiter = headgate.NewLimiter(w.store, compile(t, rules...), headgate.Options{Clock: clock})
	return w
}

func compile(t testing.TB, rules ...headgate.Rule) *headgate.RuleSet {
	t.Helper()
	set, err := headgate.Compile(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// check checks a request given as "name=value name=value".
func (w *world) check(request string) headgate.Decision {
	w.t.Helper()
	d, err := w.Check(w.t.Context(), headgate.Request{Attributes: parseAttributes(request)})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// allowed returns how many of n such requests are allowed.
func (w *world) allowed(n int, request string) int {
	w.t.Helper()
	passed := 0
	for range n {
		if w.check(request).Allowed {
			passed++
		}
	}
	return passed
}

func parseAttributes(text string) headgate.Attributes {
	a := headgate.Attributes{}
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		a[name] = value
	}
	return a
}

// rule returns a rule by user with one limit.
func rule(change func(*headgate.Rule)) headgate.Rule {
	r := headgate.Rule{ID: "r", By: []string{"user"}, Limit: headgate.PerMinute(3)}
	if change != nil {
		change(&r)
	}
	return r
}

func (w *world) wantAllowed(want, of int, request string) {
	w.t.Helper()
	if got := w.allowed(of, request); got != want {
		w.t.Errorf("%d of %d requests %q were allowed, want %d", got, of, request, want)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		headgate.Rule{ID: "by-both", Match: headgate.Match{Path: "/both"}, By: []string{"user", "tenant"}, Limit: headgate.PerMinute(3)},
		headgate.Rule{ID: "by-client", Match: headgate.Match{Path: "/client"}, By: []string{"client"}, Limit: headgate.PerMinute(3)},
		headgate.Rule{ID: "all", Match: headgate.Match{Path: "/all"}, By: headgate.Global, Limit: headgate.PerMinute(3)},
	)
	w.wantAllowed(3, 5, "path=/both tenant=a user=b|c")
	w.wantAllowed(3, 5, "path=/both tenant=a|b user=c")
	w.wantAllowed(3, 5, "path=/both tenant=b|c user=a")
	w.wantAllowed(3, 5, "path=/both tenant=a")
	w.wantAllowed(0, 5, "path=/both tenant=a user=")
	w.wantAllowed(3, 5, "path=/both user=a")
	w.wantAllowed(3, 5, "path=/both")

	w.wantAllowed(3, 5, "path=/client api_key=x user=y ip=z")
	w.wantAllowed(0, 5, "path=/client api_key=x ip=other")
	w.wantAllowed(3, 5, "path=/client user=x ip=z")
	w.wantAllowed(3, 5, "path=/client ip=x")
	w.wantAllowed(3, 5, "path=/client")

	w.wantAllowed(2, 2, "path=/all ip=1")
	w.wantAllowed(1, 5, "path=/all ip=2")
}

// TestSubjectsAreShared checks that a rule by client and a rule by api_key share a subject, and so a key of the store, that the order
// of names does not matter, and that a secret changes subjects.
func TestSubjectsAreShared(t *testing.T) {
	t.Parallel()
	set := compile(t,
		headgate.Rule{ID: "1", By: []string{"client", "tenant"}, Limit: headgate.PerMinute(3)},
		headgate.Rule{ID: "2", By: []string{"tenant", "api_key"}, Limit: headgate.PerMinute(3)},
		headgate.Rule{ID: "3", By: []string{"api_key", "tenant"}, Limit: headgate.PerMinute(3)},
	)
	subject := func(secret string) headgate.Subject {
		l := headgate.NewLimiter(memstore.New(memstore.Options{}), set, headgate.Options{Secret: []byte(secret)})
		d, _ := l.Check(t.Context(), headgate.Request{Attributes: parseAttributes("tenant=t api_key=k")})
		for _, limit := range d.Limits {
			if limit.Subject != d.Limits[0].Subject {
				t.Errorf("%s has subject %s, %s has %s", limit.Rule, limit.Subject, d.Limits[0].Rule, d.Limits[0].Subject)
			}
		}
		return d.Limits[0].Subject
	}
	if got, want := subject(""), headgate.SubjectOf("api_key", headgate.HashKey("k"), "tenant", "t"); got != want {
		t.Errorf("subject %s, want SubjectOf's %s", got, want)
	}
	if a, b, c := subject(""), subject("x"), subject("y"); a == b || b == c || a == c {
		t.Error("a secret does not change the subject")
	}
}

// TestSubjectCache checks the cache of subjects with names of equal length and the same value, which collide, and with more values
// than its capacity.
func TestSubjectCache(t *testing.T) {
	t.Parallel()
	l, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "1", By: []string{"user"}, Limit: headgate.PerMinute(3)},
		headgate.Rule{ID: "2", By: []string{"host"}, Limit: headgate.PerMinute(3)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for i := range 10_000 {
			value := strconv.Itoa(i) + strings.Repeat("x", i%200) // the longest are not cached
			d, _ := l.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": value, "host": value}})
			for j, name := range []string{"user", "host"} {
				if want := headgate.SubjectOf(name, value); d.Limits[j].Subject != want {
					t.Fatalf("%s %s is subject %s, want %s", name, value, d.Limits[j].Subject, want)
				}
			}
		}
	}
}

func TestOnMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		rule(func(r *headgate.Rule) { r.ID, r.Match.Path, r.OnMissing = "share", "/share", headgate.ShareMissing }),
		rule(func(r *headgate.Rule) { r.ID, r.Match.Path, r.OnMissing = "skip", "/skip", headgate.SkipMissing }),
		rule(func(r *headgate.Rule) { r.ID, r.Match.Path, r.OnMissing = "deny", "/deny", headgate.DenyMissing }),
		rule(func(r *headgate.Rule) {
			r.ID, r.Match.Path, r.OnMissing, r.Mode = "observed", "/observed", headgate.DenyMissing, headgate.Shadow
		}),
	)
	w.wantAllowed(3, 5, "path=/share ip=1")
	w.wantAllowed(0, 5, "path=/share ip=2")
	w.wantAllowed(3, 5, "path=/share user=ann")
	w.wantAllowed(5, 5, "path=/skip")
	w.wantAllowed(3, 5, "path=/skip user=ann")
	w.wantAllowed(3, 5, "path=/deny user=ann")
	d := w.check("path=/deny")
	if d.Allowed || d.Path != headgate.PathRules || d.RetryAfter != headgate.Never || d.DeniedBy().Missing != "user" {
		t.Errorf("without a user: %+v", d)
	}
	if d := w.check("path=/observed"); !d.Allowed || d.Limits[0].Granted != 0 || !d.Limits[0].WouldDeny() || d.Limits[0].Missing != "user" {
		t.Errorf("in shadow, without a user: %+v", d)
	}
}

func TestTiersAndOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{
		ID: "r", By: []string{"user"},
		Limits: map[string]headgate.Limit{"minute": headgate.PerMinute(3), "day": headgate.PerDay(100)},
		Tiers: map[string]headgate.Plan{
			"pro":  {Limits: map[string]headgate.Limit{"minute": headgate.PerMinute(5)}},
			"slow": {Limits: map[string]headgate.Limit{"minute": {Algorithm: headgate.SlidingWindow, Count: 2, Window: time.Minute}}},
		},
	})
	w.wantAllowed(3, 9, "user=a")
	w.wantAllowed(5, 9, "user=b tier=pro")
	w.wantAllowed(2, 9, "user=c tier=slow")
	w.wantAllowed(3, 9, "user=d tier=unheard-of")

	friday := w.now.Add(time.Hour)
	set := func(o headgate.Override) {
		t.Helper()
		o.Rule = "r"
		if err := w.Exceptions().Set(o); err != nil {
			t.Fatal(err)
		}
	}
	set(headgate.Override{
		Subject: headgate.Attributes{"user": "e"}, Expires: friday,
		Limits: map[string]headgate.Limit{"minute": headgate.PerMinute(7)},
	})
	set(headgate.Override{
		Subject: headgate.Attributes{"user": "f"},
		Limits:  map[string]headgate.Limit{"day": headgate.PerDay(1)},
	})
	w.wantAllowed(7, 9, "user=e tier=pro")
	w.wantAllowed(1, 9, "user=f tier=pro")
	w.now = friday
	w.wantAllowed(5, 9, "user=e tier=pro")

	// The client used 3 of 3 and gets a limit of 10: 7 more at once, not 10.
	w.wantAllowed(3, 9, "user=g")
	grant := headgate.Override{Rule: "r", Subject: headgate.Attributes{"user": "g"}, Limits: map[string]headgate.Limit{"minute": headgate.PerMinute(10)}}
	set(grant)
	w.wantAllowed(7, 9, "user=g")
	w.Exceptions().Unset(grant)
	w.wantAllowed(0, 9, "user=g")
}

func TestCost(t *testing.T) {
	t.Parallel()
	cost := func(c headgate.Cost, times int64, rows string) int64 {
		w := newWorld(t, rule(func(r *headgate.Rule) { r.Cost, r.Limit = c, headgate.PerMinute(headgate.MaxCost/60) }))
		d, _ := w.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "u", "header.x-rows": rows}, Cost: times})
		return d.Limits[0].Cost
	}
	rows := headgate.Cost{From: "header.x-rows", Default: 7, Min: 2, Max: 100}
	for _, test := range []struct {
		cost  headgate.Cost
		times int64
		rows  string
		want  int64
	}{
		{headgate.Cost{}, 0, "", 1},
		{headgate.Cost{}, 5, "", 5},
		{headgate.Cost{Default: 3}, 5, "9", 15},
		{rows, 0, "", 7},
		{rows, 0, "50", 50},
		{rows, 2, "50", 100},
		{rows, 0, "101", 100},
		{rows, 0, "1", 2},
		{rows, 0, "0", 2},
		{rows, 0, "-5", 2},
		{rows, 0, "5.5", 7},
		{rows, 0, "many", 7},
		{rows, 0, "99999999999999999999", 100},
		{headgate.Cost{From: "header.x-rows"}, 0, "0", 1},
		{headgate.Cost{From: "header.x-rows"}, 0, "2000000000", headgate.MaxCost},
		{rows, headgate.MaxCost, "50", headgate.MaxCost},
		{headgate.Cost{}, -3, "", 1},
	} {
		if got := cost(test.cost, test.times, test.rows); got != test.want {
			t.Errorf("cost %+v × %d of a request with %q: %d, want %d", test.cost, test.times, test.rows, got, test.want)
		}
	}
}

func TestShadowDeniesNothing(t *testing.T) {
	t.Parallel()
	shadow := rule(func(r *headgate.Rule) { r.Mode = headgate.Shadow })
	for name, set := range map[string]*headgate.RuleSet{
		"rule in shadow":  compile(t, shadow),
		"all in shadow":   compile(t, rule(nil)).WithMode(headgate.Shadow),
		"both in shadow":  compile(t, shadow).WithMode(headgate.Shadow),
		"mode set twice ": compile(t, rule(nil)).WithMode(headgate.Off).WithMode(headgate.Shadow),
	} {
		w := newWorld(t)
		w.SetRules(set)
		would := 0
		for range 5 {
			d := w.check("user=ann")
			if !d.Allowed || d.DeniedBy() != nil || d.RetryAfter != 0 || d.Shown() != nil {
				t.Errorf("%s: %+v", name, d)
			}
			if d.Limits[0].WouldDeny() {
				would++
			}
		}
		if would != 2 {
			t.Errorf("%s: would have denied %d of 5, want 2", name, would)
		}
	}
	w := newWorld(t, rule(nil))
	w.SetRules(w.Rules().WithMode(headgate.Off))
	if d := w.check("user=ann"); !d.Allowed || d.Path != headgate.PathNone || len(d.Limits) != 0 {
		t.Errorf("with all rules off: %+v", d)
	}
}

// TestCandidate checks that a candidate above the live limit counts what it would have allowed, and one below what it would have
// denied.
func TestCandidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ live, candidate, allowed, wouldAdmit int }{{3, 6, 3, 6}, {6, 3, 6, 3}} {
		w := newWorld(t, rule(func(r *headgate.Rule) {
			r.Limit = headgate.PerMinute(int64(test.live))
			r.Candidate = headgate.Plan{Limit: headgate.PerMinute(int64(test.candidate))}
		}))
		allowed, would := 0, 0
		for range 10 {
			d := w.check("user=ann")
			if len(d.Limits) != 2 || d.Limits[1].Origin != headgate.FromCandidate || d.Limits[1].Exposed || d.Limits[1].Enforced {
				t.Fatalf("%+v", d)
			}
			if d.Allowed {
				allowed++
			}
			if !d.Limits[1].WouldDeny() {
				would++
			}
		}
		if allowed != test.allowed || would != test.wouldAdmit {
			t.Errorf("limit %d, candidate %d: allowed %d and would have allowed %d", test.live, test.candidate, allowed, would)
		}
	}
	// The candidate is for the rule's own limit, not for that of a tier or an override.
	w := newWorld(t, rule(func(r *headgate.Rule) {
		r.Candidate = headgate.Plan{Limit: headgate.PerMinute(1)}
		r.Tiers = map[string]headgate.Plan{"pro": {Limit: headgate.PerMinute(9)}}
	}))
	if d := w.check("user=bob tier=pro"); len(d.Limits) != 1 {
		t.Errorf("%+v", d.Limits)
	}
}

func TestEnforcePercent(t *testing.T) {
	t.Parallel()
	set := compile(t,
		rule(func(r *headgate.Rule) { r.ID, r.EnforcePercent, r.Limit = "a", 10, headgate.PerHour(1) }),
		rule(func(r *headgate.Rule) { r.ID, r.EnforcePercent, r.Limit = "b", 10, headgate.PerHour(1) }),
	)
	const users = 20_000
	enforcedOn := func(node *headgate.Limiter) (a, both int, who []bool) {
		for i := range users {
			req := headgate.Request{Attributes: headgate.Attributes{"user": fmt.Sprint("user-", i)}}
			if d, _ := node.Check(t.Context(), req); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			d, _ := node.Check(t.Context(), req)
			who = append(who, d.Limits[0].Denies())
			if d.Limits[0].Denies() {
				a++
				if d.Limits[1].Denies() {
					both++
				}
			}
			if d.Allowed != (!d.Limits[0].Denies() && !d.Limits[1].Denies()) || !d.Limits[0].WouldDeny() {
				t.Fatalf("%+v", d)
			}
		}
		return a, both, who
	}
	a, both, who := enforcedOn(headgate.NewLimiter(memstore.New(memstore.Options{}), set, headgate.Options{}))
	_, _, again := enforcedOn(headgate.NewLimiter(memstore.New(memstore.Options{}), set, headgate.Options{}))
	if !slices.Equal(who, again) {
		t.Error("two nodes enforce on different subjects")
	}
	// 10 % with a standard deviation of 0.2 %; two rules select independently, so that 1 % are enforced by both.
	if a < users*9/100 || a > users*11/100 || both < users/200 || both > users/66 {
		t.Errorf("of %d users %d are enforced on, %d by both rules", users, a, both)
	}
	// A higher percentage includes the subjects of a lower one.
	more := compile(t, rule(func(r *headgate.Rule) { r.ID, r.EnforcePercent, r.Limit = "a", 30, headgate.PerHour(1) }))
	node := headgate.NewLimiter(memstore.New(memstore.Options{}), more, headgate.Options{})
	for i := range users {
		d, _ := node.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": fmt.Sprint("user-", i)}})
		if who[i] && !d.Limits[0].Enforced {
			t.Fatalf("user %d was enforced on at 10 %% and is not at 30 %%", i)
		}
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		headgate.Rule{ID: "wide", By: []string{"ip"}, Limit: headgate.PerMinute(100)},
		headgate.Rule{ID: "narrow", By: []string{"user"}, Limit: headgate.PerHour(10)},
		headgate.Rule{ID: "global", By: headgate.Global, Limit: headgate.PerDay(14)},
		headgate.Rule{ID: "hidden", By: []string{"ip"}, Limit: headgate.PerDay(50), Expose: headgate.ExposeNever},
		headgate.Rule{ID: "shadow", By: []string{"ip"}, Limit: headgate.PerDay(1), Mode: headgate.Shadow},
	)
	for range 10 {
		if d := w.check("ip=1 user=ann"); !d.Allowed || d.Shown().Rule != "narrow" {
			t.Fatalf("%v, shown %+v", d.Allowed, d.Shown())
		}
	}
	if d := w.check("ip=1 user=ann"); d.Allowed || d.DeniedBy().Rule != "narrow" || d.Shown().Rule != "narrow" || d.RetryAfter != 6*time.Minute {
		t.Errorf("denied by %+v, %s", d.DeniedBy(), d.RetryAfter)
	}
	w.allowed(4, "ip=2 user=bob")
	d := w.check("ip=3 user=cid")
	if d.Allowed || d.DeniedBy().Rule != "global" || d.Shown().Rule != "global" {
		t.Errorf("denied by %+v, shown %+v", d.DeniedBy(), d.Shown())
	}
	if d := w.check("ip=1 user=ann"); d.DeniedBy().Rule != "global" || d.Shown().Rule != "global" {
		t.Errorf("denied by %+v, shown %+v", d.DeniedBy(), d.Shown())
	}
	// If two limits deny, the one with the longer wait is shown, in either order.
	for _, order := range [][]string{{"long", "short"}, {"short", "long"}} {
		windows := map[string]time.Duration{"long": 2 * time.Hour, "short": time.Hour}
		w := newWorld(t,
			rule(func(r *headgate.Rule) { r.ID, r.Limit = order[0], headgate.Per(1, windows[order[0]]) }),
			rule(func(r *headgate.Rule) { r.ID, r.Limit = order[1], headgate.Per(1, windows[order[1]]) }),
		)
		w.check("user=ann")
		if d := w.check("user=ann"); d.Shown().Rule != "long" || d.DeniedBy().Rule != "long" || d.RetryAfter != 2*time.Hour {
			t.Errorf("%v: shown %+v", order, d.Shown())
		}
	}
}

func TestPriority(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		headgate.Rule{ID: "default", By: []string{"api_key"}, Limit: headgate.PerMinute(1), Priority: 1},
		headgate.Rule{ID: "premium", By: []string{"api_key"}, Limit: headgate.PerMinute(5), Priority: 10, Match: headgate.Match{
			Attributes: map[string]headgate.Pattern{"claim.plan": headgate.OneOf("premium")},
		}},
		headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: headgate.PerMinute(20), Priority: 1},
		headgate.Rule{ID: "always", By: []string{"api_key"}, Limit: headgate.PerMinute(30)},
	)
	names := func(request string) string {
		var ids []string
		for _, l := range w.check(request).Limits {
			ids = append(ids, l.Rule)
		}
		return strings.Join(ids, " ")
	}
	if got := names("api_key=a ip=1"); got != "default ip always" {
		t.Error(got)
	}
	if got := names("api_key=a ip=1 claim.plan=premium"); got != "premium ip always" {
		t.Error(got)
	}
}

// failing is a store with one unavailable shard.
type failing struct {
	headgate.Store
	dead    map[headgate.Subject]error
	refunds int
}

func (f *failing) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	var alive []headgate.Charge
	var at []int
	var err error
	for i, c := range charges {
		if c.Refund.Units > 0 {
			f.refunds++
		}
		if problem := f.dead[c.Subject]; problem != nil {
			results[i] = headgate.Result{Err: problem}
			err = problem
			continue
		}
		alive, at = append(alive, c), append(at, i)
	}
	some := make([]headgate.Result, len(alive))
	if e := f.Store.Take(ctx, alive, some); e != nil {
		return e
	}
	for i, r := range some {
		results[at[i]] = r
	}
	return err
}

func TestStoreFailure(t *testing.T) {
	t.Parallel()
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 5, Window: time.Hour}
	for _, test := range []struct {
		name    string
		policy  headgate.OnStoreFailure
		mode    headgate.Mode
		allowed bool
		refunds int
	}{
		{"local without a store around the store", headgate.FailLocal, headgate.Enforce, true, 0},
		{"allow", headgate.FailAllow, headgate.Enforce, true, 0},
		{"deny", headgate.FailDeny, headgate.Enforce, false, 1},
		{"deny in shadow", headgate.FailDeny, headgate.Shadow, true, 0},
	} {
		store := &failing{
			Store: memstore.New(memstore.Options{}),
			dead:  map[headgate.Subject]error{headgate.SubjectOf("ip", "1"): headgate.ErrUnavailable},
		}
		limiter, err := headgate.New(store,
			headgate.Rule{ID: "dead", By: []string{"ip"}, Limit: window, OnStoreFailure: test.policy, Mode: test.mode},
			headgate.Rule{ID: "alive", By: []string{"user"}, Limit: window},
		)
		if err != nil {
			t.Fatal(err)
		}
		req := headgate.Request{Attributes: parseAttributes("ip=1 user=ann")}
		d, err := limiter.Check(t.Context(), req)
		if err != nil || d.Allowed != test.allowed || d.Path != headgate.PathFailed || store.refunds != test.refunds {
			t.Errorf("%s: %v, %d refunds, %+v", test.name, err, store.refunds, d)
		}
		if !errors.Is(d.Limits[0].Err, headgate.ErrUnavailable) {
			t.Errorf("%s: %v", test.name, d.Limits[0].Err)
		}
		// Charges on other shards are recorded, or refunded.
		store.dead = nil
		d, _ = limiter.Check(t.Context(), headgate.Request{Attributes: parseAttributes("ip=2 user=ann")})
		want := int64(3)
		if !test.allowed {
			want = 4
		}
		if d.Limits[1].Remaining != want || d.Path != headgate.PathStore {
			t.Errorf("%s: %d left, want %d", test.name, d.Limits[1].Remaining, want)
		}
	}
}

// recorder records the charges.
type recorder struct {
	headgate.Store
	charges []headgate.Charge
}

func (r *recorder) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	r.charges = slices.Clone(charges)
	return r.Store.Take(ctx, charges, results)
}

func TestChargesCarryTheRule(t *testing.T) {
	t.Parallel()
	store := &recorder{Store: memstore.New(memstore.Options{})}
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second}
	limiter, err := headgate.New(store,
		headgate.Rule{ID: "a", By: headgate.Global, Limit: leaky, MaxDelay: time.Second, Strict: true, Critical: true, OnStoreFailure: headgate.FailDeny},
		headgate.Rule{ID: "b", By: headgate.Global, Limit: headgate.PerMinute(1)},
	)
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := limiter.Check(t.Context(), headgate.Request{}); !d.Allowed {
		t.Errorf("%+v", d)
	}
	d, _ := limiter.Check(t.Context(), headgate.Request{})
	if d.Allowed || d.Delay != 0 {
		t.Errorf("a denied request has a delay of %s", d.Delay)
	}
	a, b := store.charges[0], store.charges[1]
	if !a.Strict || !a.Critical || a.OnStoreFailure != headgate.FailDeny || a.MaxDelay != time.Second || b.Strict || b.Critical || b.OnStoreFailure != headgate.FailLocal {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second}
	w := newWorld(t, headgate.Rule{ID: "a", By: headgate.Global, Limit: leaky, MaxDelay: 2 * time.Second})
	for i := range 3 {
		if d := w.check(""); !d.Allowed || d.Delay != time.Duration(i)*time.Second {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	if d := w.check(""); d.Allowed {
		t.Errorf("%+v", d)
	}
}
