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
	_ "time/tzdata" // scenarios use time zones, and not every machine has their data

	"github.com/headgate/headgate"
)

//go:embed testdata/*.scenario
var scenarioFiles embed.FS

// playScenarios plays every scenario of testdata/*.scenario on a store. All scenarios of a file share one target; they are
// independent because each has its own subjects.
//
// A scenario has a title, limits, and requests at given times with their expected results:
//
//	scenario: a bucket refills evenly
//	  limit api = token_bucket 10/1m
//	  at 0s
//	    take alice api 10    -> ok granted 10 remaining 0 reset 1m
//	    take alice api 1     -> no retry 6s
//
// A scenario consists of the following lines; # begins a comment, and spans are Go durations that may also use d for days:
//
//	start: TIME                      time that spans are relative to; default 2033-05-18T03:33:20Z
//	limit NAME = ALGORITHM COUNT/WINDOW [burst N] [aligned | spread]
//	limit NAME = fixed_window COUNT per UNIT [zone ZONE] [anchor DAY]
//	limit NAME = concurrency COUNT lease SPAN
//	limit NAME = invalid             the zero Limit
//	subject NAME offset SPAN         offset of the subject's spread windows
//	at SPAN | at TIME                sets the store's clock
//	take SUBJECT LIMIT COST [at-least N] [max-delay SPAN] [hold SPAN] [absent N] [observe] [twin LIMIT] [as RECEIPT] -> EXPECTED
//	refund SUBJECT LIMIT UNITS of RECEIPT -> EXPECTED
//	release SUBJECT LIMIT COST of RECEIPT -> EXPECTED
//	force SUBJECT LIMIT COST [age SPAN] [absent N] -> EXPECTED
//	credit SUBJECT LIMIT UNITS [within SPAN | within TIME] [absent N] -> EXPECTED
//	acquire SUBJECT LIMIT UNITS by HOLDER seq N [at-least N] [observe] [twin LIMIT] [as RECEIPT] -> EXPECTED
//	release SUBJECT LIMIT UNITS by HOLDER seq N -> EXPECTED
//	set SUBJECT LIMIT UNITS by HOLDER seq N -> EXPECTED
//	together                         the lines indented below it are one request
//
// A limit that is defined again keeps its counter and has the new numbers from there on. EXPECTED begins with the verdict on the
// charge: ok (implies retry 0s), no (implies granted 0 and a retry; on a concurrency limit an unknown one) or never; then any of
// granted N, remaining N, holding N (the units of the holder), retry SPAN, reset SPAN and delay SPAN. Other fields are not compared, except that results must have the store's time and no error, receipts the
// granted units, and only leaky buckets a delay.
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

// Times in scenarios must be later than the day of the test, because stores give their counters absolute expiry times, and before
// the last time that can be counted.
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

// request is one call to the store.
type request struct {
	time  time.Time
	lines []chargeLine
}

type chargeLine struct {
	line     int
	text     string
	charge   headgate.Charge
	as, of   string // names of receipts
	releases bool   // of is the receipt of a hold
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

// play returns how the first unexpected result differs from its line. It stops there, since later differences would be consequences.
func (s *scenario) play(ctx context.Context, target Target) error {
	receipts := map[string]headgate.Receipt{}
	for _, r := range s.requests {
		target.SetTime(r.time)
		if err := s.request(ctx, target.Store, r, receipts); err != nil {
			return err
		}
	}
	return nil
}

var errStale = errors.New("the store did not set the result")

// request makes one request. receipts has the receipts of earlier requests; request adds its own.
func (s *scenario) request(ctx context.Context, store headgate.Store, r request, receipts map[string]headgate.Receipt) error {
	charges := make([]headgate.Charge, len(r.lines))
	results := make([]headgate.Result, len(r.lines))
	for i, l := range r.lines {
		charges[i] = l.charge
		if l.of != "" {
			receipt := receipts[l.of]
			if receipt.Units == 0 {
				return fmt.Errorf("%s:%d: %s\n\treceipt %s is empty: its take was granted 0", s.file, l.line, l.text, l.of)
			}
			if l.releases { // not on a concurrency limit, which has no receipts to release
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

// compare returns the fields in which the result differs from what the line expects.
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
		differ("retry", "above 0s", "0s")
	}
	if unknown := l.verdict == "no" && l.charge.Limit.Algorithm == headgate.Concurrency; unknown != (r.RetryAfter == headgate.Unknown) {
		differ("retry of a "+l.charge.Limit.Algorithm.String(), "unknown: "+strconv.FormatBool(unknown), formatSpan(int64(r.RetryAfter)))
	}
	if l.charge.Limit.Algorithm != headgate.LeakyBucket {
		differ("delay of a "+l.charge.Limit.Algorithm.String(), "0s", formatSpan(int64(r.Delay)))
	}
	units := r.Granted
	if l.of != "" || l.charge.Force || l.charge.Credit || l.charge.Slots != headgate.AcquireSlots {
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

// implied has the expectations that a verdict implies.
var implied = map[string][]expectation{
	"ok":    {{"retry", 0}},
	"no":    {{"granted", 0}, {"delay", 0}},
	"never": {{"granted", 0}, {"delay", 0}, {"retry", int64(headgate.Never)}},
}

// field is a field of a result that a scenario can expect.
type field struct {
	of     func(*headgate.Result) int64
	format func(int64) string
	parse  func(*words) int64
}

var fields = map[string]field{
	"granted":   {func(r *headgate.Result) int64 { return r.Granted }, formatNumber, (*words).number},
	"remaining": {func(r *headgate.Result) int64 { return r.Remaining }, formatNumber, (*words).number},
	"holding":   {func(r *headgate.Result) int64 { return r.HolderUnits }, formatNumber, (*words).number},
	"retry":     {func(r *headgate.Result) int64 { return int64(r.RetryAfter) }, formatSpan, spanOf},
	"reset":     {func(r *headgate.Result) int64 { return int64(r.ResetAfter) }, formatSpan, spanOf},
	"delay":     {func(r *headgate.Result) int64 { return int64(r.Delay) }, formatSpan, spanOf},
}

func spanOf(w *words) int64 { return int64(w.span()) }

func formatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// formatSpan formats a span as in scenarios: 1m for 1m0s, us for µs.
func formatSpan(ns int64) string {
	if ns == int64(headgate.Never) {
		return "never"
	}
	if ns == int64(headgate.Unknown) {
		return "unknown"
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
