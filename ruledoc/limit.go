package ruledoc

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
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
	{Key: "rate", Read: func(d *decoder, n *node, key string, l *readLimit) {
		l.rate = true
		l.Count, l.Window = d.rate(n, key)
	}},
	{Key: "burst", Read: func(d *decoder, n *node, key string, l *readLimit) {
		l.Burst = d.Whole(n, key, 1, "write 1 or more; without it the burst is the limit's number")
	}},
	{Key: "algorithm", Read: func(d *decoder, n *node, key string, l *readLimit) { l.algorithm = d.algorithm(n, key) }},
	{Key: "align", Read: func(d *decoder, n *node, key string, l *readLimit) {
		l.aligned = true
		d.word(n, key, alignWords, (*uint8)(&l.Align))
	}},
	{Key: "quota", Read: func(d *decoder, n *node, key string, l *readLimit) {
		l.quota = true
		l.Count = d.Whole(n, key, 1, "")
	}},
	{Key: "calendar", Read: func(d *decoder, n *node, key string, l *readLimit) {
		if i := d.Choose(n, key, calendarWords); i >= 0 {
			l.Calendar = headgate.Calendar(i + 1)
		}
	}},
	{Key: "timezone", Read: func(d *decoder, n *node, key string, l *readLimit) { l.TimeZone = d.zone(n, key) }},
	{Key: "anchor_day", Read: func(d *decoder, n *node, key string, l *readLimit) {
		l.AnchorDay = int(min(d.Whole(n, key, 1, ""), math.MaxInt32))
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
	if a, ok := otherAlgorithmWords[n.Text]; ok && n.Kind == yamldoc.Text {
		return &a
	}
	if n.Kind == yamldoc.Text && n.Text == "concurrency" {
		d.Bad(n, "%s: concurrency is not available yet; the others are %s", key, strings.Join(algorithmWords, ", "))
		return nil
	}
	i := d.Choose(n, key, algorithmWords)
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
	before := d.Report.Count()
	switch n.Kind {
	case yamldoc.Text, yamldoc.Number:
		l.rate = true
		l.Count, l.Window = d.rate(n, key)
	case yamldoc.Mapping:
		yamldoc.Fields(d, n, key, limitFields, &l)
		d.checkKind(n, key, &l)
	default:
		d.Bad(n, "%s wants 10/minute or {rate: 10/minute, burst: 20}, not %s", key, n.Describe())
	}
	if d.Report.Count() > before {
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
		d.Bad(n, "%s has a rate and a quota: keep one of them, or make two limits of them", key)
	case l.quota && l.Calendar == headgate.NoCalendar:
		if _, written := n.Get("calendar"); !written {
			d.Bad(n, "%s: a quota is for a unit of the calendar: add calendar: month (or %s)", key,
				strings.Join(calendarWords[:4], ", "))
		}
	case l.rate && l.Calendar != headgate.NoCalendar:
		d.Bad(n, "%s: a calendar belongs to a quota: write {quota: %d, calendar: %s}", key, l.Count, l.Calendar)
	case !l.rate && !l.quota:
		if _, written := n.Get("rate"); !written {
			d.Bad(n, "%s says neither rate nor quota: write {rate: 10/minute} or {quota: 1000, calendar: day}", key)
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
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, n.Text, n.Text)
		return 0, 0
	}
	s, ok := d.Text(n, key)
	if !ok {
		return 0, 0
	}
	much, per, ok := strings.Cut(s, "/")
	if much = strings.TrimSpace(much); !ok && isDigits(strings.ReplaceAll(much, "_", "")) {
		d.Bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, much, much)
		return 0, 0
	} else if !ok {
		d.Bad(n, "%s wants a rate like 10/minute, 5/15m or 10_000/h, not %q", key, yamldoc.Shorten(s))
		return 0, 0
	}
	return d.count(n, key, much), d.window(n, key, much, strings.TrimSpace(per))
}

func (d *decoder) count(n *node, key, s string) int64 {
	digits := strings.ReplaceAll(s, "_", "")
	switch count, err := strconv.ParseInt(digits, 10, 64); {
	case !isDigits(digits) && strings.Contains(s, "."):
		d.Bad(n, "%s: %q is not whole: write a whole number per longer time, 3/2m for one and a half per minute", key,
			yamldoc.Shorten(s))
	case !isDigits(digits):
		d.Bad(n, "%s: %q is no whole number: write it in digits, 10_000 if you like", key, yamldoc.Shorten(s))
	case err != nil || count > headgate.MaxCost:
		d.Bad(n, "%s: %s is more than %d, the most that can be counted", key, yamldoc.Shorten(s), headgate.MaxCost)
	case count == 0:
		d.Bad(n, "%s: 0 would refuse everything: write 1 or more", key)
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
		d.Bad(n, "%s: months differ in length: write {quota: %s, calendar: month}, or %s/30d", key, count, count)
		return 0
	case word == "year" || word == "years" || word == "y":
		d.Bad(n, "%s: years differ in length: write %s/365d", key, count)
		return 0
	case word == "":
		d.Bad(n, "%s: %s per what? write %s/minute (or second, hour, day)", key, count, count)
		return 0
	case !known:
		if near := yamldoc.Nearest(word, unitWords); near != "" {
			d.Bad(n, "%s: there is no unit %q; did you mean %s/%s%s?", key, yamldoc.Shorten(word), count, times, near)
		} else {
			d.Bad(n, "%s: there is no unit %q: write second, minute, hour, day or week, or several, as in 5/15m", key,
				yamldoc.Shorten(word))
		}
		return 0
	case times == "":
		return unit
	}
	k, err := strconv.ParseInt(times, 10, 64)
	switch longest := 366 * day; {
	case err != nil || k > int64(longest/unit):
		d.Bad(n, "%s: %s is longer than 366 days, the longest that can be counted", key, yamldoc.Shorten(s))
	case k == 0:
		d.Bad(n, "%s: per no time at all: write %s/%s", key, count, word)
	default:
		return time.Duration(k) * unit
	}
	return 0
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
