package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// parser holds what the lines so far have said.
type parser struct {
	file      string
	scenarios []scenario

	// Of the scenario at hand:
	start    time.Time
	now      time.Time
	limits   map[string]headgate.Limit
	subjects map[string]headgate.Subject
	receipts map[string]headgate.Charge
	// together is true while the last request takes in lines indented by more than indent.
	together bool
	indent   int
}

func parseScenarios(file, text string) ([]scenario, error) {
	p := parser{file: file}
	at := 0
	for line := range strings.Lines(text) {
		at++
		line = strings.TrimRight(line, "\n")
		if i := strings.Index(line, "#"); i >= 0 {
			line = line[:i]
		}
		w := words{list: strings.Fields(line)}
		if strings.Contains(line, "\t") {
			w.fail("indent with spaces, not tabs")
		}
		if len(w.list) > 0 {
			p.line(&w, at, strings.TrimSpace(line), len(line)-len(strings.TrimLeft(line, " ")))
		}
		if w.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, at, w.err)
		}
	}
	if err := p.complete(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, at, err)
	}
	if len(p.scenarios) == 0 {
		return nil, fmt.Errorf("%s:1: expected scenario: and a title", file)
	}
	return p.scenarios, nil
}

// line reads one line into the scenario at hand.
func (p *parser) line(w *words, at int, text string, indent int) {
	if title, ok := strings.CutPrefix(text, "scenario:"); ok {
		p.scenario(w, at, strings.TrimSpace(title))
		return
	}
	if len(p.scenarios) == 0 {
		w.fail("expected scenario: and a title before anything else, not %q", w.list[0])
		return
	}
	if indent == 0 {
		w.fail("expected scenario: at the beginning of a line; indent what belongs to one")
	}
	inside := p.together && indent > p.indent
	if p.together && !inside {
		p.together = false
		if err := p.complete(); err != nil {
			w.err = err
			return
		}
	}
	switch word := w.next("a line of a scenario"); {
	case slices.Contains(verbs, word):
		l := p.charge(w, word)
		l.line, l.text = at, text
		s := &p.scenarios[len(p.scenarios)-1]
		if !inside {
			s.requests = append(s.requests, request{time: p.now})
		}
		r := &s.requests[len(s.requests)-1]
		r.lines = append(r.lines, l)
	case inside:
		w.fail("expected take or refund in what is asked together, not %q", word)
	case word == "start:":
		p.setStart(w)
	case word == "limit":
		p.limit(w)
	case word == "subject":
		p.subjectOffset(w)
	case word == "at":
		p.now = w.time(p.start)
	case word == "together":
		s := &p.scenarios[len(p.scenarios)-1]
		s.requests = append(s.requests, request{time: p.now})
		p.together, p.indent = true, indent
	default:
		w.fail("expected scenario:, start:, limit, subject, at, take, refund, release, force, credit or together, not %q", word)
	}
	w.end()
}

func (p *parser) scenario(w *words, at int, title string) {
	if err := p.complete(); err != nil {
		w.err = err
		return
	}
	if title == "" {
		w.fail("expected a title after scenario:")
	}
	for _, s := range p.scenarios {
		if s.title == title {
			w.fail("the scenario on line %d has the same title", s.line)
		}
	}
	*p = parser{
		file:      p.file,
		scenarios: append(p.scenarios, scenario{file: p.file, title: title, line: at}),
		start:     defaultStart,
		limits:    map[string]headgate.Limit{},
		subjects:  map[string]headgate.Subject{},
		receipts:  map[string]headgate.Charge{},
	}
}

// complete says whether the request and the scenario read so far have anything in them.
func (p *parser) complete() error {
	if len(p.scenarios) == 0 {
		return nil
	}
	s := &p.scenarios[len(p.scenarios)-1]
	if len(s.requests) == 0 {
		return fmt.Errorf("the scenario on line %d asks nothing: expected take or refund before this line", s.line)
	}
	if len(s.requests[len(s.requests)-1].lines) == 0 {
		return errors.New("nothing is asked together: expected take or refund, indented by more, before this line")
	}
	return nil
}

func (p *parser) setStart(w *words) {
	if !p.now.IsZero() {
		w.fail("start: comes before the first at")
	}
	p.start = w.time(time.Time{})
}

func (p *parser) limit(w *words) {
	name := w.next("a name for the limit")
	w.expect("=")
	var l headgate.Limit
	if w.accept("invalid") {
		p.limits[name] = l
		return
	}
	l.Algorithm = w.algorithm()
	count, window, rated := strings.Cut(w.next("a count such as 10/1m or 10 per day"), "/")
	l.Count = w.parseNumber(count)
	if rated {
		l.Window = time.Duration(w.parseSpan(window))
	} else {
		w.expect("per")
		l.Calendar = w.calendar()
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
	if err := l.Validate(); err != nil {
		w.fail("%w", err)
	}
	p.limits[name] = l
}

// subjectOffset makes a subject whose windows, where they are spread, are moved by a given span. The first half of it
// is hashed as for other subjects.
func (p *parser) subjectOffset(w *words) {
	name := w.next("a name for the subject")
	if _, known := p.subjects[name]; known {
		w.fail("%s has been used above: say its offset before", name)
	}
	s := p.subject(name)
	w.expect("offset")
	binary.LittleEndian.PutUint64(s[8:], uint64(w.span()/int64(time.Microsecond)))
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

// verbs are the kinds of charges.
var verbs = []string{"take", "refund", "release", "force", "credit"}

// charge reads a take, a refund, a release of what is held, a forced charge or a credit.
func (p *parser) charge(w *words, verb string) chargeLine {
	var l chargeLine
	if p.now.IsZero() {
		w.fail("expected at and a time before the first %s", verb)
	}
	l.charge.Subject = p.subject(w.next("a subject"))
	l.charge.Limit, l.charge.Counter = p.counter(w)
	l.charge.Cost = w.number()
	for !w.accept("->") && w.err == nil {
		p.option(w, verb, &l)
	}
	switch {
	case (verb == "refund" || verb == "release") && l.of == "":
		w.fail("expected of and the receipt that is given back")
	case verb == "force":
		l.charge.Force = true
	case verb == "credit":
		l.charge.Credit = true
	case verb == "release":
		l.releases = true
	}
	l.verdict = w.next("ok, no or never")
	also, known := implied[l.verdict]
	if !known {
		w.fail("expected ok, no or never, not %q", l.verdict)
	}
	l.expected = slices.Clone(also)
	for len(w.list) > 0 && w.err == nil {
		l.expect(w)
	}
	return l
}

func (p *parser) option(w *words, verb string, l *chargeLine) {
	word := w.next("->")
	switch {
	case (verb == "refund" || verb == "release") && word == "of":
		l.of = w.next("a receipt")
		if of, known := p.receipts[l.of]; !known || of.Subject != l.charge.Subject || of.Counter != l.charge.Counter {
			w.fail("no take of this subject and limit above says as %s", l.of)
		}
	case verb == "refund" || verb == "release":
		w.fail("expected of or ->, not %q", word)
	case verb == "force" && word == "age":
		l.charge.Age = time.Duration(w.span())
	case verb == "force":
		w.fail("expected age or ->, not %q", word)
	case verb != "take":
		w.fail("expected ->, not %q", word)
	case word == "hold":
		l.charge.Hold = time.Duration(w.span())
	case word == "at-least":
		l.charge.AtLeast = w.number()
	case word == "max-delay":
		l.charge.MaxDelay = time.Duration(w.span())
	case word == "observe":
		l.charge.Observe = true
	case word == "twin":
		l.charge.Observe = true
		_, l.charge.Twin = p.counter(w)
	case word == "as":
		l.as = w.next("a name for the receipt")
		if _, known := p.receipts[l.as]; known {
			w.fail("there is a receipt %s above", l.as)
		}
		p.receipts[l.as] = l.charge
	default:
		w.fail("expected at-least, max-delay, hold, observe, twin, as or ->, not %q", word)
	}
}

func (p *parser) counter(w *words) (headgate.Limit, headgate.Counter) {
	name := w.next("a limit")
	l, known := p.limits[name]
	if !known {
		w.fail("there is no limit %q above", name)
	}
	return l, headgate.CounterOf(name, "", l.Algorithm)
}

// expect reads one field and its value.
func (l *chargeLine) expect(w *words) {
	name := w.next("a field")
	f, known := fields[name]
	if !known {
		w.fail("expected granted, remaining, retry, reset or delay, not %q", name)
		return
	}
	e := expectation{name, f.parse(w)}
	for _, other := range l.expected {
		if other.field == name && other.value != e.value {
			w.fail("%s is said already to be %s", name, f.format(other.value))
		}
	}
	l.expected = append(l.expected, e)
}
