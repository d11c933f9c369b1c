package ruledoc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// ParseLimit parses the limit of an override outside of a document, for example in a table or on a command line:
//
//	5000/minute              as in documents
//	5000/minute burst 500
//	20 concurrent            a concurrency limit; also 20 concurrent, lease 1m
//	5000                     the replaced limit with another count, and the same window, calendar or lease
//	{"quota": 100000, …}     any limit of a document
//
// Replaced is the limit that the override replaces. A rate uses its algorithm and alignment, or a token bucket if it is
// not a rate itself. A rate without a burst has the replaced limit's burst, scaled with the rate. Parsing valid input does not
// allocate, except for the last form: there may be a million overrides.
func ParseLimit(text string, replaced headgate.Limit) (headgate.Limit, error) {
	if strings.HasPrefix(text, "{") {
		return parseLimitDocument(text, replaced)
	}
	if isConcurrent(text) {
		defaults, _ := defaultsFrom(replaced)
		limit, problems := parseConcurrent(text, defaults)
		if len(problems) > 0 {
			return headgate.Limit{}, errors.New("limit: " + strings.Join(problems, "; limit: "))
		}
		return valid(limit)
	}
	text, burst, hasBurst := strings.Cut(text, " burst ")
	text = strings.TrimSpace(text)
	var problems []string
	limit := replaced
	if isDigits(strings.ReplaceAll(text, "_", "")) && replaced.Count > 0 {
		limit.Count, problems = parseCount("count", text, problems)
		limit.Burst = 0
	} else {
		defaults, _ := defaultsFrom(replaced)
		limit = headgate.Limit{Algorithm: defaults.algorithm, Align: defaults.align}
		limit.Count, limit.Window, problems = parseRate(text)
	}
	if hasBurst {
		limit.Burst, problems = parseCount("burst", strings.TrimSpace(burst), problems)
	}
	if len(problems) > 0 {
		return headgate.Limit{}, errors.New("limit: " + strings.Join(problems, "; limit: "))
	}
	return valid(scaleBurst(limit, replaced))
}

// valid returns the limit, or an error if it is invalid.
func valid(limit headgate.Limit) (headgate.Limit, error) {
	if err := limit.Validate(); err != nil {
		return headgate.Limit{}, fmt.Errorf("limit: %w", err)
	}
	return limit, nil
}

func parseLimitDocument(text string, replaced headgate.Limit) (headgate.Limit, error) {
	r := newReader(source{Name: "limit", Data: []byte(text)})
	var limit headgate.Limit
	r.readOne("", func(d *decoder, n *node) {
		limit = d.limit(n, "limit", overrideDefaultsFrom(replaced))
	})
	if err := r.errors(); err != nil {
		return headgate.Limit{}, err
	}
	return valid(limit)
}

// units are the time units of a rate.
var units = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": 7 * day, "week": 7 * day, "weeks": 7 * day,
}

const day = 24 * time.Hour

var unitNames = []string{"second", "minute", "hour", "day", "week"}

// rate decodes 10/minute, 5/15m, 10_000/h.
func (d *decoder) rate(n *node, key string) (count int64, window time.Duration) {
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s: %s", key, missingUnit(n.Text))
		return 0, 0
	}
	s, ok := d.Text(n, key)
	if !ok {
		return 0, 0
	}
	count, window, problems := parseRate(s)
	for _, problem := range problems {
		d.Bad(n, "%s: %s", key, problem)
	}
	return count, window
}

// rateAlone decodes a limit that is only a rate.
func (d *decoder) rateAlone(n *node, key string) headgate.Limit { return headgate.Per(d.rate(n, key)) }

// parseRate parses a rate. The problems do not name the key.
func parseRate(s string) (count int64, window time.Duration, problems []string) {
	number, per, ok := strings.Cut(s, "/")
	if number = strings.TrimSpace(number); !ok && isDigits(strings.ReplaceAll(number, "_", "")) {
		return 0, 0, []string{missingUnit(number)}
	} else if !ok {
		return 0, 0, []string{fmt.Sprintf("must be a rate like 10/minute, 5/15m or 10_000/h, not %q", yamldoc.Shorten(s))}
	}
	count, problems = parseCount("count", number, nil)
	window, problems = parseWindow(number, strings.TrimSpace(per), problems)
	return count, window, problems
}

func missingUnit(count string) string {
	return fmt.Sprintf("%s has no time unit: write %s/minute (or second, hour, day)", count, count)
}

// parseCount parses a count and appends a problem if it is invalid. What names the number.
func parseCount(what, s string, problems []string) (int64, []string) {
	bad := func(format string, args ...any) (int64, []string) {
		return 0, append(problems, fmt.Sprintf(format, args...))
	}
	digits := strings.ReplaceAll(s, "_", "")
	switch count, err := strconv.ParseInt(digits, 10, 64); {
	case !isDigits(digits) && strings.Contains(s, "."):
		return bad("%s %q: must be a whole number: use a longer window, like 3/2m for 1.5 per minute", what, yamldoc.Shorten(s))
	case !isDigits(digits):
		return bad("%s %q: must be a whole number in digits, like 10_000", what, yamldoc.Shorten(s))
	case err != nil || count > headgate.MaxCost:
		return bad("%s %s: must be 1 to %d", what, yamldoc.Shorten(s), headgate.MaxCost)
	case count == 0:
		return bad("%s 0: must be 1 to %d; 0 would deny all requests", what, headgate.MaxCost)
	default:
		return count, problems
	}
}

// parseWindow parses the time window of a rate and appends a problem if it is invalid. Count is for the remedy.
func parseWindow(count, s string, problems []string) (time.Duration, []string) {
	bad := func(format string, args ...any) (time.Duration, []string) {
		return 0, append(problems, fmt.Sprintf(format, args...))
	}
	word := strings.TrimLeft(s, "0123456789_")
	times := strings.ReplaceAll(s[:len(s)-len(word)], "_", "")
	word = strings.TrimSpace(word)
	unit, known := units[word]
	switch {
	case word == "month" || word == "months" || word == "mo" || word == "M":
		return bad("a month has no fixed length: write {quota: %s, calendar: month}, or %s/30d", count, count)
	case word == "year" || word == "years" || word == "y":
		return bad("a year has no fixed length: write %s/365d", count)
	case word == "":
		return 0, append(problems, missingUnit(count))
	case !known:
		if near := yamldoc.Nearest(word, unitNames); near != "" {
			return bad("unknown unit %q; did you mean %s/%s%s?", yamldoc.Shorten(word), count, times, near)
		}
		return bad("unknown unit %q: write second, minute, hour, day or week, or a multiple, like 5/15m",
			yamldoc.Shorten(word))
	case times == "":
		return unit, problems
	}
	k, err := strconv.ParseInt(times, 10, 64)
	switch longest := 366 * day; {
	case err != nil || k > int64(longest/unit):
		return bad("window %s: must be at most 366 days", yamldoc.Shorten(s))
	case k == 0:
		return bad("window %s: must be longer than 0: write %s/%s", yamldoc.Shorten(s), count, word)
	default:
		return time.Duration(k) * unit, problems
	}
}

// windowText returns the window of a rate as in documents, or "" if it is not a whole number of milliseconds.
func windowText(w time.Duration) string {
	for _, word := range unitNames {
		if w == units[word] {
			return word
		}
	}
	for _, unit := range []string{"d", "h", "m", "s", "ms"} {
		if w%units[unit] == 0 {
			return strconv.FormatInt(int64(w/units[unit]), 10) + unit
		}
	}
	return ""
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
