package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// of is what a limiter says of limits.
func of(limits ...headgate.LimitDecision) *headgate.Explanation {
	e := &headgate.Explanation{Decision: headgate.Decision{Allowed: true, Path: headgate.PathStore, Version: "v1", Limits: limits}}
	if worst := e.Decision.DeniedBy(); worst != nil {
		e.Decision.Allowed, e.Decision.RetryAfter = false, worst.RetryAfter
	}
	return e
}

// within is a limit of 10 a minute, of which 4 are used.
func within(rule string) headgate.LimitDecision {
	return headgate.LimitDecision{
		Rule: rule, Limit: headgate.PerMinute(10), Cost: 1, Enforced: true,
		Result: headgate.Result{Allowed: true, Remaining: 6, ResetAfter: 24 * time.Second},
	}
}

func beyond(rule string, wait time.Duration) headgate.LimitDecision {
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
	missing := beyond("a", headgate.Never)
	missing.Missing = "user"
	candidate := shadow(beyond("a", time.Minute))
	candidate.Origin = headgate.FromCandidate
	costly := beyond("a", headgate.Never)
	costly.Cost = 11
	held := within("a")
	held.Delay = 1500 * time.Millisecond
	local := within("a")
	local.Path = headgate.PathLocal
	for name, test := range map[string]struct {
		limit            headgate.LimitDecision
		summary, verdict string
	}{
		"within":   {within("a"), "passes: within 1 limit", "passes"},
		"beyond":   {beyond("a", 90*time.Second), "429: denied by a; retry after 90 s", "denies for 90 s"},
		"missing":  {missing, "429: denied by a; retrying does not help: the request has no user", "denies: no user"},
		"too much": {costly, "429: denied by a; retrying does not help: it costs 11, and the limit holds 10", "denies: asks for too much"},
		"shadow": {
			shadow(beyond("a", time.Minute)), "passes: within 1 limit; a would deny but for shadow", "would deny for 60 s (shadow)",
		},
		"on trial": {candidate, "passes: within 1 limit", "would deny for 60 s (on trial)"},
		"held":     {held, "passes: within 1 limit; it is held for 1.5s", "passes after 1.5s"},
		"local": {
			local, "passes: within 1 limit; Redis is unavailable, and this node's local fallback share decides", "passes",
		},
	} {
		e := of(test.limit)
		e.Decision.Delay = test.limit.Delay
		r := New(e, Question{}, Place{})
		if r.Summary != test.summary || r.Limits[0].Verdict != test.verdict {
			t.Errorf("%s: %q and %q, want %q and %q", name, r.Summary, r.Limits[0].Verdict, test.summary, test.verdict)
		}
	}
	if got := New(of(), Question{}, Place{}).Summary; got != "passes: no rule applies" {
		t.Error(got)
	}
}

// What denies comes first, and of the rules that do not apply those that say most about the request.
func TestOrder(t *testing.T) {
	t.Parallel()
	e := of(within("a"), shadow(beyond("b", time.Second)), beyond("c", time.Second))
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
	if len(r.NotApplied) != mostOthers || r.NotShown != 3 || r.NotApplied[0].Rule != "vip" {
		t.Errorf("%d more than %v", r.NotShown, r.NotApplied)
	}
	if all := New(e, Question{All: true}, place); len(all.NotApplied) != 13 || all.NotShown != 0 {
		t.Errorf("%d more than %v", all.NotShown, all.NotApplied)
	}
	text := r.Text()
	for _, want := range []string{
		"429: denied by c; retry after 1 s\n", "Limits that apply\n", "ip=192.0.2.1", "everybody", "Where that is in Redis",
		"Rules that do not apply\n", "and 3 others; --all shows them\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"client"}, Limit: headgate.PerMinute(10)})
	if err != nil {
		t.Fatal(err)
	}
	for want, names := range map[string][]string{
		"": {"user", "ip"}, "no rule looks at tenant": {"ip", "tenant"}, "no rule looks at region and tenant": {"region", "tenant", "plan"},
	} {
		if got := Idle(names, rules, "plan"); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
