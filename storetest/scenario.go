package storetest

import (
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // calendars of scenarios have time zones, and not every machine has their data

	"github.com/headgate/headgate"
)

//go:embed testdata/*.scenario
var scenarioFiles embed.FS

// Scenarios plays every scenario of testdata/*.scenario on a store. All scenarios of a file share one target; they stay
// apart because each has subjects of its own.
//
// A scenario is a title, limits, and requests at a time with what is expected of them:
//
//	scenario: a bucket refills evenly
//	  limit api = token_bucket 10/1m
//	  at 0s
//	    take alice api 10    -> ok granted 10 remaining 0 reset 1m
//	    take alice api 1     -> no retry 6s
//
// These lines may stand in it; # begins a comment, and d is a unit of time spans besides those of Go:
//
//	start: TIME                      where spans count from; 2033-05-18T03:33:20Z if it does not say
//	limit NAME = ALGORITHM COUNT/WINDOW [burst N] [aligned | spread]
//	limit NAME = fixed_window COUNT per UNIT [zone ZONE] [anchor DAY]
//	limit NAME = invalid             the zero Limit
//	subject NAME offset SPAN         by how much the subject's windows are moved where they are spread
//	at SPAN | at TIME                the store's clock from here on
//	take SUBJECT LIMIT COST [at-least N] [max-delay SPAN] [observe] [twin LIMIT] [as RECEIPT] -> EXPECTED
//	refund SUBJECT LIMIT UNITS of RECEIPT -> EXPECTED
//	together                         the lines indented under it are one request
//
// A limit written again has other numbers from there on and the same counter. Expected is first the verdict on the
// charge: ok (which includes retry 0s), no (granted 0 and a retry) or never; then any of granted N, remaining N, retry
// SPAN, reset SPAN, delay SPAN. What is not written is not compared, except that results carry the store's time and no
// error, receipts the units granted, and only leaky buckets a delay.
func Scenarios(t *testing.T, open func(testing.TB) Target) {
	files, err := readScenarios()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			target := open(t)
			for _, s := range f.scenarios {
				t.Run(s.title, func(t *testing.T) {
					if err := s.play(t.Context(), target); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// The times in scenarios lie after the day of the test and before the last one that can be counted, because stores give
// their counters absolute times to live.
var (
	defaultStart = time.Unix(2_000_000_000, 0).UTC()
	firstTime    = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime     = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
)

type scenarioFile struct {
	name      string
	scenarios []scenario
}

type scenario struct {
	file, title string
	line        int
	requests    []request
}

// request is what stands in one call to the store.
type request struct {
	time  time.Time
	lines []chargeLine
}

type chargeLine struct {
	line     int
	text     string
	charge   headgate.Charge
	as, of   string // receipts
	verdict  string
	expected []expectation
}

type expectation struct {
	field string
	value int64
}

func readScenarios() ([]scenarioFile, error) {
	names, err := scenarioFiles.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var files []scenarioFile
	for _, entry := range names {
		name := path.Join("testdata", entry.Name())
		text, err := scenarioFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		scenarios, err := parseScenarios(name, string(text))
		if err != nil {
			return nil, err
		}
		files = append(files, scenarioFile{strings.TrimSuffix(entry.Name(), ".scenario"), scenarios})
	}
	return files, nil
}

// play returns what the first request that did not go as expected should have brought. The ones after it would only
// repeat that.
func (s *scenario) play(ctx context.Context, target Target) error {
	receipts := map[string]headgate.Receipt{}
	for _, r := range s.requests {
		target.SetTime(r.time)
		if err := s.ask(ctx, target.Store, r, receipts); err != nil {
			return err
		}
	}
	return nil
}

var errStale = errors.New("the store left the result as it was")

// ask makes one request. It gets the receipts of those before it and adds its own.
func (s *scenario) ask(ctx context.Context, store headgate.Store, r request, receipts map[string]headgate.Receipt) error {
	charges := make([]headgate.Charge, len(r.lines))
	results := make([]headgate.Result, len(r.lines))
	for i, l := range r.lines {
		charges[i] = l.charge
		if l.of != "" {
			charges[i].Refund = receipts[l.of]
			if charges[i].Refund.Units == 0 {
				return fmt.Errorf("%s:%d: %s\n\treceipt %s names nothing: its take was granted 0", s.file, l.line, l.text, l.of)
			}
		}
		results[i] = headgate.Result{Granted: -1, Remaining: -1, Delay: -1, Nodes: -1, Err: errStale}
	}
	if err := store.Take(ctx, charges, results); err != nil {
		return fmt.Errorf("%s:%d: %s\n\t%w", s.file, r.lines[0].line, r.lines[0].text, err)
	}
	var failures []error
	for i, l := range r.lines {
		if l.as != "" {
			receipts[l.as] = results[i].Receipt
		}
		if differences := l.compare(&results[i], r.time); len(differences) > 0 {
			failures = append(failures, fmt.Errorf("%s:%d: %s\n\t%s", s.file, l.line, l.text, strings.Join(differences, "\n\t")))
		}
	}
	return errors.Join(failures...)
}

// compare says field by field where the result is not what the line expects.
func (l *chargeLine) compare(r *headgate.Result, now time.Time) []string {
	if r.Err != nil {
		return []string{"error: expected none, got " + r.Err.Error()}
	}
	var differences []string
	differ := func(field, expected, got string) {
		if expected != got {
			differences = append(differences, fmt.Sprintf("%s: expected %s, got %s", field, expected, got))
		}
	}
	differ("verdict", l.verdict, verdict(r))
	for _, e := range l.expected {
		differ(e.field, fields[e.field].format(e.value), fields[e.field].format(fields[e.field].of(r)))
	}
	if l.verdict == "no" && !r.Allowed && r.RetryAfter == 0 {
		differ("retry", "some time", "0s")
	}
	if l.charge.Limit.Algorithm != headgate.LeakyBucket {
		differ("delay of a "+l.charge.Limit.Algorithm.String(), "0s", formatSpan(int64(r.Delay)))
	}
	units := r.Granted
	if l.of != "" {
		units = 0
	}
	differ("units of the receipt", formatNumber(units), formatNumber(r.Receipt.Units))
	if !r.Time.Equal(now) {
		differ("time", now.Format(time.RFC3339Nano), r.Time.UTC().Format(time.RFC3339Nano))
	}
	return differences
}

func verdict(r *headgate.Result) string {
	switch {
	case r.Allowed:
		return "ok"
	case r.RetryAfter == headgate.Never:
		return "never"
	}
	return "no"
}

// implied is what a verdict says besides itself.
var implied = map[string][]expectation{
	"ok":    {{"retry", 0}},
	"no":    {{"granted", 0}, {"delay", 0}},
	"never": {{"granted", 0}, {"delay", 0}, {"retry", int64(headgate.Never)}},
}

type field struct {
	of     func(*headgate.Result) int64
	format func(int64) string
	parse  func(*words) int64
}

var fields = map[string]field{
	"granted":   {func(r *headgate.Result) int64 { return r.Granted }, formatNumber, (*words).number},
	"remaining": {func(r *headgate.Result) int64 { return r.Remaining }, formatNumber, (*words).number},
	"retry":     {func(r *headgate.Result) int64 { return int64(r.RetryAfter) }, formatSpan, (*words).span},
	"reset":     {func(r *headgate.Result) int64 { return int64(r.ResetAfter) }, formatSpan, (*words).span},
	"delay":     {func(r *headgate.Result) int64 { return int64(r.Delay) }, formatSpan, (*words).span},
}

func formatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// formatSpan writes spans as the scenarios do: 1m for 1m0s, us for µs.
func formatSpan(ns int64) string {
	if ns == int64(headgate.Never) {
		return "never"
	}
	text := strings.Replace(time.Duration(ns).String(), "µ", "u", 1)
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

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
	case word == "take" || word == "refund":
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
		w.fail("expected scenario:, start:, limit, subject, at, take, refund or together, not %q", word)
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

// charge reads a take or a refund.
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
	if verb == "refund" && l.of == "" {
		w.fail("expected of and the receipt that is given back")
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
	case verb == "refund" && word == "of":
		l.of = w.next("a receipt")
		if of, known := p.receipts[l.of]; !known || of.Subject != l.charge.Subject || of.Counter != l.charge.Counter {
			w.fail("no take of this subject and limit above says as %s", l.of)
		}
	case verb == "refund":
		w.fail("expected of or ->, not %q", word)
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
		w.fail("expected at-least, max-delay, observe, twin, as or ->, not %q", word)
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

// words are what is left of a line. The first that is not what was expected leaves its error.
type words struct {
	list []string
	err  error
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *words) next(what string) string {
	if len(w.list) == 0 {
		w.fail("the line ends where %s is expected", what)
		return ""
	}
	word := w.list[0]
	w.list = w.list[1:]
	return word
}

func (w *words) accept(word string) bool {
	if len(w.list) == 0 || w.list[0] != word {
		return false
	}
	w.list = w.list[1:]
	return true
}

func (w *words) expect(word string) {
	if !w.accept(word) {
		w.fail("expected %q, not %q", word, w.next(strconv.Quote(word)))
	}
}

func (w *words) end() {
	if len(w.list) > 0 {
		w.fail("expected the end of the line, not %q", w.list[0])
	}
}

func (w *words) number() int64 { return w.parseNumber(w.next("a number")) }

func (w *words) parseNumber(word string) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64)
	if err != nil {
		w.fail("expected a number, not %q", word)
	}
	return n
}

func (w *words) span() int64 { return w.parseSpan(w.next("a time span")) }

func (w *words) parseSpan(word string) int64 {
	span, err := parseSpan(word)
	if err != nil || span < 0 || span%time.Microsecond != 0 {
		w.fail("expected a time span in whole microseconds such as 5us, 1m30s or 30d, not %q", word)
	}
	return int64(span)
}

func parseSpan(word string) (time.Duration, error) {
	days, rest, found := strings.Cut(word, "d")
	if !found {
		return time.ParseDuration(word)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	span := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return span, nil
	}
	more, err := time.ParseDuration(rest)
	return span + more, err
}

// time reads an instant, or a span since start where there is one.
func (w *words) time(start time.Time) time.Time {
	word := w.next("a time")
	t, err := time.Parse(time.RFC3339Nano, word)
	if err != nil && !start.IsZero() {
		var span time.Duration
		span, err = parseSpan(word)
		t = start.Add(span)
	}
	switch {
	case err != nil && start.IsZero():
		w.fail("expected a time such as 2033-05-18T03:33:20Z, not %q", word)
	case err != nil || t.Nanosecond()%1_000 != 0:
		w.fail("expected a time in whole microseconds such as 1m30s or 2033-05-18T03:33:20Z, not %q", word)
	case t.Before(firstTime) || t.After(lastTime):
		w.fail("expected a time from %d to %d, not %q", firstTime.Year(), lastTime.Year()-1, word)
	}
	return t.UTC()
}

func (w *words) algorithm() headgate.Algorithm {
	word := w.next("an algorithm")
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		if a.String() == word {
			return a
		}
	}
	w.fail("there is no algorithm %q", word)
	return 0
}

func (w *words) calendar() headgate.Calendar {
	word := w.next("minute, hour, day, week or month")
	for c := headgate.Minute; c <= headgate.Month; c++ {
		if c.String() == word {
			return c
		}
	}
	w.fail("expected minute, hour, day, week or month, not %q", word)
	return headgate.NoCalendar
}

func (w *words) zone() *time.Location {
	name := w.next("a time zone")
	zone, err := time.LoadLocation(name)
	if err != nil {
		w.fail("there is no time zone %q", name)
	}
	return zone
}
