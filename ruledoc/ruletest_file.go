package ruledoc

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate"
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

var suiteFields = []field[testSuite]{
	{"rules", func(d *decoder, n *node, key string, s *testSuite) { s.paths = d.texts(n, key) }},
	{"tests", func(d *decoder, n *node, key string, s *testSuite) { s.entries = d.list(n, key, "tests") }},
}

var testFields = []field[ruleTest]{
	{"name", func(d *decoder, n *node, key string, t *ruleTest) { t.name, _ = d.text(n, key) }},
	{"start", func(d *decoder, n *node, key string, t *ruleTest) { t.start = d.instant(n, key) }},
	{"requests", func(d *decoder, n *node, key string, t *ruleTest) { t.requests = d.list(n, key, "requests") }},
}

var stepFields = []field[testStep]{
	{"at", func(_ *decoder, n *node, _ string, s *testStep) { s.time = n }},
	{"every", func(d *decoder, n *node, key string, s *testStep) { s.every = d.notNegative(n, key) }},
	{"repeat", func(d *decoder, n *node, key string, s *testStep) { s.repeat = d.within(n, key, 1, maxRepeat) }},
	{"request", func(d *decoder, n *node, key string, s *testStep) { s.request.Attributes = d.attributes(n, key) }},
	{"cost", func(d *decoder, n *node, key string, s *testStep) {
		s.request.Cost = d.within(n, key, 1, headgate.MaxCost)
	}},
	{"expect", func(_ *decoder, n *node, _ string, s *testStep) { s.expected = n }},
}

// loadTests reads a file of tests, and the rules that it names.
func loadTests(file string) (*testSuite, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("rule tests: %w", err)
	}
	s := &testSuite{file: file}
	var found report
	checked, problem := source{file, data}.check()
	if problem != nil {
		found.add(0, problem)
		return nil, found.errors([]source{checked})
	}
	documents, problems := parseYAML(checked)
	for _, p := range problems {
		found.add(0, p)
	}
	d := &decoder{source: checked, report: &found}
	if len(documents) != 1 && len(problems) == 0 {
		d.badAt(1, 1, "a file of rule tests is one document with rules and tests")
	}
	var rulesErr error
	if len(documents) == 1 {
		rulesErr = s.read(d, documents[0])
	}
	if err := errors.Join(rulesErr, found.errors([]source{checked})); err != nil {
		return nil, err
	}
	return s, nil
}

// read reads the whole file. What is wrong with the rules is the error; the tests are checked all the same.
func (s *testSuite) read(d *decoder, n *node) error {
	fields(d, n, "a file of rule tests", suiteFields, s)
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
			d.bad(entry.find([]string{"name"}), "there is a test of this name in line %d: give each its own", line)
		}
		lines[t.name] = t.line
		s.tests = append(s.tests, t)
	}
	return err
}

func (s *testSuite) test(d *decoder, n *node) ruleTest {
	t := ruleTest{line: n.line, start: defaultStart}
	fields(d, n, "a test", testFields, &t)
	d.needs(n, "a test", "name", t.name != "")
	d.needs(n, "a test", "requests", len(t.requests) > 0)
	var now time.Duration
	for _, request := range t.requests {
		step := testStep{line: request.line, column: request.column, at: now, repeat: 1}
		fields(d, request, "a request of a test", stepFields, &step)
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
	if at, err := time.Parse(time.RFC3339, s.time.text); err == nil {
		s.at = at.Sub(start)
	} else {
		s.at = d.duration(s.time, "at")
	}
	if s.at < now {
		d.bad(s.time, "time does not go back: the request before this one is %s after the start, and this is %s", now, s.at)
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

var expectFields = []field[readExpectation]{
	{"allowed", func(d *decoder, n *node, key string, e *readExpectation) {
		if n.kind != number {
			e.each, e.allowed = true, d.yesNo(n, key)
			return
		}
		count := d.within(n, key, 0, e.repeat)
		e.count = &count
	}},
	{"rule", func(d *decoder, n *node, key string, e *readExpectation) { e.rule = e.suite.ruleID(d, n, key) }},
	{"limit", func(d *decoder, n *node, key string, e *readExpectation) {
		name, _ := d.text(n, key)
		e.limit, e.name = &name, n
	}},
	{"remaining", func(d *decoder, n *node, key string, e *readExpectation) {
		left := d.within(n, key, 0, headgate.MaxCost)
		e.remaining = &left
	}},
	{"retry_after", func(d *decoder, n *node, key string, e *readExpectation) {
		wait := headgate.Never
		if n.text != never {
			wait = d.notNegative(n, key)
		}
		e.retryAfter = &wait
	}},
	{"delay", func(d *decoder, n *node, key string, e *readExpectation) {
		delay := d.notNegative(n, key)
		e.delay = &delay
	}},
	{"rules", func(d *decoder, n *node, key string, e *readExpectation) { e.rules = e.suite.ruleIDs(d, n, key) }},
	{"shadow", func(d *decoder, n *node, key string, e *readExpectation) { e.shadow = e.suite.ruleIDs(d, n, key) }},
	{"candidate", func(d *decoder, n *node, key string, e *readExpectation) { e.candidate = e.suite.ruleIDs(d, n, key) }},
}

func (s *testSuite) expectation(d *decoder, n *node, repeat int64) expectation {
	e := readExpectation{suite: s, repeat: repeat}
	fields(d, n, "expect", expectFields, &e)
	if n.kind == mapping && len(n.entries) == 0 {
		d.bad(n, "this expects nothing: write expect: {allowed: true}, or remove it")
	}
	if e.limit != nil && e.rule == "" {
		d.bad(e.name, "limit is the name of one of a rule's limits: write which rule, too")
	}
	if e.limit == nil || s.document == nil {
		return e.expectation
	}
	for _, rule := range s.document.Source {
		if _, ok := rule.Limits[*e.limit]; rule.ID == e.rule && !ok {
			d.notThere(e.name, fmt.Sprintf("rule %q has no limit", rule.ID), slices.Sorted(maps.Keys(rule.Limits)))
		}
	}
	return e.expectation
}

// ruleID reads the ID of a rule, which must exist; nothing can be said of that if the rules are bad themselves.
func (s *testSuite) ruleID(d *decoder, n *node, key string) string {
	id, ok := d.text(n, key)
	if !ok || s.document == nil {
		return id
	}
	var known []string
	for _, rule := range s.document.Source {
		known = append(known, rule.ID)
	}
	if !slices.Contains(known, id) {
		d.notThere(n, "there is no rule", known)
	}
	return id
}

func (s *testSuite) ruleIDs(d *decoder, n *node, key string) *[]string {
	ids := []string{}
	if n.kind != list {
		d.bad(n, "%s wants a list of rules: [login-by-ip], or [] for none", key)
	}
	for _, item := range n.items {
		ids = append(ids, s.ruleID(d, item, key))
	}
	return &ids
}

// attributes reads a request's attributes. Numbers need no quotes here: a header holds text in any case.
func (d *decoder) attributes(n *node, key string) headgate.Attributes {
	attributes := headgate.Attributes{}
	if n.kind != mapping {
		d.bad(n, "%s wants attributes with values, {method: GET, path: /, ip: 192.0.2.1}, not %s", key, describe(n))
	}
	for _, e := range n.entries {
		if problem := attributeProblem(e.key.text); problem != "" {
			d.bad(e.key, "%s", problem)
		} else if e.value.kind == number {
			attributes[e.key.text] = e.value.text
		} else if d.given(e) {
			attributes[e.key.text], _ = d.text(e.value, e.key.text)
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
	var problem *headgate.RuleError
	if errors.As(err, &problem) {
		return problem.Problem
	}
	return ""
}

// needs notes that a key is missing or empty, unless there is something under it.
func (d *decoder) needs(n *node, what, key string, there bool) {
	if !there && n.kind == mapping {
		d.bad(n.find([]string{key}), "%s needs %s", what, key)
	}
}

func (d *decoder) notThere(n *node, what string, known []string) {
	if near := nearest(n.text, known); near != "" {
		d.bad(n, "%s %q; did you mean %q?", what, shorten(n.text), near)
		return
	}
	d.bad(n, "%s %q", what, shorten(n.text))
}

func (d *decoder) within(n *node, key string, least, most int64) int64 {
	v := d.whole(n, key, least, "")
	if v > most {
		d.bad(n, "%s is %d: write %d or less", key, v, most)
	}
	return max(v, least)
}

func (d *decoder) notNegative(n *node, key string) time.Duration {
	v := d.duration(n, key)
	if v < 0 {
		d.bad(n, "%s is %s: write 0s or more", key, v)
	}
	return max(v, 0)
}
