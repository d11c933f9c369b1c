package ruledoc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// tolerance is the accepted difference of a wait, so that a test need not write 8.571429s.
const tolerance = time.Millisecond

// expectation is the expected decision of a request. Fields that are nil or empty are not compared.
type expectation struct {
	each, allowed bool   // if each, all of the repeated requests must be allowed or denied
	count         *int64 // number of repeated requests that are allowed
	rule          string
	limit         *string
	remaining     *int64
	retryAfter    *time.Duration
	delay         *time.Duration
	rules         *[]string
	shadow        *[]string
	candidate     *[]string
}

// compareEach compares the decision of one of the repeated requests and returns the differences.
func (e *expectation) compareEach(d *headgate.Decision) []string {
	if e.each && d.Allowed != e.allowed {
		return []string{fmt.Sprintf("allowed: expected %t, got %t", e.allowed, d.Allowed)}
	}
	return nil
}

// compareLast compares the decision of the last repeated request and the number of allowed ones, and returns the differences.
func (e *expectation) compareLast(d *headgate.Decision, allowed, repeat int64) []string {
	var problems []string
	differ := func(key string, expected, got any) {
		problems = append(problems, fmt.Sprintf("%s: expected %v, got %v", key, expected, got))
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
		if got := ruleIDs(d, set.belongs); !slices.Equal(expected, got) {
			differ(set.key, listed(expected), listed(got))
		}
	}
	return problems
}

// compareLimit compares the decision of the limit that decisiveLimit selects, and returns the differences.
func (e *expectation) compareLimit(d *headgate.Decision) []string {
	if e.rule == "" && e.remaining == nil && e.retryAfter == nil {
		return nil
	}
	limit := e.decisiveLimit(d)
	if limit == nil {
		switch {
		case e.rule == "":
			return []string{"expected a limit, but none applied"}
		case e.limit != nil:
			return []string{fmt.Sprintf("rule: expected limit %s of %s, which did not %s", *e.limit, e.rule, missingEffect(d))}
		}
		return []string{fmt.Sprintf("rule: expected %s, which did not %s", e.rule, missingEffect(d))}
	}
	var problems []string
	if e.remaining != nil && *e.remaining != limit.Remaining {
		problems = append(problems, fmt.Sprintf("remaining: expected %d, got %d (%s)",
			*e.remaining, limit.Remaining, limitID(limit)))
	}
	if e.retryAfter != nil && !near(*e.retryAfter, limit.RetryAfter) {
		problems = append(problems, fmt.Sprintf("retry_after: expected %s, got %s (%s)",
			wait(*e.retryAfter), wait(limit.RetryAfter), limitID(limit)))
	}
	return problems
}

// missingEffect returns what an expected rule did not do to a request.
func missingEffect(d *headgate.Decision) string {
	if d.Allowed {
		return "apply"
	}
	return "deny it"
}

// decisiveLimit returns the limit that the expectation is about. If the request was denied, it is the denying limit with the
// longest wait; otherwise the limit with the least remaining. Rule and limit, if expected, restrict the choice.
func (e *expectation) decisiveLimit(d *headgate.Decision) *headgate.LimitDecision {
	var found *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		switch {
		case l.Origin == headgate.FromCandidate || e.rule != "" && l.Rule != e.rule || e.limit != nil && l.Name != *e.limit:
			continue
		case !d.Allowed && !l.Denies():
			continue
		case e.rule == "" && !l.Enforced:
			continue // a limit in shadow mode counts only if its rule is expected
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

// longerWait reports whether a is longer than b; Never is the longest, and Unknown shorter than any known wait.
func longerWait(a, b time.Duration) bool {
	switch {
	case b == headgate.Never:
		return false
	case a == headgate.Unknown:
		return b == 0
	}
	return a == headgate.Never || a > b
}

// near reports whether two waits differ by less than the tolerance.
func near(a, b time.Duration) bool {
	if a < 0 || b < 0 {
		return a == b
	}
	return (a - b).Abs() < tolerance
}

// ruleIDs returns the sorted, unique IDs of the rules whose limits belong.
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

// never and unknown are the words for headgate.Never and headgate.Unknown in test files.
const (
	never   = "never"
	unknown = "unknown"
)

func wait(d time.Duration) string {
	if d == headgate.Never {
		return never
	}
	if d == headgate.Unknown {
		return unknown
	}
	return d.String()
}
