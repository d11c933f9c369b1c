package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestExplainChargesNothing compares explanations with the decisions that follow them.
func TestExplainChargesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		g := newGenerator(seed, 2)
		rules := g.rules()
		for i := range rules {
			rules[i].Limit = headgate.Limit{
				Algorithm: headgate.Algorithm(g.IntN(5)), Count: 1 + g.Int64N(5), Window: time.Minute,
			}
			rules[i].Mode = headgate.Mode(g.IntN(3))
			rules[i].OnMissing = headgate.OnMissing(g.IntN(3))
			if g.IntN(3) == 0 {
				rules[i].Candidate.Limit = headgate.PerMinute(1 + g.Int64N(5))
			}
		}
		w := newWorld(t, rules...)
		for range 60 {
			req := headgate.Request{Attributes: g.attributes(), Cost: g.Int64N(4)}
			var first headgate.Explanation
			for range 3 {
				e, err := w.Explain(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if first.Rules == nil {
					first = e
				}
				if fmt.Sprint(e.Decision) != fmt.Sprint(first.Decision) {
					t.Fatalf("seed %d: explained again, the decision differs:\n%+v\n%+v", seed, first.Decision, e.Decision)
				}
			}
			d, _ := w.Check(t.Context(), req)
			if d.Allowed != first.Decision.Allowed || d.RetryAfter != first.Decision.RetryAfter || d.Path != first.Decision.Path || len(d.Limits) != len(first.Decision.Limits) {
				t.Fatalf("seed %d: explained\n%+v\nbut decided\n%+v", seed, first.Decision, d)
			}
			for i, l := range d.Limits {
				if e := first.Decision.Limits[i]; l.Rule != e.Rule || l.WouldDeny() != e.WouldDeny() || e.Granted != 0 {
					t.Fatalf("seed %d: explained\n%+v\nbut decided\n%+v", seed, e, l)
				}
			}
			w.now = w.now.Add(time.Duration(g.IntN(5000)) * time.Millisecond)
			compareApplied(t, first, d)
		}
	}
}

func compareApplied(t *testing.T, e headgate.Explanation, d headgate.Decision) {
	t.Helper()
	applied := map[string]bool{}
	for _, l := range d.Limits {
		applied[l.Rule] = true
	}
	for _, r := range e.Rules {
		// If a rule denies without the store, the other rules are not decided.
		if d.Path != headgate.PathRules && r.Applies != applied[r.Rule.ID] || !r.Applies && r.Why == "" || r.Applies != (r.Subject != nil) {
			t.Fatalf("explained %+v, decided %+v", r, d)
		}
	}
}

func TestExplainReasons(t *testing.T) {
	t.Parallel()
	never := headgate.Condition{Text: `user == "root"`, Holds: func(headgate.Attributes) bool { return false }}
	w := newWorld(t,
		rule(func(r *headgate.Rule) { r.ID, r.Match.Path = "path", "/x" }),
		rule(func(r *headgate.Rule) { r.ID, r.Match.Method = "method", "POST" }),
		rule(func(r *headgate.Rule) {
			r.ID, r.Match.Attributes = "absent", map[string]headgate.Pattern{"user": headgate.IsAbsent()}
		}),
		rule(func(r *headgate.Rule) {
			r.ID, r.Match.Attributes = "present", map[string]headgate.Pattern{"tier": headgate.IsPresent()}
		}),
		rule(func(r *headgate.Rule) {
			r.ID, r.Match.Attributes = "not", map[string]headgate.Pattern{"path": headgate.NoneOf("/a", "/b")}
		}),
		rule(func(r *headgate.Rule) { r.ID, r.When = "when", never }),
		rule(func(r *headgate.Rule) { r.ID, r.Mode = "off", headgate.Off }),
		rule(func(r *headgate.Rule) { r.ID, r.Priority = "lower", 1 }),
		rule(func(r *headgate.Rule) { r.ID, r.Priority = "higher", 2 }),
		rule(func(r *headgate.Rule) { r.ID, r.By, r.OnMissing = "skip", []string{"tenant"}, headgate.SkipMissing }),
		rule(func(r *headgate.Rule) { r.ID, r.By = "share", []string{"tenant"} }),
		rule(func(r *headgate.Rule) { r.ID = "exempt" }),
		rule(func(r *headgate.Rule) { r.ID, r.Mode = "shadow", headgate.Shadow }),
		rule(func(r *headgate.Rule) { r.ID = "overridden" }),
		rule(func(r *headgate.Rule) { r.ID = "plain" }),
	)
	end := time.Date(2026, 3, 6, 18, 0, 0, 0, time.UTC)
	if err := w.Exceptions().Replace(
		each([]headgate.Override{{Rule: "overridden", Subject: headgate.Attributes{"user": "ann"}, Limit: headgate.PerDay(1), Expires: end, Reason: "launch"}}),
		each([]headgate.Exemption{{Rule: "exempt", Attribute: "user", Value: "ann", Expires: end, Reason: "tests"}}),
	); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"path":       "no: path is /a, not /x",
		"method":     "no: method is GET, not POST",
		"absent":     "no: user is ann, and must be absent",
		"present":    "no: the request has no tier",
		"not":        "no: path is /a, and must not be /a or /b",
		"when":       `no: when does not hold: user == "root"`,
		"off":        "no: mode is off",
		"lower":      `no: displaced by rule "higher": its priority 2 is above 1 and it counts by the same attributes`,
		"higher":     "yes: ",
		"skip":       "no: the request has no tenant, and on_missing is skip",
		"share":      "yes: the request has no tenant: it is counted together with all requests that lack it",
		"exempt":     "no: exempt by user until 2026-03-06T18:00:00Z (tests)",
		"shadow":     "yes: shadow",
		"overridden": "yes: limit overridden until 2026-03-06T18:00:00Z (launch)",
		"plain":      "yes: ",
	}
	e, err := w.Explain(t.Context(), headgate.Request{Attributes: parseAttributes("path=/a method=GET user=ann")})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Rules) != len(want) {
		t.Errorf("%d rules", len(e.Rules))
	}
	for _, r := range e.Rules {
		got := "no: " + r.Why
		if r.Applies {
			got = "yes: " + r.Why
		}
		if got != want[r.Rule.ID] {
			t.Errorf("%s: %q, want %q", r.Rule.ID, got, want[r.Rule.ID])
		}
	}
}
