package storetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// parser is the state after the lines parsed so far.
type parser struct {
	file      string
	scenarios []scenario

	// State of the current scenario:
	start, now time.Time
	limits     map[string]headgate.Limit
	subjects   map[string]headgate.Subject
	// together is the indentation of the together line whose request is being parsed; negative if there is none.
	together int
}

func parseScenarios(file, text string) ([]scenario, error) {
	p := parser{file: file}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), "#")
		w := words{list: strings.Fields(line)}
		if len(w.list) > 0 {
			p.line(&w, number, strings.TrimSpace(line), len(line)-len(strings.TrimLeft(line, " ")))
		}
		if w.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, w.err)
		}
	}
	for _, s := range p.scenarios {
		if len(s.requests) == 0 || slices.ContainsFunc(s.requests, func(r request) bool { return len(r.lines) == 0 }) {
			return nil, fmt.Errorf("%s:%d: scenario: no charges, or an empty together", file, s.line)
		}
	}
	return p.scenarios, nil
}

// line parses one line of the current scenario.
func (p *parser) line(w *words, number int, text string, indent int) {
	if title, ok := strings.CutPrefix(text, "scenario:"); ok {
		p.scenario(w, number, strings.TrimSpace(title))
		return
	}
	if len(p.scenarios) == 0 || indent == 0 {
		w.fail("expected scenario: and a title, or an indented line below it")
		return
	}
	s := &p.scenarios[len(p.scenarios)-1]
	if indent <= p.together {
		p.together = -1
	}
	switch word := w.next("a line of a scenario"); word {
	case "start:":
		p.start = w.time(time.Time{})
	case "limit":
		p.limit(w)
	case "subject":
		p.subjectOffset(w)
	case "at":
		p.now = w.time(p.start)
	case "together":
		s.requests = append(s.requests, request{time: p.now})
		p.together = indent
	default:
		l := p.charge(w, word)
		l.line, l.text = number, text
		if p.together < 0 {
			s.requests = append(s.requests, request{time: p.now})
		}
		r := &s.requests[len(s.requests)-1]
		r.lines = append(r.lines, l)
	}
	if len(w.list) > 0 {
		w.fail("expected the end of the line, not %q", w.list[0])
	}
}

func (p *parser) scenario(w *words, number int, title string) {
	if title == "" || slices.ContainsFunc(p.scenarios, func(s scenario) bool { return s.title == title }) {
		w.fail("expected a unique title after scenario:")
	}
	*p = parser{
		file:      p.file,
		scenarios: append(p.scenarios, scenario{file: p.file, title: title, line: number}),
		start:     defaultStart,
		limits:    map[string]headgate.Limit{},
		subjects:  map[string]headgate.Subject{},
		together:  -1,
	}
}

func (p *parser) limit(w *words) {
	name := w.next("a name for the limit")
	w.expect("=")
	if w.accept("invalid") {
		p.limits[name] = headgate.Limit{}
		return
	}
	l := headgate.Limit{Algorithm: oneNamed(w, headgate.TokenBucket, headgate.Concurrency)}
	if l.Algorithm == headgate.Concurrency {
		l.Count = w.number()
		w.expect("lease")
		l.Window = w.span()
		p.define(w, name, l)
		return
	}
	count, window, rated := strings.Cut(w.next("a count such as 10/1m or 10 per day"), "/")
	l.Count = w.parseNumber(count)
	if rated {
		l.Window = w.parseSpan(window)
	} else {
		w.expect("per")
		l.Calendar = oneNamed(w, headgate.Minute, headgate.Month)
	}
	for len(w.list) > 0 {
		switch option := w.next("an option"); option {
		case "burst":
			l.Burst = w.number()
		case "aligned":
			l.Align = headgate.OnClock
		case "spread":
			l.Align = headgate.OnClockSpread
		case "zone":
			l.TimeZone = w.zone()
		case "anchor":
			l.AnchorDay = int(w.number())
		default:
			w.fail("expected burst, aligned, spread, zone or anchor, not %q", option)
		}
	}
	p.define(w, name, l)
}

func (p *parser) define(w *words, name string, l headgate.Limit) {
	if err := l.Validate(); err != nil {
		w.fail("%w", err)
	}
	p.limits[name] = l
}

// subjectOffset defines a subject whose spread windows have a given offset. Its first half is hashed as for other subjects.
func (p *parser) subjectOffset(w *words) {
	name := w.next("a name for the subject")
	if _, known := p.subjects[name]; known {
		w.fail("subject %s: offset must precede its first use", name)
	}
	s := p.subject(name)
	w.expect("offset")
	binary.LittleEndian.PutUint64(s[8:], uint64(w.span()/time.Microsecond))
	p.subjects[name] = s
}

func (p *parser) subject(name string) headgate.Subject {
	s, known := p.subjects[name]
	if !known {
		s = headgate.SubjectOf("scenario", p.file, p.scenarios[len(p.scenarios)-1].title, name)
		p.subjects[name] = s
	}
	return s
}

// verbs are the commands that make a charge.
var verbs = []string{"take", "acquire", "refund", "release", "set", "force", "credit"}

// charge parses a charge and its expected result.
func (p *parser) charge(w *words, verb string) chargeLine {
	var l chargeLine
	if !slices.Contains(verbs, verb) || p.now.IsZero() {
		w.fail("expected start:, limit, subject, at, together or, after a time, %s, not %q", strings.Join(verbs, ", "), verb)
		return l
	}
	c := &l.charge
	c.Subject = p.subject(w.next("a subject"))
	c.Limit, c.Counter = p.counter(w)
	c.Cost = w.number()
	c.Force, c.Credit, l.releases = verb == "force", verb == "credit", verb == "release"
	slots := c.Limit.Algorithm == headgate.Concurrency
	switch {
	case slots && verb == "release":
		c.Slots = headgate.ReleaseSlots
	case verb == "set":
		c.Slots = headgate.SetSlots
	}
	if !slots && (verb == "acquire" || verb == "set") || slots && verb == "take" {
		w.fail("%s: acquire and set are for concurrency limits, take for the others", verb)
	}
	for !w.accept("->") && w.err == nil {
		switch option := w.next("->"); option {
		case "of":
			l.of = w.next("a receipt")
		case "as":
			l.as = w.next("a name for the receipt")
		case "by":
			c.Holder = w.holder()
		case "seq":
			c.Seq = w.number()
		case "age":
			c.Age = w.span()
		case "hold":
			c.Hold = w.span()
		case "prepaid":
			c.Prepaid = true
		case "within":
			c.Within = w.time(p.start).UnixMicro()
		case "absent":
			c.Absent = w.number()
		case "at-least":
			c.AtLeast = w.number()
		case "max-delay":
			c.MaxDelay = w.span()
		case "observe":
			c.Observe = true
		case "twin":
			c.Observe = true
			_, c.Twin = p.counter(w)
		default:
			w.fail("expected an option or ->, not %q", option)
		}
	}
	if (verb == "refund" || verb == "release" && !slots) != (l.of != "") {
		w.fail("of RECEIPT: only for refund and release, which require it, except for release on a concurrency limit")
	}
	l.expect(w)
	return l
}

func (p *parser) counter(w *words) (headgate.Limit, headgate.Counter) {
	name := w.next("a limit")
	l, known := p.limits[name]
	if !known {
		w.fail("limit %q: not defined above", name)
	}
	return l, headgate.CounterOf(name, "", l.Algorithm)
}

// expect parses the verdict and the fields with their values.
func (l *chargeLine) expect(w *words) {
	l.verdict = w.next("ok, no or never")
	also, known := implied[l.verdict]
	if !known {
		w.fail("expected ok, no or never, not %q", l.verdict)
	}
	l.expected = slices.Clone(also)
	for len(w.list) > 0 && w.err == nil {
		name := w.next("a field")
		if f, known := fields[name]; known {
			l.expected = append(l.expected, expectation{name, f.parse(w)})
		} else {
			w.fail("expected granted, remaining, holding, retry, reset or delay, not %q", name)
		}
	}
}
