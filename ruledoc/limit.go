package ruledoc

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// readLimit is a limit with what only matters while it is read.
type readLimit struct {
	headgate.Limit
	rate, quota bool
	// Whether these are written, or are to come from the rule.
	algorithm *headgate.Algorithm
	aligned   bool
}

var limitFields = []field[readLimit]{
	{"rate", func(d *decoder, n *node, key string, l *readLimit) {
		l.rate = true
		l.Count, l.Window = d.rate(n, key)
	}},
	{"burst", func(d *decoder, n *node, key string, l *readLimit) {
		l.Burst = d.whole(n, key, 1, "write 1 or more; without it the burst is the limit's number")
	}},
	{"algorithm", func(d *decoder, n *node, key string, l *readLimit) { l.algorithm = d.algorithm(n, key) }},
	{"align", func(d *decoder, n *node, key string, l *readLimit) {
		l.aligned = true
		d.word(n, key, alignWords, (*uint8)(&l.Align))
	}},
	{"quota", func(d *decoder, n *node, key string, l *readLimit) {
		l.quota = true
		l.Count = d.whole(n, key, 1, "")
	}},
	{"calendar", func(d *decoder, n *node, key string, l *readLimit) {
		if i := d.choose(n, key, calendarWords); i >= 0 {
			l.Calendar = headgate.Calendar(i + 1)
		}
	}},
	{"timezone", func(d *decoder, n *node, key string, l *readLimit) { l.TimeZone = d.zone(n, key) }},
	{"anchor_day", func(d *decoder, n *node, key string, l *readLimit) {
		l.AnchorDay = int(min(d.whole(n, key, 1, ""), math.MaxInt32))
	}},
}

var (
	calendarWords  = wordsOf(headgate.Minute, headgate.Hour, headgate.Day, headgate.Week, headgate.Month)
	alignWords     = []string{"first", "clock", "spread"}
	algorithmWords = wordsOf(headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow,
		headgate.SlidingLog)
	// otherAlgorithmWords are what other limiters call ours.
	otherAlgorithmWords = map[string]headgate.Algorithm{
		"sliding_window_counter": headgate.SlidingWindow,
		"sliding_window_log":     headgate.SlidingLog,
	}
)

func (d *decoder) algorithm(n *node, key string) *headgate.Algorithm {
	if a, ok := otherAlgorithmWords[n.text]; ok && n.kind == text {
		return &a
	}
	if n.kind == text && n.text == "concurrency" {
		d.bad(n, "%s: concurrency is not available yet; the others are %s", key, strings.Join(algorithmWords, ", "))
		return nil
	}
	i := d.choose(n, key, algorithmWords)
	if i < 0 {
		return nil
	}
	a := headgate.Algorithm(i)
	return &a
}

// how is how limits count that do not say it themselves.
type how struct {
	algorithm headgate.Algorithm
	align     headgate.Align
}

// limit reads 10/minute, {rate: …} or {quota: …}. Where it does not say how to count, it counts as like does.
func (d *decoder) limit(n *node, key string, like how) headgate.Limit {
	var l readLimit
	before := d.report.count
	switch n.kind {
	case text, number:
		l.rate = true
		l.Count, l.Window = d.rate(n, key)
	case mapping:
		fields(d, n, key, limitFields, &l)
		d.checkKind(n, key, &l)
	default:
		d.bad(n, "%s wants 10/minute or {rate: 10/minute, burst: 20}, not %s", key, describe(n))
	}
	if d.report.count > before {
		return headgate.Limit{} // not to be judged a second time
	}
	switch {
	case l.algorithm != nil:
		l.Algorithm = *l.algorithm
	case l.quota:
		l.Algorithm = headgate.FixedWindow
	default:
		l.Algorithm = like.algorithm
	}
	if l.Algorithm == like.algorithm && !l.aligned && !l.quota {
		l.Align = like.align
	}
	return l.Limit
}

// checkKind says whether a limit is either a rate or a quota.
func (d *decoder) checkKind(n *node, key string, l *readLimit) {
	switch {
	case l.rate && l.quota:
		d.bad(n, "%s has a rate and a quota: keep one of them, or make two limits of them", key)
	case l.quota && l.Calendar == headgate.NoCalendar:
		if _, written := n.get("calendar"); !written {
			d.bad(n, "%s: a quota is for a unit of the calendar: add calendar: month (or %s)", key,
				strings.Join(calendarWords[:4], ", "))
		}
	case l.rate && l.Calendar != headgate.NoCalendar:
		d.bad(n, "%s: a calendar belongs to a quota: write {quota: %d, calendar: %s}", key, l.Count, l.Calendar)
	case !l.rate && !l.quota:
		if _, written := n.get("rate"); !written {
			d.bad(n, "%s says neither rate nor quota: write {rate: 10/minute} or {quota: 1000, calendar: day}", key)
		}
	}
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
	if n.kind == number {
		d.bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, n.text, n.text)
		return 0, 0
	}
	s, ok := d.text(n, key)
	if !ok {
		return 0, 0
	}
	much, per, ok := strings.Cut(s, "/")
	if much = strings.TrimSpace(much); !ok && isDigits(strings.ReplaceAll(much, "_", "")) {
		d.bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, much, much)
		return 0, 0
	} else if !ok {
		d.bad(n, "%s wants a rate like 10/minute, 5/15m or 10_000/h, not %q", key, shorten(s))
		return 0, 0
	}
	return d.count(n, key, much), d.window(n, key, much, strings.TrimSpace(per))
}

func (d *decoder) count(n *node, key, s string) int64 {
	digits := strings.ReplaceAll(s, "_", "")
	switch count, err := strconv.ParseInt(digits, 10, 64); {
	case !isDigits(digits) && strings.Contains(s, "."):
		d.bad(n, "%s: %q is not whole: write a whole number per longer time, 3/2m for one and a half per minute", key,
			shorten(s))
	case !isDigits(digits):
		d.bad(n, "%s: %q is no whole number: write it in digits, 10_000 if you like", key, shorten(s))
	case err != nil || count > headgate.MaxCost:
		d.bad(n, "%s: %s is more than %d, the most that can be counted", key, shorten(s), headgate.MaxCost)
	case count == 0:
		d.bad(n, "%s: 0 would refuse everything: write 1 or more", key)
	default:
		return count
	}
	return 0
}

func (d *decoder) window(n *node, key, count, s string) time.Duration {
	word := strings.TrimLeft(s, "0123456789_")
	times := strings.ReplaceAll(s[:len(s)-len(word)], "_", "")
	word = strings.TrimSpace(word)
	unit, known := units[word]
	switch {
	case word == "month" || word == "months" || word == "mo" || word == "M":
		d.bad(n, "%s: months differ in length: write {quota: %s, calendar: month}, or %s/30d", key, count, count)
		return 0
	case word == "year" || word == "years" || word == "y":
		d.bad(n, "%s: years differ in length: write %s/365d", key, count)
		return 0
	case word == "":
		d.bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, count, count)
		return 0
	case !known:
		if near := nearest(word, unitWords); near != "" {
			d.bad(n, "%s: there is no unit %q; did you mean %s/%s%s?", key, shorten(word), count, times, near)
		} else {
			d.bad(n, "%s: there is no unit %q: write second, minute, hour, day or week, or several, as in 5/15m", key,
				shorten(word))
		}
		return 0
	case times == "":
		return unit
	}
	k, err := strconv.ParseInt(times, 10, 64)
	switch longest := 366 * day; {
	case err != nil || k > int64(longest/unit):
		d.bad(n, "%s: %s is longer than 366 days, the longest that can be counted", key, shorten(s))
	case k == 0:
		d.bad(n, "%s: per no time at all: write %s/%s", key, count, word)
	default:
		return time.Duration(k) * unit
	}
	return 0
}
