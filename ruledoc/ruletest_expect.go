package ruledoc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// closeEnough is how exactly a wait must be written: nobody writes 8.571429s.
const closeEnough = time.Millisecond

// expectation is what a test expects of a request. What is nil or empty is not asked.
type expectation struct {
	each, allowed bool   // each of the repeated requests
	count         *int64 // of them that may pass
	rule          string
	limit         *string
	remaining     *int64
	retryAfter    *time.Duration
	delay         *time.Duration
	rules         *[]string
	shadow        *[]string
	candidate     *[]string
}

// compareEach says what is otherwise than expected of each of the repeated requests.
func (e *expectation) compareEach(d *headgate.Decision) []string {
	if e.each && d.Allowed != e.allowed {
		return []string{fmt.Sprintf("allowed: expected %t, came %t", e.allowed, d.Allowed)}
	}
	return nil
}

// compareLast says what is otherwise than expected of the last of the repeated requests, and of how many passed.
func (e *expectation) compareLast(d *headgate.Decision, allowed, repeat int64) []string {
	var problems []string
	differ := func(key string, expected, came any) {
		problems = append(problems, fmt.Sprintf("%s: expected %v, came %v", key, expected, came))
	}
	if e.count != nil && *e.count != allowed {
		differ("allowed", fmt.Sprintf("%d of %d", *e.count, repeat), fmt.Sprintf("%d of %d", allowed, repeat))
	}
	problems = append(problems, e.compareLimit(d)...)
	if e.delay != nil && !near(*e.delay, d.Delay) {
		differ("delay", *e.delay, d.Delay)
	}
	for _, set := range []struct {
		key      string
		expected *[]string
		belongs  func(*headgate.LimitDecision) bool
	}{
		{"rules", e.rules, func(*headgate.LimitDecision) bool { return true }},
		{"shadow", e.shadow, func(l *headgate.LimitDecision) bool {
			return l.WouldDeny() && !l.Enforced && l.Origin != headgate.FromCandidate
		}},
		{"candidate", e.candidate, func(l *headgate.LimitDecision) bool {
			return l.WouldDeny() && l.Origin == headgate.FromCandidate
		}},
	} {
		if set.expected == nil {
			continue
		}
		expected := slices.Sorted(slices.Values(*set.expected))
		if came := ruleIDs(d, set.belongs); !slices.Equal(expected, came) {
			differ(set.key, listed(expected), listed(came))
		}
	}
	return problems
}

// compareLimit is about the one limit that rule and limit name, or the one that matters most.
func (e *expectation) compareLimit(d *headgate.Decision) []string {
	if e.rule == "" && e.remaining == nil && e.retryAfter == nil {
		return nil
	}
	about := e.about(d)
	if about == nil {
		switch {
		case e.rule == "":
			return []string{"expected a limit, but none applied"}
		case e.limit != nil:
			return []string{fmt.Sprintf("rule: expected limit %s of %s, which did not %s", *e.limit, e.rule, didNot(d))}
		}
		return []string{fmt.Sprintf("rule: expected %s, which did not %s", e.rule, didNot(d))}
	}
	var problems []string
	if e.remaining != nil && *e.remaining != about.Remaining {
		problems = append(problems, fmt.Sprintf("remaining: expected %d, came %d (%s)",
			*e.remaining, about.Remaining, limitID(about)))
	}
	if e.retryAfter != nil && !near(*e.retryAfter, about.RetryAfter) {
		problems = append(problems, fmt.Sprintf("retry_after: expected %s, came %s (%s)",
			wait(*e.retryAfter), wait(about.RetryAfter), limitID(about)))
	}
	return problems
}

// didNot is what a rule should have done to a request.
func didNot(d *headgate.Decision) string {
	if d.Allowed {
		return "apply"
	}
	return "deny it"
}

// about is the limit that the expectation is about: of those that denied the request, if it was denied, the one with
// the longest wait; else of those that applied the one with the least remaining.
func (e *expectation) about(d *headgate.Decision) *headgate.LimitDecision {
	var found *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		switch {
		case l.Origin == headgate.FromCandidate || e.rule != "" && l.Rule != e.rule || e.limit != nil && l.Name != *e.limit:
			continue
		case !d.Allowed && !l.Denies():
			continue
		case e.rule == "" && !l.Enforced:
			continue // a limit in shadow says nothing unless it is asked for
		case found == nil:
		case d.Allowed && l.Remaining >= found.Remaining:
			continue
		case !d.Allowed && !longerWait(l.RetryAfter, found.RetryAfter):
			continue
		}
		found = l
	}
	return found
}

func longerWait(a, b time.Duration) bool {
	return b != headgate.Never && (a == headgate.Never || a > b)
}

func near(a, b time.Duration) bool {
	if a == headgate.Never || b == headgate.Never {
		return a == b
	}
	return (a - b).Abs() < closeEnough
}

// ruleIDs are the rules of those limits that belong, each once, sorted.
func ruleIDs(d *headgate.Decision, belongs func(*headgate.LimitDecision) bool) []string {
	var ids []string
	for i := range d.Limits {
		if belongs(&d.Limits[i]) {
			ids = append(ids, d.Limits[i].Rule)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func listed(ids []string) string { return "[" + strings.Join(ids, ", ") + "]" }

// never is headgate.Never in tests.
const never = "never"

func wait(d time.Duration) string {
	if d == headgate.Never {
		return never
	}
	return d.String()
}
