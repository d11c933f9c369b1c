package headgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		limit headgate.Limit
		want  string // empty if the limit is valid
	}{
		{headgate.PerSecond(1), ""},
		{headgate.PerSecond(1_000_000_000), ""},
		{headgate.PerMinute(7), ""},
		{headgate.PerHour(999_999_937), ""},
		{headgate.PerDay(1), ""},
		{headgate.Per(1, 366*day), ""},
		{headgate.Per(1_000_000_000, 366*day), ""},
		{headgate.Per(1_000_000, time.Millisecond), ""},
		{headgate.Limit{Count: 1, Window: 366 * day, Burst: 10}, ""},
		{headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second}, ""},
		{headgate.Limit{Algorithm: headgate.SlidingLog, Count: 1_000, Window: time.Second}, ""},
		{headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 1_000_000_000, Window: 1_001 * time.Microsecond}, ""},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Second, Align: headgate.OnClockSpread}, ""},
		{headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 1, Window: time.Second, Align: headgate.OnClock}, ""},
		{headgate.Quota(1_000_000_000, headgate.Month, nil), ""},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Week, AnchorDay: 7}, ""},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Month, AnchorDay: 31}, ""},

		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Second}, ""},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1_000_000_000, Window: time.Hour}, ""},

		{headgate.Limit{}, "count 0: must be 1 to 1000000000"},
		{headgate.PerSecond(-1), "count -1: must be 1 to 1000000000"},
		{headgate.PerSecond(1_000_000_001), "count 1000000001: must be 1 to 1000000000"},
		{headgate.Limit{Algorithm: 6, Count: 1, Window: time.Second}, "algorithm 6: must be 0 to 5"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: 999 * time.Millisecond}, "lease 999ms: must be 1s to 1h"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Hour + 1}, "lease 1h0m0.000000001s: must be 1s to 1h"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Second + 1}, "window 1.000000001s: must be a multiple of 1µs"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 0, Window: time.Second}, "count 0: must be 1 to 1000000000"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Second, Burst: 2}, "burst 2: only token_bucket has a burst, not concurrency"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Second, Align: 1}, "align: only fixed_window and sliding_window have an alignment, not concurrency"},
		{headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Calendar: headgate.Day}, "calendar: only fixed_window can follow a calendar, not concurrency"},
		{headgate.Limit{Count: 1, Window: time.Second, Burst: -1}, "burst -1: must be 1 to 1000000000"},
		{headgate.Limit{Count: 1, Window: time.Second, Burst: 1_000_000_001}, "burst 1000000001: must be 1 to 1000000000"},
		{headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 1, Window: time.Second, Burst: 2}, "burst 2: only token_bucket has a burst, not sliding_window"},
		{headgate.Limit{Count: 1, Window: 366 * day, Burst: 11}, "burst 11: takes more than ten years to refill at 1 per 8784h0m0s: use a smaller burst"},
		{headgate.Limit{Algorithm: headgate.SlidingLog, Count: 10_001, Window: time.Second}, "count 10001: sliding_log stores a timestamp per charge: must be 1 to 10000, or use sliding_window"},
		{headgate.Per(1, 0), "window 0s: must be 1ms to 366 days"},
		{headgate.Per(1, -time.Second), "window -1s: must be 1ms to 366 days"},
		{headgate.Per(1, 999*time.Microsecond), "window 999µs: must be 1ms to 366 days"},
		{headgate.Per(1, 366*day+time.Microsecond), "window 8784h0m0.000001s: must be 1ms to 366 days"},
		{headgate.Per(1, time.Second+time.Nanosecond), "window 1.000000001s: must be a multiple of 1µs"},
		{headgate.Per(1_000_001, time.Millisecond), "rate 1000001 per 1ms: must be at most 1000000000 per second"},
		{headgate.Per(999_999_937, 366*day-time.Microsecond), "rate 999999937 per 8783h59m59.999999s: cannot be counted exactly: use a rounder count or a window of whole seconds"},
		{headgate.Limit{Count: 1, Window: time.Second, Align: headgate.OnClock}, "align: only fixed_window and sliding_window have an alignment, not token_bucket"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Second, Align: 3}, "align 3: must be 0 to 2"},
		{headgate.Limit{Count: 1, Window: time.Second, TimeZone: time.UTC}, "time zone and anchor day: only valid with a calendar: set Calendar"},
		{headgate.Limit{Count: 1, Window: time.Second, AnchorDay: 1}, "time zone and anchor day: only valid with a calendar: set Calendar"},
		{headgate.Limit{Count: 1, Calendar: headgate.Day}, "calendar: only fixed_window can follow a calendar, not token_bucket"},
		{headgate.Quota(1, 6, nil), "calendar 6: must be 0 to 5"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Day, Window: time.Hour}, "calendar day: has its own window: leave Window and Align unset"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Day, Align: headgate.OnClock}, "calendar day: has its own window: leave Window and Align unset"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Day, AnchorDay: 1}, "anchor day 1: a calendar day has none"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Hour, AnchorDay: -1}, "anchor day -1: a calendar hour has none"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Week, AnchorDay: 8}, "anchor day 8: must be 1 to 7 for a calendar week"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Month, AnchorDay: 32}, "anchor day 32: must be 1 to 31 for a calendar month"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Month, AnchorDay: -1}, "anchor day -1: must be 1 to 31 for a calendar month"},
	}
	for _, test := range tests {
		got := ""
		if err := test.limit.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v\n is: %s\nwant: %s", test.limit, got, test.want)
		}
		now := time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC)
		_, r := test.limit.Take(headgate.State{}, headgate.Charge{Cost: 1}, now)
		if valid := test.want == ""; r.Allowed != valid || (r.RetryAfter == headgate.Never) == valid {
			t.Errorf("%+v: allowed %v, retry after %v", test.limit, r.Allowed, r.RetryAfter)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	var names []string
	for a := range headgate.Algorithm(7) {
		names = append(names, a.String())
	}
	for c := range headgate.Calendar(7) {
		names = append(names, c.String())
	}
	const want = "token_bucket leaky_bucket fixed_window sliding_window sliding_log concurrency unknown none minute hour day week month unknown"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("names: %s\nwant:  %s", got, want)
	}
}

func TestSubjectOf(t *testing.T) {
	t.Parallel()
	parts := [][]string{
		nil,
		{""},
		{"", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"a", "b"},
		{"b", "a"},
		{"ab"},
		{"a|b", "c"},
		{"a", "b|c"},
		{"a", "b", "c"},
		{"a\x01b"},
		{"a", "\x01b"},
		{strings.Repeat("x", 127)},
		{strings.Repeat("x", 128)},
		{strings.Repeat("x", 1_000_000)},
	}
	seen := map[headgate.Subject][]string{}
	for _, p := range parts {
		s := headgate.SubjectOf(p...)
		if other, ok := seen[s]; ok {
			t.Errorf("%.40q and %.40q are one subject", p, other)
		}
		seen[s] = p
		if s != headgate.SubjectOf(p...) {
			t.Errorf("%.40q is not always the same subject", p)
		}
		if text := s.String(); len(text) != 22 || strings.ContainsAny(text, "{}+/=") {
			t.Errorf("%.40q is written %q", p, text)
		}
	}
}

func TestCounterOf(t *testing.T) {
	t.Parallel()
	seen := map[headgate.Counter]string{}
	for a := headgate.TokenBucket; a <= headgate.Concurrency; a++ {
		for _, names := range [][2]string{{"login", ""}, {"", "login"}, {"login", "peak"}, {"loginpeak", ""}, {"peak", "login"}} {
			c := headgate.CounterOf(names[0], names[1], a)
			if other, ok := seen[c]; ok {
				t.Errorf("%q of %s is the same counter as %s", names, a, other)
			}
			seen[c] = names[0] + "/" + names[1] + " of " + a.String()
			if c>>48 != 0 || c != headgate.CounterOf(names[0], names[1], a) {
				t.Errorf("%q of %s is counter %#x", names, a, uint64(c))
			}
			if text := c.String(); len(text) != 8 || strings.ContainsAny(text, "{}+/=") {
				t.Errorf("%q of %s is written %q", names, a, text)
			}
		}
	}
}

// TestStoreKeysAreStable checks that subjects and counters in a store's keys do not change: a new release would reset all counters.
func TestStoreKeysAreStable(t *testing.T) {
	t.Parallel()
	subject := headgate.SubjectOf("ip", "192.0.2.1").String()
	counter := headgate.CounterOf("login-by-ip", "", headgate.TokenBucket).String()
	if subject != "z-4Wvob6b-_9rEEgFKup9Q" || counter != "aGAKMDk9" {
		t.Errorf("subject %s, counter %s", subject, counter)
	}
}

func TestLimitString(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	anchored := headgate.Quota(5, headgate.Month, berlin)
	anchored.AnchorDay = 15
	for want, limit := range map[string]headgate.Limit{
		"10/minute":                            headgate.PerMinute(10),
		"5/15m":                                headgate.Per(5, 15*time.Minute),
		"5/2h":                                 headgate.Per(5, 2*time.Hour),
		"5/1h30m":                              headgate.Per(5, 90*time.Minute),
		"5/1m30s":                              headgate.Per(5, 90*time.Second),
		"5/250ms":                              headgate.Per(5, 250*time.Millisecond),
		"5/10s":                                headgate.Per(5, 10*time.Second),
		"5/7d":                                 headgate.Per(5, 7*24*time.Hour),
		"1/day":                                headgate.PerDay(1),
		"1000/minute, burst 200":               {Count: 1000, Window: time.Minute, Burst: 200},
		"1000/minute":                          {Count: 1000, Window: time.Minute, Burst: 1000},
		"3/second, leaky_bucket":               {Algorithm: headgate.LeakyBucket, Count: 3, Window: time.Second},
		"3/second, sliding_log":                {Algorithm: headgate.SlidingLog, Count: 3, Window: time.Second},
		"3/hour, fixed_window":                 {Algorithm: headgate.FixedWindow, Count: 3, Window: time.Hour},
		"20 concurrent":                        {Algorithm: headgate.Concurrency, Count: 20, Window: 10 * time.Second},
		"20 concurrent, lease 1m":              {Algorithm: headgate.Concurrency, Count: 20, Window: time.Minute},
		"5/month in UTC":                       headgate.Quota(5, headgate.Month, nil),
		"5/day in Europe/Berlin":               headgate.Quota(5, headgate.Day, berlin),
		"5/month in Europe/Berlin from day 15": anchored,
		"3/hour, fixed_window on the clock":    {Algorithm: headgate.FixedWindow, Count: 3, Window: time.Hour, Align: headgate.OnClock},
		"3/hour, fixed_window on the clock, spread": {Algorithm: headgate.FixedWindow, Count: 3, Window: time.Hour, Align: headgate.OnClockSpread},
		"3/hour, sliding_window on the clock":       {Algorithm: headgate.SlidingWindow, Count: 3, Window: time.Hour, Align: headgate.OnClock},
	} {
		if err := limit.Validate(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if got := limit.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
