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

// ParseLimit reads a limit that stands alone, as that of an override does in a table or a command:
//
//	5000/minute              as in documents
//	5000/minute burst 500
//	5000                     the limit like with another number, its window or calendar kept
//	{"quota": 100000, …}     all else that documents have
//
// Like is the limit in whose place it stands. A rate counts as that one does; in the place of a quota, or of none, it is a
// token bucket. Without a burst it has that of like, scaled with the rate. Good input but the last costs no memory and little time: there may be a million of them.
func ParseLimit(text string, like headgate.Limit) (headgate.Limit, error) {
	if strings.HasPrefix(text, "{") {
		return parseLimitDocument(text, like)
	}
	text, burst, hasBurst := strings.Cut(text, " burst ")
	text = strings.TrimSpace(text)
	var problems []string
	limit := like
	if isDigits(strings.ReplaceAll(text, "_", "")) && like.Count > 0 {
		limit.Count, problems = parseCount(text, problems)
		limit.Burst = 0
	} else {
		count, _ := howOf(like)
		limit = headgate.Limit{Algorithm: count.algorithm, Align: count.align}
		limit.Count, limit.Window, problems = parseRate(text)
	}
	if hasBurst {
		limit.Burst, problems = parseCount(strings.TrimSpace(burst), problems)
	}
	if len(problems) > 0 {
		return headgate.Limit{}, errors.New("limit" + strings.Join(problems, "; limit"))
	}
	return valid(scaleBurst(limit, like))
}

func valid(limit headgate.Limit) (headgate.Limit, error) {
	if err := limit.Validate(); err != nil {
		return headgate.Limit{}, fmt.Errorf("limit: %w", err)
	}
	return limit, nil
}

func parseLimitDocument(text string, like headgate.Limit) (headgate.Limit, error) {
	r := newReader(source{Name: "limit", Data: []byte(text)})
	var limit headgate.Limit
	r.readOne("", func(d *decoder, n *node) {
		limit = d.limit(n, "limit", howInPlaceOf(like))
	})
	if err := r.errors(); err != nil {
		return headgate.Limit{}, err
	}
	return valid(limit)
}

// units are the spans that a rate may be per.
var units = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": 7 * day, "week": 7 * day, "weeks": 7 * day,
}

const day = 24 * time.Hour

var unitWords = []string{"second", "minute", "hour", "day", "week"}

// rate reads 10/minute, 5/15m, 10_000/h.
func (d *decoder) rate(n *node, key string) (count int64, window time.Duration) {
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s%s", key, perWhat(n.Text))
		return 0, 0
	}
	s, ok := d.Text(n, key)
	if !ok {
		return 0, 0
	}
	count, window, problems := parseRate(s)
	for _, problem := range problems {
		d.Bad(n, "%s%s", key, problem)
	}
	return count, window
}

// rateAlone reads a limit of which nothing but the rate is said.
func (d *decoder) rateAlone(n *node, key string) headgate.Limit { return headgate.Per(d.rate(n, key)) }

// parseRate reads a rate. Each of the problems goes on from the name of what it is about.
func parseRate(s string) (count int64, window time.Duration, problems []string) {
	much, per, ok := strings.Cut(s, "/")
	if much = strings.TrimSpace(much); !ok && isDigits(strings.ReplaceAll(much, "_", "")) {
		return 0, 0, []string{perWhat(much)}
	} else if !ok {
		return 0, 0, []string{fmt.Sprintf(" wants a rate like 10/minute, 5/15m or 10_000/h, not %q", yamldoc.Shorten(s))}
	}
	count, problems = parseCount(much, nil)
	window, problems = parseWindow(much, strings.TrimSpace(per), problems)
	return count, window, problems
}

func perWhat(count string) string {
	return fmt.Sprintf(": %s per what? write %s/minute (or second, hour, day)", count, count)
}

func parseCount(s string, problems []string) (int64, []string) {
	bad := func(format string, args ...any) (int64, []string) {
		return 0, append(problems, fmt.Sprintf(format, args...))
	}
	digits := strings.ReplaceAll(s, "_", "")
	switch count, err := strconv.ParseInt(digits, 10, 64); {
	case !isDigits(digits) && strings.Contains(s, "."):
		return bad(": %q is not whole: write a whole number per longer time, 3/2m for one and a half per minute",
			yamldoc.Shorten(s))
	case !isDigits(digits):
		return bad(": %q is no whole number: write it in digits, 10_000 if you like", yamldoc.Shorten(s))
	case err != nil || count > headgate.MaxCost:
		return bad(": %s is more than %d, the most that can be counted", yamldoc.Shorten(s), headgate.MaxCost)
	case count == 0:
		return bad(": 0 would deny everything: write 1 or more")
	default:
		return count, problems
	}
}

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
		return bad(": months differ in length: write {quota: %s, calendar: month}, or %s/30d", count, count)
	case word == "year" || word == "years" || word == "y":
		return bad(": years differ in length: write %s/365d", count)
	case word == "":
		return 0, append(problems, perWhat(count))
	case !known:
		if near := yamldoc.Nearest(word, unitWords); near != "" {
			return bad(": there is no unit %q; did you mean %s/%s%s?", yamldoc.Shorten(word), count, times, near)
		}
		return bad(": there is no unit %q: write second, minute, hour, day or week, or several, as in 5/15m",
			yamldoc.Shorten(word))
	case times == "":
		return unit, problems
	}
	k, err := strconv.ParseInt(times, 10, 64)
	switch longest := 366 * day; {
	case err != nil || k > int64(longest/unit):
		return bad(": %s is longer than 366 days, the longest that can be counted", yamldoc.Shorten(s))
	case k == 0:
		return bad(": per no time at all: write %s/%s", count, word)
	default:
		return time.Duration(k) * unit, problems
	}
}

// windowText is the window of a rate as documents have it, or "" if it is finer than a millisecond.
func windowText(w time.Duration) string {
	for _, word := range unitWords {
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
