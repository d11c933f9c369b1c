package storetest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // calendars of scenarios have time zones, and not every machine has their data

	"github.com/headgate/headgate"
)

//go:embed testdata/*.scenario
var scenarioFiles embed.FS

// playScenarios plays every scenario of testdata/*.scenario on a store. All scenarios of a file share one target; they stay
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
//	take SUBJECT LIMIT COST [at-least N] [max-delay SPAN] [hold SPAN] [observe] [twin LIMIT] [as RECEIPT] -> EXPECTED
//	refund SUBJECT LIMIT UNITS of RECEIPT -> EXPECTED
//	release SUBJECT LIMIT COST of RECEIPT -> EXPECTED
//	force SUBJECT LIMIT COST [age SPAN] -> EXPECTED
//	credit SUBJECT LIMIT UNITS -> EXPECTED
//	together                         the lines indented under it are one request
//
// A limit written again has other numbers from there on and the same counter. Expected is first the verdict on the
// charge: ok (which includes retry 0s), no (granted 0 and a retry) or never; then any of granted N, remaining N, retry
// SPAN, reset SPAN, delay SPAN. What is not written is not compared, except that results carry the store's time and no
// error, receipts the units granted, and only leaky buckets a delay.
func playScenarios(t *testing.T, open func(testing.TB) Target) {
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
	defaultStart = epoch.UTC()
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
	releases bool   // of is what is held
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
			receipt := receipts[l.of]
			if receipt.Units == 0 {
				return fmt.Errorf("%s:%d: %s\n\treceipt %s names nothing: its take was granted 0", s.file, l.line, l.text, l.of)
			}
			if l.releases {
				charges[i].Release = receipt
			} else {
				charges[i].Refund = receipt
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
	if l.of != "" || l.charge.Force || l.charge.Credit {
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
	"retry":     {func(r *headgate.Result) int64 { return int64(r.RetryAfter) }, formatSpan, spanOf},
	"reset":     {func(r *headgate.Result) int64 { return int64(r.ResetAfter) }, formatSpan, spanOf},
	"delay":     {func(r *headgate.Result) int64 { return int64(r.Delay) }, formatSpan, spanOf},
}

func spanOf(w *words) int64 { return int64(w.span()) }

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
