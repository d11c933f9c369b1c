package ruledoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func TestExampleRules(t *testing.T) {
	t.Parallel()
	Test(t, "../examples/rules/rules_test.yaml")
}

const testedRules = `
rules:
  - id: login
    match: {path: /login}
    by: [ip]
    limit: 2/minute
    candidate: 1/minute
  - id: exports
    match: {path: /exports}
    by: []
    limits:
      peak: 1/second
      day: {quota: 3, calendar: day}
  - id: calm
    match: {path: /calm}
    by: [ip]
    limit: {rate: 1/second, algorithm: leaky_bucket}
    max_delay: 5s
  - id: shy
    match: {path: [/shy, /both]}
    by: [ip]
    limit: 1/minute
    mode: shadow
  - id: pair
    match: {path: /both}
    by: []
    limits: {long: 2/hour, short: 3/minute}
`

// testFile writes a rule file and a test file, and returns the path of the test file.
func testFile(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), testedRules)
	path := filepath.Join(dir, "rules_test.yaml")
	write(t, path, strings.TrimPrefix(tests, "\n"))
	return path
}

// TestExpectations checks that every key of expect passes with the actual value, and fails with another one.
func TestExpectations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ request, right, wrong, problem string }{
		{
			"request: {path: /login, ip: a}", "allowed: true", "allowed: false",
			"allowed: expected false, got true",
		},
		{
			"repeat: 5, request: {path: /login, ip: a}", "allowed: 2", "allowed: 3",
			"allowed: expected 3 of 5, got 2 of 5",
		},
		{
			"repeat: 5, request: {path: /login, ip: a}", "rule: login", "rule: exports",
			"rule: expected exports, which did not deny it",
		},
		{
			"request: {path: /login, ip: a}", "allowed: true, rule: login", "rule: exports",
			"rule: expected exports, which did not apply",
		},
		{
			"repeat: 2, request: {path: /exports}", "rule: exports, limit: peak", "rule: exports, limit: day",
			"rule: expected limit day of exports, which did not deny it",
		},
		{
			"request: {path: /exports}", "rule: exports, limit: day, remaining: 2", "rule: exports, limit: day, remaining: 3",
			"remaining: expected 3, got 2 (exports, limit day)",
		},
		{
			"request: {path: /exports}", "remaining: 0", "remaining: 2",
			"remaining: expected 2, got 0 (exports, limit peak)",
		},
		{
			"request: {path: /nowhere}", "rules: []", "remaining: 2",
			"expected a limit, but none applied",
		},
		{
			"repeat: 3, every: 10s, request: {path: /login, ip: a}", "retry_after: 10s", "retry_after: 11s",
			"retry_after: expected 11s, got 10s (login)",
		},
		{
			"cost: 3, request: {path: /login, ip: a}", "retry_after: never", "retry_after: 1m",
			"retry_after: expected 1m0s, got never (login)",
		},
		{
			"repeat: 3, request: {path: /calm, ip: a}", "delay: 2s", "delay: 0s",
			"delay: expected 0s, got 2s",
		},
		{
			"repeat: 2, request: {path: /login, ip: a}", "candidate: [login]", "candidate: []",
			"candidate: expected [], got [login]",
		},
		{
			"repeat: 2, request: {path: /shy, ip: a}", "allowed: true, shadow: [shy]", "shadow: [login]",
			"shadow: expected [login], got [shy]",
		},
		{
			"repeat: 2, request: {path: /login, ip: a}", "shadow: []", "shadow: [login]",
			"shadow: expected [login], got []",
		},
		{
			"request: {path: /both}", "remaining: 1", "remaining: 0", // of pair: shy is in shadow
			"remaining: expected 0, got 1 (pair, limit long)",
		},
		{
			"repeat: 2, cost: 2, request: {path: /both}", "retry_after: 1h", "retry_after: 20s",
			"retry_after: expected 20s, got 1h0m0s (pair, limit long)",
		},
		{
			"request: {path: /shy, ip: a}", "rules: [shy]", "rules: [login, shy]",
			"rules: expected [login, shy], got [shy]",
		},
	} {
		file := testFile(t, fmt.Sprintf(`
rules: rules.yaml
tests:
  - {name: right, requests: [{%s, expect: {%s}}]}
  - {name: wrong, requests: [{%s, expect: {%s}}]}
`, c.request, c.right, c.request, c.wrong))
		report, err := RunTests(file)
		if err != nil {
			t.Errorf("%s: %v", c.right, err)
			continue
		}
		if failures := report.Tests[0].Failures; len(failures) != 0 {
			t.Errorf("%s: %s", c.right, failures[0])
		}
		failures := report.Tests[1].Failures
		if len(failures) != 1 || !slices.Equal(failures[0].Problems, []string{c.problem}) {
			t.Errorf("%s: failures %v, want %q", c.wrong, failures, c.problem)
		}
	}
}

func TestFailureReport(t *testing.T) {
	t.Parallel()
	file := testFile(t, `
rules: [rules.yaml]
tests:
  - name: logins
    requests:
      - {request: {method: POST, path: /login, ip: 192.0.2.1}, repeat: 3, every: 5s, expect: {allowed: true}}
      - at: 1m
        request: {path: /exports, header.x-rows: 7}
        cost: 2
        expect: {allowed: false, rule: login, remaining: 1}
  - name: fresh counters
    requests:
      - {request: {path: /login, ip: 192.0.2.1}, expect: {allowed: true, rule: login, remaining: 1}}
`)
	report, err := RunTests(file)
	must(t, err)
	want := strings.ReplaceAll(`FILE:5:9: test "logins"
  request: POST /login, ip 192.0.2.1, 10s after the start, number 3 of 3
  allowed: expected true, got false
  rules that applied:
    login (2/minute, token_bucket): denies a cost of 1, 0 remaining, retry after 20s
    login (1/minute, token_bucket): would deny a cost of 1, 0 remaining, retry after 50s [candidate]
  rules that did not apply:
    exports: path is /login, not /exports
    calm: path is /login, not /calm
    shy: path is /login, not /shy or /both
    pair: path is /login, not /both

FILE:6:9: test "logins"
  request: /exports, header.x-rows 7, cost 2, 1m0s after the start
  rule: expected login, which did not deny it
  rules that applied:
    exports, limit day (3 per day in UTC): allows a cost of 2, 3 remaining
    exports, limit peak (1/second, token_bucket): denies a cost of 2, 1 remaining, retry after never
  rules that did not apply:
    login: path is /exports, not /login
    calm: path is /exports, not /calm
    shy: path is /exports, not /shy or /both
    pair: path is /exports, not /both

FILE: 1 of 2 tests failed`, "FILE", file)
	if got := report.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if report.Failed() != 1 || report.Tests[0].Requests != 4 {
		t.Errorf("%d failed, %d requests", report.Failed(), report.Tests[0].Requests)
	}
	data, err := json.Marshal(report)
	must(t, err)
	for _, key := range []string{`"file":`, `"tests":`, `"failures":`, `"line":5,"column":9`, `"problems":["allowed: `} {
		if !strings.Contains(string(data), key) {
			t.Errorf("%s is not in %s", key, data)
		}
	}
}

// TestFailureReportOfSharedCounter reports a rule that applies without limits of its own, and rejects expectations of it.
func TestFailureReportOfSharedCounter(t *testing.T) {
	t.Parallel()
	file := testFile(t, `
rules: [shared.yaml]
tests:
  - name: shared
    requests:
      - {request: {path: /reports, ip: a}, expect: {rule: api, remaining: 7}}
`)
	write(t, filepath.Join(filepath.Dir(file), "shared.yaml"), `
rules:
  - {id: api, match: {path: /api}, by: [ip], limit: 10/minute}
  - {id: reports, match: {path: /reports}, counter: api, cost: 4}
`)
	report, err := RunTests(file)
	must(t, err)
	want := []string{"api (10/minute, token_bucket): allows a cost of 4, 6 remaining", `reports: charges the counters of rule "api"`}
	if failures := report.Tests[0].Failures; len(failures) != 1 || !slices.Equal(failures[0].Limits, want) {
		t.Errorf("%+v", failures)
	}
	write(t, file, "rules: [shared.yaml]\ntests:\n  - {name: a, requests: [{request: {path: /reports}, expect: {rules: [reports]}}]}\n")
	if _, err := RunTests(file); err == nil || !strings.Contains(err.Error(), `:3:71: rule "reports" charges the counters of rule "api": write api`) {
		t.Error(err)
	}
}

func TestFailureShowsSomeOfManyRules(t *testing.T) {
	t.Parallel()
	var rules []headgate.RuleExplanation
	for i := range 30 {
		rules = append(rules, headgate.RuleExplanation{Rule: headgate.Rule{ID: strconv.Itoa(i)}, Why: "why"})
	}
	var f TestFailure
	f.explain(&headgate.Decision{}, rules, "29")
	if len(f.Others) != maxOthers+2 || f.Others[0] != "29: why" || f.Others[maxOthers+1] != "and 19 more" {
		t.Errorf("%d lines: %q", len(f.Others), f.Others)
	}
}

func TestBadTestFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{
			"everything at once", `
rules: rules.yaml
tsets: []
tests:
  - name: one
    start: yesterday
    requests:
      - {at: 30s, request: {path: /login, ipp: a}, expect: {allowed2: true}}
      - {at: 10s, request: {path: /login}, repeat: 0, every: -1s, expect: {rule: logins, retry_after: soon}}
      - {request: [a], cost: 2000000000, expect: {limit: peak}}
      - {request: {path: {}}, repeat: 2, expect: {allowed: 3, rules: login, rule: exports, limit: peek}}
      - {expect: {}}
  - {name: one, requests: []}
  - {requests: [{request: {}, expect: {remaining: -1}}]}
`,
			[]string{
				`2:1: unknown key "tsets"; did you mean "tests"?`,
				`5:12: start: must be a time`,
				`7:43: unknown attribute "ipp"`,
				`7:61: unknown key "allowed2"; did you mean "allowed"?`,
				`8:14: at: must not be before the previous request, which is 30s after the start; this one is 10s after it`,
				`8:52: repeat 0: must be 1 or more`,
				`8:62: every -1s: must be 0s or more`,
				`8:82: rule "logins" not found; did you mean "login"?`,
				`8:103: retry_after: must be a duration`,
				`9:19: request: must map attributes to values`,
				`9:30: cost 2000000000: must be 1 to 1000000000`,
				`9:58: limit: requires rule`,
				`10:26: path: must be text, not a mapping`,
				`10:60: allowed 3: must be 0 to 2`,
				`10:70: rules: must be a list of rules`,
				`10:99: limit "peek" not found in rule "exports"; did you mean "peak"?`,
				`11:9: request: required in a request of a test`,
				`11:18: expect: must not be empty`,
				`12:12: name: duplicate test name, first on line 4`,
				`12:27: requests: required in a test`,
				`13:5: name: required in a test`,
				`13:51: remaining -1: must be 0 or more`,
			},
		},
		{"nothing", "", []string{"1:1: the file is empty: write a document with rules and tests"}},
		{"no tests", "rules: rules.yaml\n", []string{"1:1: tests: required in a rule test file"}},
		{"no rules", "tests: [{name: a, requests: [{request: {}}]}]\n", []string{"1:1: rules: required in a rule test file"}},
		{"no YAML", "rules: [\n", []string{"1:8: [ is never closed"}},
		{"no text", "rules: \x00\n", []string{"1:8: control character U+0000: remove it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := testFile(t, c.text)
			_, err := RunTests(file)
			var problems Errors
			if !errors.As(err, &problems) {
				t.Fatalf("error %v", err)
			}
			for i, p := range problems {
				got := fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Problem)
				if i >= len(c.want) || !strings.HasPrefix(got, c.want[i]) || p.File != file {
					t.Errorf("problem %d is\n%s\nwant %q", i, got, slices.Concat(c.want, make([]string, len(problems)))[i])
				}
			}
			if len(problems) < len(c.want) {
				t.Errorf("%d problems, want %d", len(problems), len(c.want))
			}
		})
	}
}

// recorder is a TB that records errors.
type recorder struct{ errors []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestTestReportsToItsTB(t *testing.T) {
	t.Parallel()
	bad := testFile(t, "rules: none.yaml\ntests: [{name: a, requests: [{request: {}, expect: {rule: b}, nonsense: 1}]}]\n")
	failing := testFile(t, "rules: rules.yaml\ntests: [{name: a, requests: [{request: {}, expect: {allowed: false}}]}]\n")
	for name, c := range map[string]struct {
		files []string
		want  []string
	}{
		"none":    {nil, []string{"no rule tests given: name at least one file"}},
		"missing": {[]string{"nowhere_test.yaml"}, []string{"nowhere_test.yaml"}},
		"bad, and the rules too": {
			[]string{bad, failing},
			[]string{`unknown key "nonsense"`, "allowed: expected false, got true"},
		},
	} {
		var r recorder
		Test(&r, c.files...)
		if len(r.errors) != len(c.want) {
			t.Errorf("%s: %q", name, r.errors)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(r.errors[i], want) {
				t.Errorf("%s: %q does not contain %q", name, r.errors[i], want)
			}
		}
	}
	var r recorder
	Test(&r, bad)
	if !strings.Contains(r.errors[0], "none.yaml") {
		t.Errorf("%q does not name the missing rule file", r.errors[0])
	}
}
