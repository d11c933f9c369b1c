package ruledoc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// TB is the part of testing.TB that Test needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Test runs rule test files as part of a Go test:
//
//	func TestRules(t *testing.T) { ruledoc.Test(t, "rules_test.yaml") }
func Test(t TB, files ...string) {
	t.Helper()
	if len(files) == 0 {
		t.Errorf("no rule tests given: name at least one file")
	}
	for _, file := range files {
		report, err := RunTests(file)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, test := range report.Tests {
			for _, failure := range test.Failures {
				t.Errorf("%s", failure.String())
			}
		}
	}
}

// RunTests runs the rule tests in a file: requests at given times with the expected decisions.
//
//	rules: [rules.yaml]            # as for Load; relative to this file
//	tests:
//	  - name: the eleventh login in a minute is denied
//	    start: 2026-03-01T12:00:00Z    # optional
//	    requests:
//	      - request: {method: POST, path: /api/v1/login, ip: 192.0.2.1}    # attributes, as package identity creates them
//	        repeat: 15
//	        expect: {allowed: 10}
//	      - at: 30s
//	        request: {method: POST, path: /api/v1/login, ip: 192.0.2.1}
//	        cost: 2
//	        expect: {allowed: false, rule: login-by-ip, retry_after: 6s, remaining: 0}
//
// Each test begins with empty counters. at is the time since the start, or an absolute time like start; the default is the
// time of the previous request. repeat sends the request several times, at intervals of every if that is set. duration is how long
// each of them is in flight, for concurrency limits; without it, a request ends before the next one begins.
//
// The key allowed of expect is true or false for each of the repeated requests, or the number of allowed ones. The other
// keys are about the last of them:
//
//	rule         a rule that denied it or, if it was allowed, that applied to it
//	limit        the name of one of that rule's limits
//	remaining    units that remain in that limit; without rule, in the limit with the longest wait or else the least remaining
//	retry_after  time until that limit could allow it, to the millisecond, or never; unknown for a concurrency limit
//	delay        time for which it is delayed
//	rules        all rules that applied
//	shadow       rules in shadow mode that would have denied it
//	candidate    rules whose candidate would have denied it
//
// The error reports problems of the rules or of the file; the latter are of type Errors if the file is readable.
func RunTests(file string) (*TestReport, error) {
	suite, err := loadTests(file)
	if err != nil {
		return nil, err
	}
	report := &TestReport{File: file}
	for i := range suite.tests {
		result, err := suite.run(&suite.tests[i])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: test %q: %w", file, suite.tests[i].line, suite.tests[i].name, err)
		}
		report.Tests = append(report.Tests, result)
	}
	return report, nil
}

// testRun is the state of one test with its own counters and clock.
type testRun struct {
	suite   *testSuite
	test    *ruleTest
	now     time.Time
	limiter *headgate.Limiter
	store   *inFlightStore
	result  TestResult
}

// run runs one test.
func (s *testSuite) run(test *ruleTest) (TestResult, error) {
	r := &testRun{suite: s, test: test, result: TestResult{Name: test.name, Line: test.line}}
	clock := func() time.Time { return r.now }
	r.store = newInFlightStore(memstore.New(memstore.Options{Clock: clock}))
	r.limiter = headgate.NewLimiter(r.store, s.document.Rules, headgate.Options{Clock: clock})
	defer func() { _ = r.limiter.Close(context.Background()) }() // cannot fail: the store always replies
	if err := s.document.Apply(r.limiter); err != nil {
		return r.result, err
	}
	for i := range test.steps {
		if err := r.step(&test.steps[i]); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

// step sends all requests of a step, even after a failure, because later steps may depend on them.
func (r *testRun) step(step *testStep) error {
	var last headgate.Decision
	var allowed int64
	failed := false
	for n := range step.repeat {
		r.now = r.test.start.Add(step.at + time.Duration(n)*step.every)
		decision, err := r.begin(step)
		if err != nil {
			return err
		}
		r.result.Requests++
		if last = decision; decision.Allowed {
			allowed++
		}
		if problems := step.expect.compareEach(&decision); len(problems) > 0 && !failed {
			failed = true
			if err := r.fail(step, n, &decision, problems); err != nil {
				return err
			}
		}
	}
	if problems := step.expect.compareLast(&last, allowed, step.repeat); len(problems) > 0 && !failed {
		return r.fail(step, step.repeat-1, &last, problems)
	}
	return nil
}

// begin sends a request, which is in flight for the step's duration.
func (r *testRun) begin(step *testStep) (headgate.Decision, error) {
	if err := r.store.advance(r.now); err != nil {
		return headgate.Decision{}, err
	}
	decision, err := r.limiter.Begin(context.Background(), step.request)
	if err != nil {
		return headgate.Decision{}, err
	}
	until := r.now
	if decision.Allowed {
		until = until.Add(step.duration)
	}
	return decision, r.store.keep(r.now, until)
}

// fail records that the decision of a request differs from the expected one. Number is its index among the repeated requests.
func (r *testRun) fail(step *testStep, number int64, d *headgate.Decision, problems []string) error {
	explanation, err := r.limiter.Explain(context.Background(), step.request)
	if err != nil {
		return err
	}
	failure := TestFailure{
		File: r.suite.file, Line: step.line, Column: step.column, Test: r.test.name,
		Request: step.describe(number), Problems: problems,
	}
	failure.explain(d, explanation.Rules, step.expect.rule)
	r.result.Failures = append(r.result.Failures, failure)
	return nil
}

// describe formats one of the repeated requests for people.
func (s *testStep) describe(number int64) string {
	var b strings.Builder
	b.WriteString(describeAttributes(s.request.Attributes))
	if s.request.Cost > 1 {
		fmt.Fprintf(&b, ", cost %d", s.request.Cost)
	}
	if s.duration > 0 {
		fmt.Fprintf(&b, ", duration %s", s.duration)
	}
	fmt.Fprintf(&b, ", %s after the start", s.at+time.Duration(number)*s.every)
	if s.repeat > 1 {
		fmt.Fprintf(&b, ", number %d of %d", number+1, s.repeat)
	}
	return b.String()
}
