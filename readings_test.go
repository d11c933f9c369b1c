package headgate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// rulesOf returns the rules of a decision in order, one for each limit.
func rulesOf(d headgate.Decision) []string {
	var rules []string
	for _, l := range d.Limits {
		rules = append(rules, l.Rule)
	}
	return rules
}

func readingLimiter(t *testing.T, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRulesCompeteWithinEachReading(t *testing.T) {
	t.Parallel()
	rule := func(id, path, method string, priority int) headgate.Rule {
		return headgate.Rule{
			ID: id, Match: headgate.Match{Path: path, Method: method}, By: []string{"ip"}, Limit: headgate.PerDay(100), Priority: priority,
		}
	}
	l := readingLimiter(t,
		rule("login", "/login", "", 10), rule("static", "/static/**", "", 20),
		rule("write", "/orders", "POST", 10), rule("read", "/orders", "GET", 20), rule("patch", "/orders", "PROPPATCH", 30),
		rule("top", "/top/**", "", 40), rule("below", "/top/x", "", 1),
	)
	for _, test := range []struct {
		attributes headgate.Attributes
		want       string
	}{
		{headgate.Attributes{"path": "/login", headgate.OtherPath: "/static/..;/login"}, "login static"},
		{headgate.Attributes{"path": "/static/x", headgate.OtherPath: "/other?/static/y?/login"}, "login static"},
		{headgate.Attributes{"path": "/orders", "method": "POST", headgate.OtherMethod: "GET"}, "write read"},
		{headgate.Attributes{"path": "/orders", "method": "POST", headgate.OtherMethod: headgate.AnyMethod}, "write read patch"},
		{headgate.Attributes{"path": "/orders", "method": "PUT", headgate.OtherMethod: "GET"}, "read"},
		{headgate.Attributes{"path": "/top/x", headgate.OtherPath: "/top/y"}, "top"}, // displaced in every reading that it matches
		{headgate.Attributes{"path": "/x", headgate.OtherPath: "/y"}, ""},
		// Each path with each method is a reading.
		{headgate.Attributes{"path": "/x", headgate.OtherPath: "/orders", "method": "GET", headgate.OtherMethod: "POST"}, "write read"},
	} {
		test.attributes["ip"] = "192.0.2.1"
		d, err := l.Check(t.Context(), headgate.Request{Attributes: test.attributes})
		if got := strings.Join(rulesOf(d), " "); err != nil || got != test.want {
			t.Errorf("%v: rules %q, want %q (%v)", test.attributes, got, test.want, err)
		}
		e, err := l.Explain(t.Context(), headgate.Request{Attributes: test.attributes})
		if err != nil || !slices.Equal(rulesOf(e.Decision), rulesOf(d)) {
			t.Errorf("%v: explained as %v, not %v (%v)", test.attributes, rulesOf(e.Decision), rulesOf(d), err)
		}
		for _, r := range e.Rules {
			if r.Applies != slices.Contains(rulesOf(d), r.Rule.ID) || !r.Applies && r.Why == "" {
				t.Errorf("%v: rule %s: applies %t, %q", test.attributes, r.Rule.ID, r.Applies, r.Why)
			}
		}
	}
}

// TestReadingsAreCountedByPath checks that a rule by path counts a request under each path that a backend may read, and spellings of
// one path under one.
func TestReadingsAreCountedByPath(t *testing.T) {
	t.Parallel()
	l := readingLimiter(t, headgate.Rule{
		ID: "r", Match: headgate.Match{Path: "/users/{id}"}, By: []string{"path"}, Limit: headgate.PerDay(5), Meter: true,
	})
	for _, test := range []struct {
		path, other string
		subjects    int
	}{
		{"/users/7", "", 1},
		{"/users/7", "/x?/users/7/..", 1},
		{"/users/a@b", "/users/a%40b", 1}, // another spelling
		{"/users/8", "/users/7?/users/9", 3},
		{"/x", "/users/9?/users/8", 2},
	} {
		req := headgate.Request{Attributes: headgate.Attributes{"path": test.path, headgate.OtherPath: test.other}}
		reservation, err := l.Reserve(t.Context(), req, time.Minute)
		if err != nil || !reservation.Decision.Allowed {
			t.Fatal(reservation.Decision, err)
		}
		settled, err := l.Cancel(t.Context(), reservation.Token)
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range map[string]headgate.Decision{"reserved": reservation.Decision, "settled": settled} {
			subjects, metered := map[headgate.Subject]bool{}, 0
			for _, limit := range d.Limits {
				subjects[limit.Subject] = true
				if limit.Metered {
					metered++
				}
			}
			if len(subjects) != test.subjects || len(d.Limits) != test.subjects || metered != 1 {
				t.Errorf("%s, %s: %s: %d limits on %d subjects, want %d; metered %d times", test.path, test.other, name,
					len(d.Limits), len(subjects), test.subjects, metered)
			}
		}
	}
	// The reading that the requests have in common is counted, whatever the primary reading is.
	passed := 0
	for i := range 50 {
		d, err := l.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{
			"path": fmt.Sprint("/users/", 100+i), headgate.OtherPath: fmt.Sprintf("/%d?/users/7", i),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d of 50 were allowed, limit 5", passed)
	}
}

func TestIgnoreCaseCountsByPath(t *testing.T) {
	t.Parallel()
	l := readingLimiter(t, headgate.Rule{
		ID: "r", Match: headgate.Match{Path: "/Login", IgnoreCase: true}, By: []string{"path"}, Limit: headgate.PerDay(5),
	}, headgate.Rule{ID: "all", By: []string{"path"}, Limit: headgate.PerDay(1000)})
	subjects := map[string]map[headgate.Subject]bool{"r": {}, "all": {}}
	for _, path := range []string{"/login", "/LOGIN", "/LogIn"} {
		attributes := headgate.Attributes{"path": path}
		d, err := l.Check(t.Context(), headgate.Request{Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range d.Limits {
			subjects[limit.Rule][limit.Subject] = true
		}
		if got := l.Rules().SubjectAttributes("r", attributes)["path"]; got != "/login" {
			t.Errorf("%s is counted as %q", path, got)
		}
	}
	if len(subjects["r"]) != 1 || len(subjects["all"]) != 3 {
		t.Errorf("%d and %d subjects, want 1 and 3", len(subjects["r"]), len(subjects["all"]))
	}
	if err := l.Exceptions().Set(headgate.Override{Rule: "r", Subject: headgate.Attributes{"path": "/login"}, Limit: headgate.PerDay(9)}); err != nil {
		t.Fatal(err)
	}
	d, _ := l.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"path": "/LOGIN"}})
	if len(d.Limits) == 0 || d.Limits[0].Limit.Count != 9 {
		t.Errorf("the override is not found: %+v", d.Limits)
	}
}

// TestReadingsOfARuleByID checks that a rule that is requested by its ID counts every reading, whether it matches or not.
func TestReadingsOfARuleByID(t *testing.T) {
	t.Parallel()
	l := readingLimiter(t, headgate.Rule{ID: "r", Match: headgate.Match{Path: "/a"}, By: []string{"path", "method"}, Limit: headgate.PerDay(5)})
	d, err := l.Check(t.Context(), headgate.Request{Rule: "r", Attributes: headgate.Attributes{
		"path": "/x", headgate.OtherPath: "/y?/z", "method": "POST", headgate.OtherMethod: "PUT",
	}})
	if err != nil || len(d.Limits) != 6 {
		t.Errorf("%d limits, want 6 (%v)", len(d.Limits), err)
	}
}

func BenchmarkReadings(b *testing.B) {
	var rules []headgate.Rule
	for i := range 1000 {
		rules = append(rules, headgate.Rule{
			ID: fmt.Sprint("r", i), By: []string{"ip"}, Limit: headgate.PerMinute(1), Priority: i % 3,
			Match: headgate.Match{Path: fmt.Sprintf("/api/v%d/{id}/**", i), Method: "GET"},
		})
	}
	set, err := headgate.Compile(rules...)
	if err != nil {
		b.Fatal(err)
	}
	others := []string{"/api/v7/x/../z", "/api/v7/x%2F..%2Fz", "/z", "/api/v8/z", "/x", "/y", "/api/z", "/api/v7/;/z", "/a", "/b", "/c"}
	for name, a := range map[string]headgate.Attributes{
		"one":          {"path": "/api/v7/x/y/z", "method": "GET", "ip": "192.0.2.1"},
		"two":          {"path": "/api/v7/x/y/z", headgate.OtherPath: others[0], "method": "GET", "ip": "192.0.2.1"},
		"twelve by 7":  {"path": "/api/v7/x/y/z", headgate.OtherPath: strings.Join(others, "?"), "method": "POST", headgate.OtherMethod: "*", "ip": "192.0.2.1"},
		"twelve paths": {"path": "/api/v7/x/y/z", headgate.OtherPath: strings.Join(others, "?"), "method": "GET", "ip": "192.0.2.1"},
	} {
		b.Run(name, func(b *testing.B) {
			var m headgate.Matcher
			b.ReportAllocs()
			for b.Loop() {
				m.Match(set, a)
			}
		})
	}
}

// TestConditionsAreEvaluatedOncePerReading checks that a client's spelling does not multiply the work of a condition that does not
// depend on the reading.
func TestConditionsAreEvaluatedOncePerReading(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reads []string
		want  int
	}{
		{[]string{"header.x"}, 1}, {[]string{"path"}, 3}, {[]string{"method"}, 2}, {[]string{"path", "method", "header.x"}, 6}, {nil, 6},
	} {
		calls := 0
		l := readingLimiter(t, headgate.Rule{
			ID: "slow", By: []string{"ip"}, Limit: headgate.PerDay(100), Match: headgate.Match{Path: "/**"},
			When: headgate.Condition{Text: "slow", Attributes: test.reads, Holds: func(headgate.Attributes) bool { calls++; return true }},
		})
		for i := range 2 {
			_, err := l.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{
				"ip": "192.0.2.1", "path": "/a", headgate.OtherPath: "/b?/c", "method": "POST", headgate.OtherMethod: "GET",
			}})
			if err != nil || calls != (i+1)*test.want {
				t.Errorf("a condition on %v was evaluated %d times in %d requests, want %d each: %v", test.reads, calls, i+1, test.want, err)
			}
		}
	}
}
