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

// maxRepeat bounds how long a test can take.
const maxRepeat = 1_000_000

// defaultStart is when a test begins that does not say: together with a year, month, day, hour and minute.
var defaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// testSuite is a file of rule tests.
type testSuite struct {
	file     string
	document *Document
	tests    []ruleTest

	paths   []string
	entries []*node // the tests, to be read when the rules are known
}

type ruleTest struct {
	name     string
	line     int
	start    time.Time
	steps    []testStep
	requests []*node
}

// testStep is a request, or several of the same.
type testStep struct {
	line, column int
	at, every    time.Duration // since the start
	repeat       int64
	request      headgate.Request
	expect       expectation

	time, expected *node
}

var suiteFields = []testField[testSuite]{
	{Key: "rules", Read: func(d *decoder, n *node, key string, s *testSuite) { s.paths = d.Texts(n, key) }},
	{Key: "tests", Read: func(d *decoder, n *node, key string, s *testSuite) { s.entries = d.list(n, key, "tests") }},
}

var testFields = []testField[ruleTest]{
	{Key: "name", Read: func(d *decoder, n *node, key string, t *ruleTest) { t.name, _ = d.Text(n, key) }},
	{Key: "start", Read: func(d *decoder, n *node, key string, t *ruleTest) { t.start = d.Time(n, key) }},
	{Key: "requests", Read: func(d *decoder, n *node, key string, t *ruleTest) {
		t.requests = d.list(n, key, "requests")
	}},
}

var stepFields = []testField[testStep]{
	{Key: "at", Read: func(_ *decoder, n *node, _ string, s *testStep) { s.time = n }},
	{Key: "every", Read: func(d *decoder, n *node, key string, s *testStep) { s.every = d.notNegative(n, key) }},
	{Key: "repeat", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.repeat = d.within(n, key, 1, maxRepeat)
	}},
	{Key: "request", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.request.Attributes = d.attributes(n, key)
	}},
	{Key: "cost", Read: func(d *decoder, n *node, key string, s *testStep) {
		s.request.Cost = d.within(n, key, 1, headgate.MaxCost)
	}},
	{Key: "expect", Read: func(_ *decoder, n *node, _ string, s *testStep) { s.expected = n }},
}

// loadTests reads a file of tests, and the rules that it names.
func loadTests(file string) (*testSuite, error) {
	data, err := yamldoc.ReadFile(file, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("rule tests: %w", err)
	}
	s := &testSuite{file: file}
	var rulesErr error
	r := newReader(source{Name: file, Data: data})
	r.readOne("a file of rule tests is one document with rules and tests", func(d *decoder, n *node) { rulesErr = s.read(d, n) })
	if err := errors.Join(rulesErr, r.errors()); err != nil {
		return nil, err
	}
	return s, nil
}

// read reads the whole file. What is wrong with the rules is the error; the tests are checked all the same.
func (s *testSuite) read(d *decoder, n *node) error {
	yamldoc.Fields(d, n, "a file of rule tests", suiteFields, s)
	for i, path := range s.paths {
		if !filepath.IsAbs(path) {
			s.paths[i] = filepath.Join(filepath.Dir(s.file), path)
		}
	}
	var err error
	if len(s.paths) > 0 {
		s.document, err = Load(s.paths...)
	}
	d.needs(n, "a file of rule tests", "rules", len(s.paths) > 0)
	d.needs(n, "a file of rule tests", "tests", len(s.entries) > 0)
	lines := map[string]int{}
	for _, entry := range s.entries {
		t := s.test(d, entry)
		if line, ok := lines[t.name]; ok && t.name != "" {
			d.Bad(entry.Find([]string{"name"}), "there is a test of this name in line %d: give each its own", line)
		}
		lines[t.name] = t.line
		s.tests = append(s.tests, t)
	}
	return err
}

func (s *testSuite) test(d *decoder, n *node) ruleTest {
	t := ruleTest{line: n.Line, start: defaultStart}
	yamldoc.Fields(d, n, "a test", testFields, &t)
	d.needs(n, "a test", "name", t.name != "")
	d.needs(n, "a test", "requests", len(t.requests) > 0)
	var now time.Duration
	for _, request := range t.requests {
		step := testStep{line: request.Line, column: request.Column, at: now, repeat: 1}
		yamldoc.Fields(d, request, "a request of a test", stepFields, &step)
		d.needs(request, "a request of a test", "request", step.request.Attributes != nil)
		step.setTime(d, t.start, now)
		if step.expected != nil {
			step.expect = s.expectation(d, step.expected, step.repeat)
		}
		now = step.at + time.Duration(step.repeat-1)*step.every
		t.steps = append(t.steps, step)
	}
	return t
}

// setTime reads when the request comes: so long after the start, or at a time of day.
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
		d.Bad(s.time, "time does not go back: the request before this one is %s after the start, and this is %s", now, s.at)
		s.at = now
	}
}

// readExpectation is an expectation with what only matters while it is read.
type readExpectation struct {
	expectation
	suite  *testSuite
	repeat int64
	name   *node // of the limit
}

var expectFields = []testField[readExpectation]{
	{Key: "allowed", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		if n.Kind != yamldoc.Number {
			e.each, e.allowed = true, d.Bool(n, key)
			return
		}
		e.count = new(d.within(n, key, 0, e.repeat))
	}},
	{Key: "rule", Read: func(d *decoder, n *node, key string, e *readExpectation) { e.rule = e.suite.ruleID(d, n, key) }},
	{Key: "limit", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		name, _ := d.Text(n, key)
		e.limit, e.name = &name, n
	}},
	{Key: "remaining", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		e.remaining = new(d.within(n, key, 0, headgate.MaxCost))
	}},
	{Key: "retry_after", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		wait := headgate.Never
		if n.Text != never {
			wait = d.notNegative(n, key)
		}
		e.retryAfter = &wait
	}},
	{Key: "delay", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		e.delay = new(d.notNegative(n, key))
	}},
	{Key: "rules", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		e.rules = e.suite.ruleIDs(d, n, key)
	}},
	{Key: "shadow", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		e.shadow = e.suite.ruleIDs(d, n, key)
	}},
	{Key: "candidate", Read: func(d *decoder, n *node, key string, e *readExpectation) {
		e.candidate = e.suite.ruleIDs(d, n, key)
	}},
}

func (s *testSuite) expectation(d *decoder, n *node, repeat int64) expectation {
	e := readExpectation{suite: s, repeat: repeat}
	yamldoc.Fields(d, n, "expect", expectFields, &e)
	if n.Kind == yamldoc.Mapping && len(n.Entries) == 0 {
		d.Bad(n, "this expects nothing: write expect: {allowed: true}, or remove it")
	}
	if e.limit != nil && e.rule == "" {
		d.Bad(e.name, "limit is the name of one of a rule's limits: write which rule, too")
	}
	if e.limit == nil || s.document == nil {
		return e.expectation
	}
	for _, rule := range s.document.Source {
		if _, ok := rule.Limits[*e.limit]; rule.ID == e.rule && !ok {
			d.notThere(e.name, fmt.Sprintf("rule %q has no limit", rule.ID), *e.limit, slices.Sorted(maps.Keys(rule.Limits)))
		}
	}
	return e.expectation
}

// ruleID reads the ID of a rule, which must exist; nothing can be said of that if the rules are bad themselves.
func (s *testSuite) ruleID(d *decoder, n *node, key string) string {
	id, ok := d.Text(n, key)
	if !ok || s.document == nil {
		return id
	}
	var known []string
	for _, rule := range s.document.Source {
		known = append(known, rule.ID)
	}
	if !slices.Contains(known, id) {
		d.notThere(n, noRule, id, known)
	}
	return id
}

func (s *testSuite) ruleIDs(d *decoder, n *node, key string) *[]string {
	ids := []string{}
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s wants a list of rules: [login-by-ip], or [] for none", key)
	}
	for _, item := range n.Items {
		ids = append(ids, s.ruleID(d, item, key))
	}
	return &ids
}

// attributes reads a request's attributes. Numbers need no quotes here: a header holds text in any case.
func (d *decoder) attributes(n *node, key string) headgate.Attributes {
	attributes := headgate.Attributes{}
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants attributes with values, {method: GET, path: /, ip: 192.0.2.1}, not %s", key, n.Describe())
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

// attributeProblem asks the compiler of rules, which knows the names of attributes.
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

// needs notes that a key is missing or empty, unless there is something under it.
func (d *decoder) needs(n *node, what, key string, there bool) {
	if !there && n.Kind == yamldoc.Mapping {
		d.Bad(n.Find([]string{key}), "%s needs %s", what, key)
	}
}

func (d *decoder) within(n *node, key string, least, most int64) int64 {
	v := d.Int(n, key, least, "")
	if v > most {
		d.Bad(n, "%s is %d: write %d or less", key, v, most)
	}
	return max(v, least)
}

func (d *decoder) notNegative(n *node, key string) time.Duration {
	v := d.Duration(n, key)
	if v < 0 {
		d.Bad(n, "%s is %s: write 0s or more", key, v)
	}
	return max(v, 0)
}
