package region

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// homeLimiter returns a limiter of region eu over all regions, with a rule that has a home and one that has none, and a user whose home is us.
func homeLimiter(t *testing.T) (*routed, *headgate.Limiter, headgate.Request) {
	t.Helper()
	w := newRouted(t)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 9, Window: time.Hour}
	rules, err := headgate.Compile(
		headgate.Rule{ID: "each", By: []string{"user"}, Limit: window},
		headgate.Rule{ID: "home", By: []string{"user"}, Limit: window, Regions: headgate.HomeRegion},
	)
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.NewLimiter(w, rules, headgate.Options{Share: w.shares.Share})
	for i := 0; ; i++ {
		req := headgate.Request{Attributes: headgate.Attributes{"user": strconv.Itoa(i)}}
		d, err := l.Peek(t.Context(), req)
		if err != nil || len(d.Limits) != 2 {
			t.Fatalf("%+v: %v", d, err)
		}
		if w.shares.Home(d.Limits[1].Subject) == "us" {
			return w, l, req
		}
	}
}

// left returns how many units the rules have left: as a peek says, and as the stores of eu and us say.
func (w *routed) left(t *testing.T, l *headgate.Limiter, req headgate.Request) []int64 {
	t.Helper()
	w.undone.Wait()
	d, err := l.Peek(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var left []int64
	for i := range d.Limits {
		left = append(left, d.Limits[i].Remaining)
		c := headgate.Charge{Subject: d.Limits[i].Subject, Counter: d.Limits[i].Counter, Limit: d.Limits[i].Limit}
		left = append(left, c.Limit.Count-w.used(t, []string{"eu", "us"}[i], c))
	}
	return left
}

// TestRouterOfLimiter checks every method of a limiter that charges: all of them must reach the home.
func TestRouterOfLimiter(t *testing.T) {
	t.Parallel()
	w, l, req := homeLimiter(t)
	expect := func(what string, each, home int64) {
		t.Helper()
		if got, want := w.left(t, l, req), []int64{each, each, home, home}; !slices.Equal(got, want) {
			t.Errorf("%s: %v left, want %v", what, got, want)
		}
	}
	expect("peek", 9, 9)
	if d, err := l.Check(t.Context(), req); err != nil || !d.Allowed {
		t.Fatalf("%+v: %v", d, err)
	}
	expect("check", 8, 8)
	five := req
	five.Cost = 5
	reservation, err := l.Reserve(t.Context(), five, time.Minute)
	if err != nil || reservation.Token == nil {
		t.Fatalf("%+v: %v", reservation, err)
	}
	expect("reserve", 3, 3)
	used, expected := req, req
	used.Cost, expected.Cost = 4, 6
	if reservation, err = l.Extend(t.Context(), reservation.Token, used, expected, time.Minute); err != nil {
		t.Fatal(err)
	}
	expect("extend", 2, 2)
	if _, err := l.Commit(t.Context(), reservation.Token, headgate.Request{Cost: 5}); err != nil {
		t.Fatal(err)
	}
	expect("commit", 3, 3)
	if reservation, err = l.Reserve(t.Context(), req, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Cancel(t.Context(), reservation.Token); err != nil {
		t.Fatal(err)
	}
	expect("cancel", 3, 3)
	if _, err := l.Explain(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	expect("explain", 3, 3)
	if _, err := l.CheckAll(t.Context(), []headgate.BatchRequest{{Request: req}, {Request: req}}); err != nil {
		t.Fatal(err)
	}
	expect("check of two", 1, 1)
	five.Cost = headgate.MaxCost
	if _, err := l.Refund(t.Context(), five); err != nil {
		t.Fatal(err)
	}
	expect("refund", 9, 9)
}

// TestRouterFailsClosed checks that a limiter gives back what it charged here if the home is down and the rule denies then.
func TestRouterFailsClosed(t *testing.T) {
	t.Parallel()
	w, l, req := homeLimiter(t)
	rules := l.Rules().Rules()
	rules[1].OnStoreFailure = headgate.FailDeny
	set, err := headgate.Compile(rules...)
	if err != nil {
		t.Fatal(err)
	}
	l.SetRules(set)
	w.of["us"].down = true
	if d, err := l.Check(t.Context(), req); err != nil || d.Allowed || d.Path != headgate.PathFailed {
		t.Errorf("%+v: %v", d, err)
	}
	w.of["us"].down = false
	if got := w.left(t, l, req); !slices.Equal(got, []int64{9, 9, 9, 9}) {
		t.Errorf("%v left", got)
	}
}
