package storetest

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// modelStore is the specification as a store.
type modelStore struct{ *model }

func (s modelStore) Shard(headgate.Subject) int { return 0 }

func (s modelStore) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	s.take(charges, results)
	return nil
}

// openModel returns a target that is the specification itself, with subjects decided in groups.
func openModel(group func(headgate.Subject) int) Target {
	m := newModel(group)
	return Target{Store: modelStore{m}, SetTime: func(t time.Time) { m.now = t }, Group: group}
}

func TestScenarios(t *testing.T) {
	t.Run("in one step", func(t *testing.T) {
		playScenarios(t, func(testing.TB) Target { return openModel(nil) })
	})
	t.Run("subject by subject", func(t *testing.T) {
		playScenarios(t, func(testing.TB) Target {
			return openModel(func(s headgate.Subject) int { return int(s[0])<<16 | int(s[1])<<8 | int(s[2]) })
		})
	})
}

// brokenStore changes the charges and the results of a store.
type brokenStore struct {
	headgate.Store
	charge func(*headgate.Charge)
	result func(*headgate.Result)
	err    error
}

func (b brokenStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if b.err != nil {
		return b.err
	}
	charges = slices.Clone(charges)
	for i := range charges {
		if b.charge != nil {
			b.charge(&charges[i])
		}
	}
	err := b.Store.Take(ctx, charges, results)
	for i := range results {
		if b.result != nil {
			b.result(&results[i])
		}
	}
	return err
}

func (b brokenStore) target() Target {
	target := openModel(nil)
	target.Store = brokenStore{Store: target.Store, charge: b.charge, result: b.result, err: b.err}
	return target
}

func TestScenarioReportsDifferences(t *testing.T) {
	const text = `
scenario: a bucket with one unit left
  limit api = token_bucket 10/1m   # the usual one
  at 0s
    take alice api 9               -> ok granted 9 remaining 1
    together
      take alice api 1 as r1       -> ok granted 1 remaining 0 reset 1m
      take bob   api 0             -> ok granted 0
  at 3s
    take alice api 1               -> no remaining 0 retry 3s reset 57s
    take alice api 11              -> never
    refund alice api 1 of r1       -> ok granted 1
`
	scenarios, err := parseScenarios("x.scenario", text)
	if err != nil {
		t.Fatal(err)
	}
	isPeek := func(r *headgate.Result) bool { return r.Allowed && r.Granted == 0 }
	tests := map[string]struct {
		store brokenStore
		want  string
	}{
		"nothing": {},
		"one unit too many": {
			store: brokenStore{charge: func(c *headgate.Charge) { c.Limit.Burst = c.Limit.Count + 1 }},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tremaining: expected 1, got 2",
		},
		"a verdict": {
			store: brokenStore{result: func(r *headgate.Result) { r.Allowed = r.Granted == 9 }},
			want: "x.scenario:7: take alice api 1 as r1       -> ok granted 1 remaining 0 reset 1m\n\tverdict: expected ok, got no\n" +
				"x.scenario:8: take bob   api 0             -> ok granted 0\n\tverdict: expected ok, got no",
		},
		"granted": {
			store: brokenStore{result: func(r *headgate.Result) { r.Granted++; r.Receipt.Units++ }},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tgranted: expected 9, got 10",
		},
		"retry of a denial": {
			store: brokenStore{result: func(r *headgate.Result) { r.RetryAfter -= r.RetryAfter / 3 }},
			want:  "x.scenario:10: take alice api 1               -> no remaining 0 retry 3s reset 57s\n\tretry: expected 3s, got 2s",
		},
		"retry of what fits": {
			store: brokenStore{result: func(r *headgate.Result) { r.RetryAfter = max(r.RetryAfter, time.Microsecond) }},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tretry: expected 0s, got 1us",
		},
		"never": {
			store: brokenStore{result: func(r *headgate.Result) { r.RetryAfter = max(r.RetryAfter, 0) }},
			want:  "x.scenario:11: take alice api 11              -> never\n\tverdict: expected never, got no\n\tretry: expected never, got 0s",
		},
		"reset": {
			store: brokenStore{result: func(r *headgate.Result) { r.ResetAfter = r.ResetAfter.Truncate(2 * time.Second) }},
			want:  "x.scenario:10: take alice api 1               -> no remaining 0 retry 3s reset 57s\n\treset: expected 57s, got 56s",
		},
		"a delay": {
			store: brokenStore{result: func(r *headgate.Result) { r.Delay = time.Hour }},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tdelay of a token_bucket: expected 0s, got 1h",
		},
		"the time": {
			store: brokenStore{result: func(r *headgate.Result) { r.Time = r.Time.Add(time.Microsecond) }},
			want: "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n" +
				"\ttime: expected 2033-05-18T03:33:20Z, got 2033-05-18T03:33:20.000001Z",
		},
		"no receipt": {
			store: brokenStore{result: func(r *headgate.Result) { r.Receipt = headgate.Receipt{} }},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tunits of the receipt: expected 9, got 0",
		},
		"receipt of a peek": {
			store: brokenStore{result: func(r *headgate.Result) {
				if isPeek(r) {
					r.Receipt.Units = 1
				}
			}},
			want: "x.scenario:8: take bob   api 0             -> ok granted 0\n\tunits of the receipt: expected 0, got 1",
		},
		"an error in a result": {
			store: brokenStore{result: func(r *headgate.Result) {
				if isPeek(r) {
					r.Err = headgate.ErrUnavailable
				}
			}},
			want: "x.scenario:8: take bob   api 0             -> ok granted 0\n\terror: expected none, got store unavailable",
		},
		"an error": {
			store: brokenStore{err: headgate.ErrUnanswered},
			want:  "x.scenario:5: take alice api 9               -> ok granted 9 remaining 1\n\tcharge sent but not answered",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := scenarios[0].play(t.Context(), test.store.target())
			if (got == nil) != (test.want == "") || got != nil && got.Error() != test.want {
				t.Errorf("got:\n%v\nwant:\n%s", got, test.want)
			}
		})
	}
}

// idleStore sets no results.
type idleStore struct{}

func (idleStore) Shard(headgate.Subject) int { return 0 }

func (idleStore) Take(context.Context, []headgate.Charge, []headgate.Result) error { return nil }

func TestScenarioReportsUnsetResults(t *testing.T) {
	const text = `
scenario: nothing happens
  limit api = invalid
  at 0s
    take alice api 0 -> never granted 0 remaining 0 reset 0s
`
	scenarios, err := parseScenarios("x.scenario", text)
	if err != nil {
		t.Fatal(err)
	}
	err = scenarios[0].play(t.Context(), Target{Store: idleStore{}, SetTime: func(time.Time) {}})
	if err == nil || !strings.Contains(err.Error(), errStale.Error()) {
		t.Errorf("got %v, want %v", err, errStale)
	}
}

func TestScenarioRejectsRefundOfNothing(t *testing.T) {
	const text = `
scenario: a refund of nothing
  limit api = token_bucket 10/1m
  at 0s
    take alice api 11 as r1  -> never
    refund alice api 1 of r1 -> ok
`
	scenarios, err := parseScenarios("x.scenario", text)
	if err != nil {
		t.Fatal(err)
	}
	const want = "x.scenario:6: refund alice api 1 of r1 -> ok\n\treceipt r1 is empty: its take was granted 0"
	if err := scenarios[0].play(t.Context(), openModel(nil)); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestScenariosDetectBrokenStores breaks a store in one respect at a time: a scenario of the file for it must fail.
func TestScenariosDetectBrokenStores(t *testing.T) {
	files, err := readScenarios()
	if err != nil {
		t.Fatal(err)
	}
	oneMore := func(a headgate.Algorithm) func(*headgate.Charge) {
		return func(c *headgate.Charge) {
			if c.Limit.Algorithm == a {
				c.Limit.Count++
			}
		}
	}
	tests := map[string]struct {
		file   string
		charge func(*headgate.Charge)
	}{
		"a token bucket of one more":   {"token_bucket", oneMore(headgate.TokenBucket)},
		"a leaky bucket of one more":   {"leaky_bucket", oneMore(headgate.LeakyBucket)},
		"a fixed window of one more":   {"fixed_window", oneMore(headgate.FixedWindow)},
		"a sliding window of one more": {"sliding_window", oneMore(headgate.SlidingWindow)},
		"a sliding log of one more":    {"sliding_log", oneMore(headgate.SlidingLog)},
		"one more in use":              {"concurrency", oneMore(headgate.Concurrency)},
		"one holder":                   {"concurrency", func(c *headgate.Charge) { c.Holder = 0 }},
		"no numbers":                   {"concurrency", func(c *headgate.Charge) { c.Seq = math.MaxInt64 }},
		"sets that acquire":            {"concurrency", func(c *headgate.Charge) { c.Slots = min(c.Slots, headgate.ReleaseSlots) }},
		"no burst":                     {"token_bucket", func(c *headgate.Charge) { c.Limit.Burst = 0 }},
		"no waiting":                   {"leaky_bucket", func(c *headgate.Charge) { c.MaxDelay = 0 }},
		"no alignment":                 {"fixed_window", func(c *headgate.Charge) { c.Limit.Align = headgate.FromFirst }},
		"no spreading":                 {"fixed_window", func(c *headgate.Charge) { c.Limit.Align = min(c.Limit.Align, headgate.OnClock) }},
		"sliding windows not aligned":  {"sliding_window", func(c *headgate.Charge) { c.Limit.Align = headgate.FromFirst }},
		"sliding windows not spread":   {"sliding_window", func(c *headgate.Charge) { c.Limit.Align = min(c.Limit.Align, headgate.OnClock) }},
		"credits at any time":          {"region", func(c *headgate.Charge) { c.Within = 0 }},
		"credits anywhere in a window": {"region", func(c *headgate.Charge) {
			if c.Limit.Align == headgate.OnClock {
				c.Within -= c.Within % c.Limit.Window.Microseconds()
			}
		}},
		"absent counters are unused": {"region", func(c *headgate.Charge) { c.Absent = 0 }},
		"no time zones":              {"calendar", func(c *headgate.Charge) { c.Limit.TimeZone = nil }},
		"no anchor":                  {"calendar", func(c *headgate.Charge) { c.Limit.AnchorDay = 0 }},
		"a peek that charges":        {"peek", func(c *headgate.Charge) { c.Cost = max(c.Cost, 1) }},
		"no partial charges":         {"partial", func(c *headgate.Charge) { c.AtLeast = 0 }},
		"one unit is enough":         {"partial", func(c *headgate.Charge) { c.AtLeast = min(c.AtLeast, 1) }},
		"denials without effect":     {"together", func(c *headgate.Charge) { c.Observe = true }},
		"observing enforces":         {"observe", func(c *headgate.Charge) { c.Observe = false }},
		"no twins":                   {"observe", func(c *headgate.Charge) { c.Twin = 0 }},
		"refunds of nothing": {"refund", func(c *headgate.Charge) {
			if c.Refund.Units > 0 {
				c.Refund = headgate.Receipt{Units: 1, Mark: 1, Time: 1}
			}
		}},
		"new numbers, new counter": {"change", func(c *headgate.Charge) { c.Counter += headgate.Counter(c.Limit.Count) }},
		"one counter for all":      {"change", func(c *headgate.Charge) { c.Counter = 1 }},
		"costs capped at the limit": {"never", func(c *headgate.Charge) {
			c.Cost = min(c.Cost, max(c.Limit.Count, c.Limit.Burst))
		}},
		"no negative costs":     {"never", func(c *headgate.Charge) { c.Cost = max(c.Cost, 0) }},
		"at most a million":     {"costs", func(c *headgate.Charge) { c.Limit.Count = min(c.Limit.Count, 1_000_000) }},
		"at most a day":         {"mixed_windows", func(c *headgate.Charge) { c.Limit.Window = min(c.Limit.Window, 24*time.Hour) }},
		"one subject for all":   {"together", func(c *headgate.Charge) { c.Subject = headgate.Subject{} }},
		"windows of whole days": {"costs", func(c *headgate.Charge) { c.Limit.Window = max(c.Limit.Window, 24*time.Hour) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if !fails(t.Context(), files, test.file, brokenStore{charge: test.charge}.target()) {
				t.Errorf("no scenario of %s fails", test.file)
			}
		})
	}
	t.Run("a clock that is never set back", func(t *testing.T) {
		target := openModel(nil)
		latest, set := time.Time{}, target.SetTime
		target.SetTime = func(now time.Time) {
			if now.After(latest) {
				latest = now
			}
			set(latest)
		}
		if !fails(t.Context(), files, "clock_steps", target) {
			t.Error("no scenario fails")
		}
	})
}

func fails(ctx context.Context, files []scenarioFile, name string, target Target) bool {
	for _, f := range files {
		for _, s := range f.scenarios {
			if f.name == name && s.play(ctx, target) != nil {
				return true
			}
		}
	}
	return false
}

// TestParseScenarios checks that mistakes in a scenario are errors.
func TestParseScenarios(t *testing.T) {
	const head = "scenario: a\n  limit api = token_bucket 10/1m\n  at 0s\n"
	tests := []struct{ text, want string }{
		{"take alice api 1 -> ok\n", "1: expected scenario: and a title, or an indented line below it"},
		{"scenario:\n", "1: expected a unique title after scenario:"},
		{head + "    take alice api 1 -> ok\nscenario: a\n", "5: expected a unique title after scenario:"},
		{head + "scenario: b\n", "1: scenario: no charges, or an empty together"},
		{head + "    together\n    take alice api 1 -> ok\n", "1: scenario: no charges, or an empty together"},
		{head + "limit b = token_bucket 1/1s\n", "4: expected scenario: and a title, or an indented line below it"},
		{
			head + "    give alice api 1\n",
			`4: expected start:, limit, subject, at, together or, after a time, take, acquire, refund, release, set, force, credit, not "give"`,
		},
		{"scenario: a\n  start: 1m\n", `2: expected a time in whole microseconds from 2031 to 2089, not "1m"`},
		{head + "  at\n", "4: expected a time, not the end of the line"},
		{head + "  at noon\n", `4: expected a time span in whole microseconds such as 5us, 1m30s or 30d, not "noon"`},
		{head + "  at 5ns\n", `4: expected a time span in whole microseconds such as 5us, 1m30s or 30d, not "5ns"`},
		{head + "  at 30000d\n", `4: expected a time in whole microseconds from 2031 to 2089, not "30000d"`},
		{head + "  at 1m 2m\n", `4: expected the end of the line, not "2m"`},

		{head + "  limit b token_bucket\n", `4: expected =, not "token_bucket"`},
		{head + "  limit b = bucket 10/1m\n", `4: expected one of token_bucket to concurrency, not "bucket"`},
		{head + "  limit b = token_bucket ten/1m\n", `4: expected a number, not "ten"`},
		{head + "  limit b = token_bucket 10/1m fast\n", `4: expected burst, aligned, spread, zone or anchor, not "fast"`},
		{head + "  limit b = leaky_bucket 10/1m burst 3\n", "4: burst 3: only token_bucket has a burst, not leaky_bucket"},
		{head + "  limit b = fixed_window 10\n", "4: expected per, not the end of the line"},
		{head + "  limit b = fixed_window 10 per day zone Berlin\n", "4: unknown time zone Berlin"},
		{head + "    take alice api 1 -> ok\n  subject alice offset 1s\n", "5: subject alice: offset must precede its first use"},

		{head + "    take alice abi 1 -> ok\n", `4: limit "abi": not defined above`},
		{head + "    take alice api 1\n", "4: expected ->, not the end of the line"},
		{head + "    credit alice api 1 within reach -> ok\n", `4: expected a time span in whole microseconds such as 5us, 1m30s or 30d, not "reach"`},
		{head + "    take alice api 1 absent all -> ok\n", `4: expected a number, not "all"`},
		{head + "    take alice api 1 ok\n", `4: expected an option or ->, not "ok"`},
		{head + "    take alice api 1 -> yes\n", `4: expected ok, no or never, not "yes"`},
		{head + "    take alice api 1 -> ok left 3\n", `4: expected granted, remaining, holding, retry, reset or delay, not "left"`},
		{head + "    refund alice api 1 -> ok\n", "4: of RECEIPT: only for refund and release, which require it, except for release on a concurrency limit"},
		{head + "    acquire alice api 1 by n1 seq 1 -> ok\n", "4: acquire: acquire and set are for concurrency limits, take for the others"},
		{head + "    set alice api 1 by n1 seq 1 -> ok\n", "4: set: acquire and set are for concurrency limits, take for the others"},
		{head + "  limit b = concurrency 3 lease 1s\n    take alice b 1 -> ok\n", "5: take: acquire and set are for concurrency limits, take for the others"},
		{head + "  limit b = concurrency 3/1s\n", `4: expected a number, not "3/1s"`},
		{head + "  limit b = concurrency 3 lease 1ms\n", "4: lease 1ms: must be 1s to 1h"},
	}
	for _, test := range tests {
		_, err := parseScenarios("x.scenario", test.text)
		if want := "x.scenario:" + test.want; err == nil || err.Error() != want {
			t.Errorf("of\n%s\ngot  %v\nwant %s", test.text, err, want)
		}
	}
}

func TestParseScenarioRequests(t *testing.T) {
	const text = `
scenario: a
  limit api = token_bucket 1_000/1d
  at 1d2h
    take alice api 1          -> ok
    together                  # one request
      take alice api 2        -> ok

      # still the same
      take bob api 3 at-least 2 max-delay 1m -> ok
    take alice api 4          -> ok
  at 2033-05-18T05:33:21+02:00
    take alice api 5          -> ok
    credit alice api 6 within 1s absent 7 -> ok
`
	scenarios, err := parseScenarios("x.scenario", text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range scenarios[0].requests {
		got = append(got, r.time.Sub(defaultStart).String())
		for _, l := range r.lines {
			got = append(got, formatNumber(l.charge.Cost))
		}
	}
	want := "26h0m0s 1 26h0m0s 2 3 26h0m0s 4 1s 5 1s 6"
	if got := strings.Join(got, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	bob := scenarios[0].requests[1].lines[1].charge
	if bob.AtLeast != 2 || bob.MaxDelay != time.Minute || bob.Limit != headgate.PerDay(1000) ||
		bob.Subject == scenarios[0].requests[1].lines[0].charge.Subject {
		t.Errorf("got %+v", bob)
	}
	if c := scenarios[0].requests[4].lines[0].charge; c.Within != defaultStart.Add(time.Second).UnixMicro() || c.Absent != 7 {
		t.Errorf("got %+v", c)
	}
}

func TestFormatSpan(t *testing.T) {
	for span, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "1us", 1500 * time.Microsecond: "1.5ms", 10 * time.Second: "10s", time.Minute: "1m",
		10 * time.Minute: "10m", 90 * time.Second: "1m30s", time.Hour: "1h", 10 * time.Hour: "10h", 20*time.Hour + 10*time.Second: "20h0m10s",
		headgate.Never: "never",
	} {
		if got := formatSpan(int64(span)); got != want {
			t.Errorf("%v: got %s, want %s", span, got, want)
		}
	}
}
