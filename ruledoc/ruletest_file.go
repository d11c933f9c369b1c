package ruledoc

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// maxRepeat bounds the duration of a test.
const maxRepeat = 1_000_000

// defaultStart is the start of a test without the key start. It is the start of a year, month, day, hour and minute.
var defaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// testSuite is a rule test file.
type testSuite struct {
	file     string
	document *Document
	tests    []ruleTest

	paths   []string
	entries []*node // the tests, which are decoded after the rules
}

type ruleTest struct {
	name     string
	line     int
	start    time.Time
	steps    []testStep
	requests []*node
}

// testStep is a request that is sent once or repeatedly.
type testStep struct {
	line, column int
	at, every    time.Duration // since the start
	duration     time.Duration // for which a request is in flight
	repeat       int64
	request      headgate.Request
	expect       expectation

	time, expected *node
}

var suiteFields = []testField[testSuite]{
	{Key: "rules", Read: func(d *decoder, n *node, key string, s *testSuite) { s.paths = d.Texts(n, key) }},
	{Key: "tests", Read: func(d *decoder, n *node, key string, s *testSuite) { s.entries = d.list(n, key) }},
}

var testFields = []testField[ruleTest]{
	{Key: "name", Read: func(d *decoder, n *node, key string, t *ruleTest) { t.name, _ = d.Text(n, key) }},
	{Key: "start", Read: func(d *decoder, n *node, key string, t *ruleTest) { t.start = d.Time(n, key) }},
	{Key: "requests", Read: func(d *decoder, n *node, key string, t *ruleTest) {
		t.requests = d.list(n, key)
	}},
}

var stepFields = []testField[testStep]{
	{Key: "at", Read: func(_ *decoder, n *node, _ string, s *testStep) { s.time = n }},
	{Key: "every", Read: func(d *decoder, n *node, key string, s *testStep) { s.every = d.notNegative(n, key) }},
	{Key: "repeat", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.repeat = d.intBetween(n, key, 1, maxRepeat)
	}},
	{Key: "request", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.request.Attributes = d.attributes(n, key)
	}},
	{Key: "cost", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.request.Cost = d.intBetween(n, key, 1, headgate.MaxCost)
	}},
	{Key: "duration", Read: func(d *decoder, n *node, key string, s *testStep) { s.duration = d.notNegative(n, key) }},
	{Key: "expect", Read: func(_ *decoder, n *node, _ string, s *testStep) { s.expected = n }},
}

// loadTests reads a rule test file and the rule files that it names.
func loadTests(file string) (*testSuite, error) {
	data, err := yamldoc.ReadFile(file, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("rule tests: %w", err)
	}
	s := &testSuite{file: file}
	var rulesErr error
	r := newReader(source{Name: file, Data: data})
	r.readOne("the file is empty: write a document with rules and tests", func(d *decoder, n *node) { rulesErr = s.read(d, n) })
	if err := errors.Join(rulesErr, r.errors()); err != nil {
		return nil, err
	}
	return s, nil
}

// read decodes the whole file. It returns the error of loading the rules, and checks the tests even if that fails.
func (s *testSuite) read(d *decoder, n *node) error {
	yamldoc.Fields(d, n, "a rule test file", suiteFields, s)
	for i, path := range s.paths {
		if !filepath.IsAbs(path) {
			s.paths[i] = filepath.Join(filepath.Dir(s.file), path)
		}
	}
	var err error
	if len(s.paths) > 0 {
		s.document, err = Load(s.paths...)
	}
	d.require(n, "a rule test file", "rules", len(s.paths) > 0)
	d.require(n, "a rule test file", "tests", len(s.entries) > 0)
	lines := map[string]int{}
	for _, entry := range s.entries {
		t := s.test(d, entry)
		if line, ok := lines[t.name]; ok && t.name != "" {
			d.Bad(entry.Find([]string{"name"}), "name: duplicate test name, first on line %d: rename one of them", line)
		}
		lines[t.name] = t.line
		s.tests = append(s.tests, t)
	}
	return err
}

func (s *testSuite) test(d *decoder, n *node) ruleTest {
	t := ruleTest{line: n.Line, start: defaultStart}
	yamldoc.Fields(d, n, "a test", testFields, &t)
	d.require(n, "a test", "name", t.name != "")
	d.require(n, "a test", "requests", len(t.requests) > 0)
	var now time.Duration
	for _, request := range t.requests {
		step := testStep{line: request.Line, column: request.Column, at: now, repeat: 1}
		yamldoc.Fields(d, request, "a request of a test", stepFields, &step)
		d.require(request, "a request of a test", "request", step.request.Attributes != nil)
		step.setTime(d, t.start, now)
		if step.expected != nil {
			step.expect = s.expectation(d, step.expected, step.repeat)
		}
		now = step.at + time.Duration(step.repeat-1)*step.every
		t.steps = append(t.steps, step)
	}
	return t
}

// setTime decodes the time of the request: a duration since the start, or an absolute time.
func (s *testStep) setTime(d *decoder, start time.Time, now time.Duration) {
	if s.time == nil {
		return
	}
	if at, err := time.Parse(time.RFC3339, s.time.Text); err == nil {
		s.at = at.Sub(start)
	} else {
		s.at = d.Duration(s.time, "at")
	}
	if s.at < now {
		d.Bad(s.time, "at: must not be before the previous request, which is %s after the start; this one is %s after it", now, s.at)
		s.at = now
	}
}

// parsedExpectation is an expectation with the state that only decoding needs.
type parsedExpectation struct {
	expectation
	suite  *testSuite
	repeat int64
	name   *node // of the limit
}

var expectFields = []testField[parsedExpectation]{
	{Key: "allowed", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		if n.Kind != yamldoc.Number {
			e.each, e.allowed = true, d.Bool(n, key)
			return
		}
		e.count = new(d.intBetween(n, key, 0, e.repeat))
	}},
	{Key: "rule", Read: func(d *decoder, n *node, key string, e *parsedExpectation) { e.rule = e.suite.ruleID(d, n, key) }},
	{Key: "limit", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		name, _ := d.Text(n, key)
		e.limit, e.name = &name, n
	}},
	{Key: "remaining", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		e.remaining = new(d.intBetween(n, key, 0, headgate.MaxCost))
	}},
	{Key: "retry_after", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		switch n.Text {
		case never:
			e.retryAfter = new(headgate.Never)
		case unknown:
			e.retryAfter = new(headgate.Unknown)
		default:
			e.retryAfter = new(d.notNegative(n, key))
		}
	}},
	{Key: "delay", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		e.delay = new(d.notNegative(n, key))
	}},
	{Key: "rules", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		e.rules = e.suite.ruleIDs(d, n, key)
	}},
	{Key: "shadow", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		e.shadow = e.suite.ruleIDs(d, n, key)
	}},
	{Key: "candidate", Read: func(d *decoder, n *node, key string, e *parsedExpectation) {
		e.candidate = e.suite.ruleIDs(d, n, key)
	}},
}

func (s *testSuite) expectation(d *decoder, n *node, repeat int64) expectation {
	e := parsedExpectation{suite: s, repeat: repeat}
	yamldoc.Fields(d, n, "expect", expectFields, &e)
	if n.Kind == yamldoc.Mapping && len(n.Entries) == 0 {
		d.Bad(n, "expect: must not be empty: write expect: {allowed: true}, or remove it")
	}
	if e.limit != nil && e.rule == "" {
		d.Bad(e.name, "limit: requires rule: add the rule that has the limit")
	}
	if e.limit == nil || s.document == nil {
		return e.expectation
	}
	for _, rule := range s.document.Source {
		if _, ok := rule.Limits[*e.limit]; rule.ID == e.rule && !ok {
			d.notFound(e.name, fmt.Sprintf("limit %q not found in rule %q", yamldoc.Shorten(*e.limit), rule.ID), *e.limit, slices.Sorted(maps.Keys(rule.Limits)))
		}
	}
	return e.expectation
}

// ruleID decodes the ID of a rule, which must exist. It is not checked if the rules could not be loaded.
func (s *testSuite) ruleID(d *decoder, n *node, key string) string {
	id, ok := d.Text(n, key)
	if !ok || s.document == nil {
		return id
	}
	var known []string
	for _, rule := range s.document.Source {
		if known = append(known, rule.ID); rule.ID == id && rule.Counter != "" {
			d.Bad(n, "%s", chargesOther(&rule))
		}
	}
	if !slices.Contains(known, id) {
		d.notFound(n, ruleNotFound(id), id, known)
	}
	return id
}

func (s *testSuite) ruleIDs(d *decoder, n *node, key string) *[]string {
	ids := []string{}
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s: must be a list of rules, like [login-by-ip], or [] for none", key)
	}
	for _, item := range n.Items {
		ids = append(ids, s.ruleID(d, item, key))
	}
	return &ids
}

// attributes decodes a request's attributes. Numbers need no quotes here, because attributes are always text.
func (d *decoder) attributes(n *node, key string) headgate.Attributes {
	attributes := headgate.Attributes{}
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s: must map attributes to values, like {method: GET, path: /, ip: 192.0.2.1}, not %s", key, n.Describe())
	}
	for _, e := range n.Entries {
		if problem := attributeProblem(e.Key.Text); problem != "" {
			d.Bad(e.Key, "%s", problem)
		} else if e.Value.Kind == yamldoc.Number {
			attributes[e.Key.Text] = e.Value.Text
		} else if d.HasValue(e) {
			attributes[e.Key.Text], _ = d.Text(e.Value, e.Key.Text)
		}
	}
	return attributes
}

// attributeProblem returns the problem of an attribute's name, or "". It compiles a rule, which checks the name.
func attributeProblem(name string) string {
	if name == headgate.OtherPath || name == headgate.OtherMethod {
		return ""
	}
	_, err := headgate.Compile(headgate.Rule{ID: "any", By: []string{name}, Limit: headgate.PerSecond(1)})
	if problem, ok := errors.AsType[*headgate.RuleError](err); ok {
		return problem.Problem
	}
	return ""
}

// require reports a key that is missing or empty.
func (d *decoder) require(n *node, what, key string, present bool) {
	if !present && n.Kind == yamldoc.Mapping {
		d.Bad(n.Find([]string{key}), "%s: required in %s", key, what)
	}
}

// intBetween decodes an integer between two bounds, inclusive.
func (d *decoder) intBetween(n *node, key string, minimum, maximum int64) int64 {
	v := d.Int(n, key, minimum, "")
	if v > maximum {
		d.Bad(n, "%s %d: must be %d to %d", key, v, minimum, maximum)
	}
	return max(v, minimum)
}

// notNegative decodes a duration of 0 or more.
func (d *decoder) notNegative(n *node, key string) time.Duration {
	v := d.Duration(n, key)
	if v < 0 {
		d.Bad(n, "%s %s: must be 0s or more", key, v)
	}
	return max(v, 0)
}
