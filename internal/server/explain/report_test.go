package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// explanation returns the explanation of a decision with these limits.
func explanation(limits ...headgate.LimitDecision) *headgate.Explanation {
	e := &headgate.Explanation{Decision: headgate.Decision{Allowed: true, Path: headgate.PathStore, Version: "v1", Limits: limits}}
	if worst := e.Decision.DeniedBy(); worst != nil {
		e.Decision.Allowed, e.Decision.RetryAfter = false, worst.RetryAfter
	}
	return e
}

// within returns the decision of a limit of 10 per minute with 4 used.
func within(rule string) headgate.LimitDecision {
	return headgate.LimitDecision{
		Rule: rule, Limit: headgate.PerMinute(10), Cost: 1, Enforced: true,
		Result: headgate.Result{Allowed: true, Remaining: 6, ResetAfter: 24 * time.Second},
	}
}

func exceeded(rule string, wait time.Duration) headgate.LimitDecision {
	l := within(rule)
	l.Allowed, l.Remaining, l.RetryAfter = false, 0, wait
	return l
}

func shadow(l headgate.LimitDecision) headgate.LimitDecision {
	l.Enforced = false
	return l
}

func TestSummaryAndVerdict(t *testing.T) {
	t.Parallel()
	missing := exceeded("a", headgate.Never)
	missing.Missing = "user"
	candidate := shadow(exceeded("a", time.Minute))
	candidate.Origin = headgate.FromCandidate
	costly := exceeded("a", headgate.Never)
	costly.Cost = 11
	held := within("a")
	held.Delay = 1500 * time.Millisecond
	local := within("a")
	local.Path = headgate.PathLocal
	for name, test := range map[string]struct {
		limit            headgate.LimitDecision
		summary, verdict string
	}{
		"within":   {within("a"), "allowed: within 1 limit", "allowed"},
		"exceeded": {exceeded("a", 90*time.Second), "429: denied by a; retry after 90 s", "denied for 90 s"},
		"missing":  {missing, "429: denied by a; retrying does not help: the request has no user", "denied: no user"},
		"too much": {costly, "429: denied by a; retrying does not help: cost 11 exceeds the capacity of 10", "denied: cost exceeds capacity"},
		"shadow": {
			shadow(exceeded("a", time.Minute)), "allowed: within 1 limit; a would deny (shadow)", "would deny for 60 s (shadow)",
		},
		"candidate": {candidate, "allowed: within 1 limit", "would deny for 60 s (candidate)"},
		"held":      {held, "allowed: within 1 limit; delayed by 1.5s", "allowed after 1.5s"},
		"local": {
			local, "allowed: within 1 limit; Redis is unavailable: decided by this node's local fallback share", "allowed",
		},
	} {
		e := explanation(test.limit)
		e.Decision.Delay = test.limit.Delay
		r := New(e, Question{}, Place{})
		if r.Summary != test.summary || r.Limits[0].Verdict != test.verdict {
			t.Errorf("%s: %q and %q, want %q and %q", name, r.Summary, r.Limits[0].Verdict, test.summary, test.verdict)
		}
	}
	if got := New(explanation(), Question{}, Place{}).Summary; got != "allowed: no rule applies" {
		t.Error(got)
	}
}

// TestSmallShare shows why a share never allows a request, and what to do about it.
func TestSmallShare(t *testing.T) {
	t.Parallel()
	regions := func(weight int64) *Regions {
		r := &Regions{Limit: 90, Complete: true}
		r.Add(RegionUsage{Name: "ap", Weight: 1, Share: 60, Used: new(int64)})
		r.Add(RegionUsage{Name: "eu", Own: true, Weight: weight, Used: new(int64)})
		return r
	}
	const restore = "headgate regions shows the weights of the regions; headgate regions restore eu gives this region its share again"
	for name, test := range map[string]struct {
		cost, share, weight    int64
		summary, verdict, note string
	}{
		"drained":   {1, 0, 0, "this region has no share of the limit, because its weight is 0", "no share in this region", restore},
		"too small": {1, 0, 1, "this region has no share of the limit of 90", "no share in this region", "a: the limit is too small to be divided among the regions, "},
		"cost above the share": {
			40, 30, 1, "cost 40 exceeds this region's share of 30 (limit 90 in all regions)", "cost exceeds this region's share", "a: a request cannot cost more than the share ",
		},
		"cost above the limit": {91, 30, 1, "cost 91 exceeds the capacity of 90", "cost exceeds capacity", ""},
	} {
		l := exceeded("a", headgate.Never)
		l.Limit, l.Cost = headgate.PerMinute(90), test.cost
		l.Shared, l.Share = true, test.share
		r := New(explanation(l), Question{}, Place{Regions: map[int]*Regions{0: regions(test.weight)}})
		if want := "429: denied by a; retrying does not help: " + test.summary; r.Summary != want || r.Limits[0].Verdict != "denied: "+test.verdict {
			t.Errorf("%s: %q and %q, want %q and %q", name, r.Summary, r.Limits[0].Verdict, want, test.verdict)
		}
		if notes := strings.Join(r.Notes, "\n"); !strings.HasPrefix(notes, test.note) || (test.note == "") != (notes == "") {
			t.Errorf("%s: notes %q, want %q", name, notes, test.note)
		}
	}
}

func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	busy := within("a")
	busy.Limit, busy.Remaining, busy.ResetAfter = headgate.Concurrent(20), 3, 9*time.Second
	full := busy
	full.Allowed, full.Remaining, full.RetryAfter = false, 0, headgate.Unknown
	for want, limit := range map[string]headgate.LimitDecision{
		"17 of 20 in flight         allowed": busy, "20 of 20 in flight         denied until a request in flight has ended": full,
	} {
		if text := New(explanation(limit), Question{}, Place{}).Text(); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A concurrency limit has a note on where it is not applied.
func TestSkippedNote(t *testing.T) {
	t.Parallel()
	busy := within("a")
	busy.Limit = headgate.Concurrent(20)
	peak := busy
	peak.Name = "peak"
	for name, test := range map[string]struct {
		limits  []headgate.LimitDecision
		request headgate.Attributes
		want    string
	}{
		"a rate": {[]headgate.LimitDecision{within("a")}, nil, ""},
		"once per rule": {
			[]headgate.LimitDecision{busy, peak},
			nil,
			"a: applied only where the end of a request is reported: by package client, checks with begin, and the library; " +
				"skipped for forward-auth, Envoy and other checks (headgate_limits_skipped_total)",
		},
		"Envoy": {
			[]headgate.LimitDecision{busy},
			headgate.Attributes{"domain": "edge"},
			"a: not applied to requests that Envoy asks about, since it does not report their end: apply the limit in the program behind it",
		},
	} {
		if got := strings.Join(New(explanation(test.limits...), Question{Attributes: test.request}, Place{}).Notes, "; "); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Denying limits come first. Rules that do not apply are sorted by how much they say about the request.
func TestReportOrder(t *testing.T) {
	t.Parallel()
	e := explanation(within("a"), shadow(exceeded("b", time.Second)), exceeded("c", time.Second))
	for i := range 12 {
		e.Rules = append(e.Rules, headgate.RuleExplanation{Rule: headgate.Rule{ID: fmt.Sprint("elsewhere", i)}, Why: "path is /, not /x"})
	}
	e.Rules = append(e.Rules,
		headgate.RuleExplanation{Rule: headgate.Rule{ID: "vip"}, Why: "exempt by user"},
		headgate.RuleExplanation{Rule: headgate.Rule{ID: "a"}, Applies: true, Why: "limit of tier pro", Subject: headgate.Attributes{"ip": "192.0.2.1"}},
	)
	place := Place{Redis: "redis:6379", Key: func(headgate.Subject) string { return "hg:{x}" }}
	r := New(e, Question{}, place, "a note of the caller")
	var order []string
	for _, l := range r.Limits {
		order = append(order, l.Rule)
		if l.Key != "hg:{x}" || l.Field != "000000000000" {
			t.Errorf("%s is at %q, %q", l.Rule, l.Key, l.Field)
		}
	}
	if got := strings.Join(order, " "); got != "c b a" {
		t.Errorf("limits %s", got)
	}
	if l := r.Limits[2]; l.Used != 4 || l.CountedBy["ip"] != "192.0.2.1" {
		t.Errorf("%+v", l)
	}
	if got := strings.Join(r.Notes, "; "); got != "a note of the caller; a: limit of tier pro" {
		t.Errorf("notes: %s", got)
	}
	if len(r.NotApplied) != maxNotApplied || r.NotShown != 3 || r.NotApplied[0].Rule != "vip" {
		t.Errorf("%d more than %v", r.NotShown, r.NotApplied)
	}
	if all := New(e, Question{All: true}, place); len(all.NotApplied) != 13 || all.NotShown != 0 {
		t.Errorf("%d more than %v", all.NotShown, all.NotApplied)
	}
	text := r.Text()
	for _, want := range []string{
		"429: denied by c; retry after 1 s\n", "Limits that apply\n", "ip=192.0.2.1", "all requests", "Counters in Redis",
		"Rules that do not apply\n", "and 3 others; --all shows them\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A limit that only another rule charges is shown with the subject of that rule.
func TestReportOfSharedCounter(t *testing.T) {
	t.Parallel()
	e := explanation(within("a"))
	e.Rules = []headgate.RuleExplanation{
		{Rule: headgate.Rule{ID: "a"}, Why: "path is /x, not /a"},
		{Rule: headgate.Rule{ID: "b", Counter: "a"}, Applies: true, Why: `charges the counters of rule "a"`, Subject: headgate.Attributes{"ip": "192.0.2.1"}},
	}
	r := New(e, Question{}, Place{})
	if len(r.Limits) != 1 || r.Limits[0].CountedBy["ip"] != "192.0.2.1" || len(r.Notes) != 1 || r.Notes[0] != `b: charges the counters of rule "a"` {
		t.Errorf("%+v", r)
	}
}

func TestUnusedAttributes(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"client"}, Limit: headgate.PerMinute(10)})
	if err != nil {
		t.Fatal(err)
	}
	for want, names := range map[string][]string{
		"": {"user", "ip"}, "no rule uses tenant": {"ip", "tenant"}, "no rule uses region and tenant": {"region", "tenant", "plan"},
	} {
		if got := UnusedAttributes(names, rules, "plan"); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
