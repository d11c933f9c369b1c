package ruledoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// TestReport is the result of the rule tests of a file.
type TestReport struct {
	File  string       `json:"file"`
	Tests []TestResult `json:"tests"`
}

// TestResult is the result of one rule test. The test has failed if there are failures.
type TestResult struct {
	Name     string        `json:"name"`
	Line     int           `json:"line"`
	Requests int           `json:"requests"`
	Failures []TestFailure `json:"failures,omitempty"`
}

// TestFailure is a request whose decision differs from the expected one.
type TestFailure struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Test   string `json:"test"`
	// Request describes the request and its time.
	Request string `json:"request"`
	// Problems are the differences from the expected decision.
	Problems []string `json:"problems"`
	// Limits are the decisions of the limits that applied.
	Limits []string `json:"limits,omitempty"`
	// Others are the reasons why other rules did not apply.
	Others []string `json:"others,omitempty"`
}

// Failed returns the number of failed tests.
func (r *TestReport) Failed() int {
	var n int
	for i := range r.Tests {
		if len(r.Tests[i].Failures) > 0 {
			n++
		}
	}
	return n
}

// String returns all failures and a summary line.
func (r *TestReport) String() string {
	var b strings.Builder
	requests := 0
	for _, test := range r.Tests {
		requests += test.Requests
		for _, failure := range test.Failures {
			b.WriteString(failure.String())
			b.WriteString("\n\n")
		}
	}
	if failed := r.Failed(); failed > 0 {
		fmt.Fprintf(&b, "%s: %d of %d tests failed", r.File, failed, len(r.Tests))
	} else {
		fmt.Fprintf(&b, "%s: %d tests passed, with %d requests", r.File, len(r.Tests), requests)
	}
	return b.String()
}

// String returns the position, the request, the differences from the expected decision, and the rules that applied or not.
func (f TestFailure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: test %q\n  request: %s", f.File, f.Line, f.Column, f.Test, f.Request)
	for _, p := range f.Problems {
		b.WriteString("\n  " + p)
	}
	list := func(title string, lines []string) {
		b.WriteString("\n  " + strings.Join(slices.Concat([]string{title}, lines), "\n    "))
	}
	if len(f.Limits) == 0 {
		list("no rule applied", nil)
	} else {
		list("rules that applied:", f.Limits)
	}
	if len(f.Others) > 0 {
		list("rules that did not apply:", f.Others)
	}
	return b.String()
}

// maxOthers is the maximum number of rules shown that did not apply: there may be thousands.
const maxOthers = 10

// explain sets Limits and Others. The expected rule, if it did not apply, is the first of Others.
func (f *TestFailure) explain(d *headgate.Decision, rules []headgate.RuleExplanation, expected string) {
	why := map[string]string{}
	omitted := 0
	for _, r := range rules {
		if r.Applies {
			why[r.Rule.ID] = r.Why
			continue
		}
		line := r.Rule.ID + ": " + r.Why
		switch {
		case r.Rule.ID == expected:
			f.Others = slices.Insert(f.Others, 0, line)
		case len(f.Others) < maxOthers:
			f.Others = append(f.Others, line)
		default:
			omitted++
		}
	}
	if omitted > 0 {
		f.Others = append(f.Others, fmt.Sprintf("and %d more", omitted))
	}
	for i := range d.Limits {
		f.Limits = append(f.Limits, describeLimit(&d.Limits[i], why[d.Limits[i].Rule]))
	}
	for _, r := range rules {
		if r.Applies && r.Rule.Counter != "" {
			f.Limits = append(f.Limits, r.Rule.ID+": "+r.Why)
		}
	}
}

// describeLimit formats the decision of a limit: "login-by-ip (10/minute): denies, 0 remaining, retry after 6s".
func describeLimit(l *headgate.LimitDecision, why string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): ", limitID(l), limitText(&l.Limit))
	switch {
	case l.Denies():
		b.WriteString("denies")
	case l.WouldDeny():
		b.WriteString("would deny")
	default:
		b.WriteString("allows")
	}
	fmt.Fprintf(&b, " a cost of %d, %d remaining", l.Cost, l.Remaining)
	if l.WouldDeny() {
		b.WriteString(", retry after " + wait(l.RetryAfter))
	}
	if l.Delay > 0 {
		b.WriteString(", delay " + l.Delay.String())
	}
	if l.Origin == headgate.FromCandidate {
		why = "candidate"
	}
	if why != "" {
		b.WriteString(" [" + why + "]")
	}
	return b.String()
}

// limitID returns the rule's ID, and the limit's name if it has one.
func limitID(l *headgate.LimitDecision) string {
	if l.Name == "" {
		return l.Rule
	}
	return l.Rule + ", limit " + l.Name
}

// limitText formats a limit in a short form.
func limitText(l *headgate.Limit) string {
	if l.Algorithm == headgate.Concurrency {
		return l.String()
	}
	if l.Calendar != headgate.NoCalendar {
		zone := time.UTC
		if l.TimeZone != nil {
			zone = l.TimeZone
		}
		return fmt.Sprintf("%d per %s in %s", l.Count, l.Calendar, zone)
	}
	parts := fmt.Sprintf("%d/%s", l.Count, windowText(l.Window))
	if l.Burst != 0 && l.Burst != l.Count {
		parts += fmt.Sprintf(", burst %d", l.Burst)
	}
	return parts + ", " + l.Algorithm.String()
}

// describeAttributes formats a request for people: "POST /api/v1/login, ip 192.0.2.1".
func describeAttributes(a headgate.Attributes) string {
	var parts []string
	if line := strings.TrimSpace(a["method"] + " " + a["path"]); line != "" {
		parts = append(parts, line)
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if name != "method" && name != "path" {
			parts = append(parts, name+" "+a[name])
		}
	}
	if len(parts) == 0 {
		return "no attributes"
	}
	return strings.Join(parts, ", ")
}
