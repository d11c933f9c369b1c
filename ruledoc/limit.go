package ruledoc

import (
	"math"
	"strings"

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
	// burstOf is the limit with whose rate the burst of an override scales; of other limits it is none.
	burstOf headgate.Limit
}

// howOf is how a limit counts that stands in the place of another: as that one does, if it is there and no quota.
func howOf(l headgate.Limit) (like how, ok bool) {
	if l.Count > 0 && l.Calendar == headgate.NoCalendar {
		return how{algorithm: l.Algorithm, align: l.Align}, true
	}
	return how{}, false
}

// howInPlaceOf is how the limit of an override counts that stands in the place of another.
func howInPlaceOf(l headgate.Limit) how {
	like, _ := howOf(l)
	like.burstOf = l
	return like
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
	return scaleBurst(l.Limit, like.burstOf)
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
