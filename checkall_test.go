package headgate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// TestCheckAll checks that several requests are charged together or not at all, each with its own decision.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	hourly := func(n int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: time.Hour}
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "user", By: []string{"user"}, Match: headgate.Match{Method: "USER"}, Limit: hourly(3)},
		headgate.Rule{ID: "tenant", By: []string{"tenant"}, Match: headgate.Match{Method: "TENANT"}, Limit: hourly(10), OnMissing: headgate.DenyMissing},
	)
	if err != nil {
		t.Fatal(err)
	}
	user := headgate.Request{Attributes: headgate.Attributes{"method": "USER", "user": "ann"}}
	tenant := headgate.Request{Attributes: headgate.Attributes{"method": "TENANT", "tenant": "acme"}}
	unlimited := headgate.Request{Attributes: headgate.Attributes{"method": "NONE"}}
	lacking := headgate.Request{Attributes: headgate.Attributes{"method": "TENANT"}}
	checkAll := func(requests ...headgate.BatchRequest) []headgate.Decision {
		t.Helper()
		decisions, err := limiter.CheckAll(t.Context(), requests)
		if err != nil || len(decisions) != len(requests) {
			t.Fatalf("%+v: %v", decisions, err)
		}
		return decisions
	}
	left := func(req headgate.Request) int64 {
		t.Helper()
		d, err := limiter.Peek(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return d.Limits[0].Remaining
	}
	expect := func(what string, ofUser, ofTenant int64) {
		t.Helper()
		if u, n := left(user), left(tenant); u != ofUser || n != ofTenant {
			t.Errorf("%s: %d and %d are left, want %d and %d", what, u, n, ofUser, ofTenant)
		}
	}
	for i := range int64(3) {
		d := checkAll(headgate.BatchRequest{Request: user}, headgate.BatchRequest{Request: tenant}, headgate.BatchRequest{Request: unlimited})
		if !d[0].Allowed || !d[1].Allowed || !d[2].Allowed || d[0].Limits[0].Rule != "user" || d[1].Limits[0].Rule != "tenant" ||
			d[0].Limits[0].Remaining != 2-i || len(d[2].Limits) != 0 || d[2].Path != headgate.PathNone || d[0].Path != headgate.PathStore {
			t.Fatalf("%+v", d)
		}
	}
	expect("charged", 0, 7)
	d := checkAll(headgate.BatchRequest{Request: tenant}, headgate.BatchRequest{Request: user})
	if !d[0].Allowed || d[1].Allowed || d[1].RetryAfter <= 59*time.Minute {
		t.Errorf("%+v", d)
	}
	expect("one is denied", 0, 7)
	if d := checkAll(headgate.BatchRequest{Request: tenant}, headgate.BatchRequest{Request: user, Peek: true}); d[1].Allowed {
		t.Errorf("%+v", d)
	}
	expect("a look denies", 0, 7)
	if d := checkAll(headgate.BatchRequest{Request: user}, headgate.BatchRequest{Request: tenant, Credit: true}); d[0].Allowed || !d[1].Allowed {
		t.Errorf("%+v", d)
	}
	expect("a credit is given in any case", 0, 8)
	user.Attributes["user"] = "bob"
	if d := checkAll(headgate.BatchRequest{Request: user}, headgate.BatchRequest{Request: lacking}, headgate.BatchRequest{Request: tenant}); !d[0].Allowed || d[1].Allowed || d[1].Limits[0].Missing != "tenant" {
		t.Errorf("%+v", d)
	}
	expect("something is missing", 3, 8)
	if d := checkAll(headgate.BatchRequest{Request: user}, headgate.BatchRequest{Request: tenant, Peek: true}); !d[0].Allowed || !d[1].Allowed {
		t.Errorf("%+v", d)
	}
	expect("a look charges nothing", 2, 8)
	if _, err := limiter.CheckAll(t.Context(), []headgate.BatchRequest{{Request: headgate.Request{Rule: "none"}}}); !errors.Is(err, headgate.ErrUnknownRule) {
		t.Errorf("%v", err)
	}
}

// TestCallerLimit checks that a caller gets the limit that it requests if the rule permits it, capped at the rule's MaxCallerLimit.
func TestCallerLimit(t *testing.T) {
	t.Parallel()
	minutely := func(n int64) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: time.Minute, Align: headgate.OnClock}
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{
			ID: "open", By: []string{"user"}, Limit: minutely(10), MaxCallerLimit: headgate.PerMinute(600),
			Match: headgate.Match{Method: "GET"}, Tiers: map[string]headgate.Plan{"gold": {Limit: minutely(20)}},
		},
		headgate.Rule{ID: "bucket", By: []string{"user"}, Limit: headgate.PerMinute(10), MaxCallerLimit: headgate.PerMinute(600), Match: headgate.Match{Method: "PUT"}},
		headgate.Rule{ID: "closed", By: []string{"user"}, Limit: minutely(10), Match: headgate.Match{Method: "POST"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	err = limiter.Exceptions().Set(headgate.Override{Rule: "open", Subject: headgate.Attributes{"user": "bob"}, Limit: minutely(7)})
	if err != nil {
		t.Fatal(err)
	}
	none := (*headgate.Limit)(nil)
	requested := func(n int64, window time.Duration) *headgate.Limit {
		return &headgate.Limit{Count: n, Window: window, Burst: 99} // the burst is ignored
	}
	for _, c := range []struct {
		method, user, tier string
		requested          *headgate.Limit
		count              int64
		window             time.Duration
		origin             headgate.Origin
	}{
		{"GET", "ann", "", none, 10, time.Minute, headgate.FromRule},
		{"GET", "ann", "gold", none, 20, time.Minute, headgate.FromTier},
		{"GET", "ann", "gold", requested(50, time.Minute), 50, time.Minute, headgate.FromOverride},
		{"GET", "ann", "", requested(5, time.Hour), 5, time.Hour, headgate.FromOverride},
		{"GET", "ann", "", requested(10, time.Second), 10, time.Second, headgate.FromOverride},
		{"GET", "ann", "", requested(11, time.Second), 600, time.Minute, headgate.FromOverride},   // too fast
		{"GET", "ann", "", requested(601, 24*time.Hour), 600, time.Minute, headgate.FromOverride}, // too many at once
		{"GET", "ann", "", requested(0, time.Hour), 0, time.Hour, headgate.FromOverride},
		{"GET", "ann", "", requested(1, 0), 600, time.Minute, headgate.FromOverride},
		{"GET", "ann", "", requested(1, time.Nanosecond+time.Hour), 10, time.Minute, headgate.FromOverride}, // cannot be counted
		{"GET", "bob", "", requested(50, time.Minute), 7, time.Minute, headgate.FromOverride},
		{"PUT", "ann", "", requested(50, time.Minute), 50, time.Minute, headgate.FromOverride},
		{"POST", "ann", "", requested(50, time.Minute), 10, time.Minute, headgate.FromRule},
	} {
		req := headgate.Request{Attributes: headgate.Attributes{"method": c.method, "user": c.user}}
		if c.tier != "" {
			req.Attributes["tier"] = c.tier
		}
		d, err := limiter.CheckAll(t.Context(), []headgate.BatchRequest{{Request: req, Limit: c.requested, Peek: true}})
		if err != nil {
			t.Fatal(err)
		}
		got := d[0].Limits[0]
		if got.Limit.Count != c.count || got.Limit.Window != c.window || got.Origin != c.origin || got.Limit.Burst != 0 ||
			d[0].Allowed != (c.count > 0) {
			t.Errorf("%+v has %s from the %s, allowed %v", c, got.Limit, got.Origin, d[0].Allowed)
		}
		if c.method == "GET" && got.Limit.Align != headgate.OnClock {
			t.Errorf("%+v does not begin on the clock: %s", c, got.Limit)
		}
	}
}

// TestOverdraw checks that costs reported after the request are always recorded, and that requests are denied until they have
// refilled.
func TestOverdraw(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000_000, 0)
	store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
	limiter, err := headgate.New(store,
		headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: headgate.PerSecond(10), Overdraw: true},
		headgate.Rule{ID: "requests", By: []string{"user"}, Limit: headgate.PerHour(5), Match: headgate.Match{Method: "POST"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	req := func(cost int64, pairs ...string) headgate.Request {
		r := headgate.Request{Attributes: headgate.Attributes{"user": "ann"}, Cost: cost}
		for i := 0; i < len(pairs); i += 2 {
			r.Attributes[pairs[i]] = pairs[i+1]
		}
		return r
	}
	check := func(what string, r headgate.Request, allowed bool, remaining int64) headgate.Decision {
		t.Helper()
		d, err := limiter.Check(t.Context(), r)
		if err != nil || d.Allowed != allowed || d.Limits[0].Rule != "tokens" || d.Limits[0].Remaining != remaining ||
			d.Limits[0].Cost != r.Cost || d.Limits[0].Granted != r.Cost {
			t.Errorf("%s: %+v: %v", what, d, err)
		}
		return d
	}
	look := func(what string, allowed bool) {
		t.Helper()
		for range 2 { // it costs nothing
			d, err := limiter.CheckAll(t.Context(), []headgate.BatchRequest{{Request: req(1), Peek: true}})
			if err != nil || d[0].Allowed != allowed || len(d[0].Limits) != 1 {
				t.Errorf("%s: %+v: %v", what, d, err)
			}
			if p, err := limiter.Peek(t.Context(), req(1)); err != nil || p.Allowed != allowed || len(p.Limits) != 1 {
				t.Errorf("%s: %+v: %v", what, p, err)
			}
		}
	}
	look("at first", true)
	check("fits", req(9), true, 1)
	look("with one left", true)
	check("more than is left", req(21), true, 0)
	look("overdrawn", false)
	if d := check("once more", req(10), false, 0); d.RetryAfter != 3100*time.Millisecond { // from -30 to 1 at 10 per second
		t.Errorf("retry after %v", d.RetryAfter)
	}
	now = now.Add(3 * time.Second)
	look("a moment before", false)
	now = now.Add(100 * time.Millisecond)
	look("worked off", true)

	// Several limits, one without overdraw, and several requests together.
	now = now.Add(time.Hour)
	d, err := limiter.Check(t.Context(), req(4, "method", "POST"))
	if err != nil || !d.Allowed || len(d.Limits) != 2 || d.Limits[0].Remaining != 6 || d.Limits[1].Remaining != 1 {
		t.Errorf("%+v: %v", d, err)
	}
	all, err := limiter.CheckAll(t.Context(), []headgate.BatchRequest{
		{Request: req(3, "method", "POST")}, {Request: req(2), Credit: true}, {Request: req(100, "user", "bob")},
	})
	if err != nil || all[0].Allowed || len(all[0].Limits) != 2 || len(all[1].Limits) != 1 || len(all[2].Limits) != 1 ||
		!all[0].Limits[0].Allowed || all[0].Limits[0].Remaining != 5 || all[0].Limits[1].Remaining != 1 || all[2].Limits[0].Remaining != 0 {
		t.Errorf("%+v: %v", all, err)
	}
	if p, err := limiter.Peek(t.Context(), req(1, "user", "bob")); err != nil || p.Allowed {
		t.Errorf("%+v: %v", p, err)
	}
}

// TestCheckAllKeepsRequestsApart checks that the attributes of one request do not affect the others.
func TestCheckAllKeepsRequestsApart(t *testing.T) {
	t.Parallel()
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "post", By: headgate.Global, Limit: headgate.PerHour(5), Match: headgate.Match{Method: "POST"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := limiter.CheckAll(t.Context(), []headgate.BatchRequest{
		{Request: headgate.Request{Attributes: headgate.Attributes{"method": "POST"}}},
		{Request: headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}},
	})
	if err != nil || len(d[0].Limits) != 1 || len(d[1].Limits) != 0 {
		t.Errorf("%+v: %v", d, err)
	}
}
