package ruledoc

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// readLimit is a limit with what only matters while it is read or written.
type readLimit struct {
	headgate.Limit
	rate, quota bool
	// Whether these are written, or are to come from the rule.
	algorithm *headgate.Algorithm
	aligned   bool
	// like is how a limit counts that does not say it itself.
	like how
}

var limitKeys = objectOf(
	field[readLimit]{
		key: "rate", doc: "how many per how long: `10/minute`, `5/15m`, `10_000/h`", unset: "this or `quota` must be given",
		schema: `"$ref": "#/$defs/rate"`,
		read: func(d *decoder, n *node, key string, l *readLimit) {
			l.rate = true
			l.Count, l.Window = d.rate(n, key)
		},
		write: func(e *encoder, what string, l *readLimit) *node {
			if l.quota {
				return nil
			}
			return e.rate(what, l.Limit)
		},
	},
	wholeField("burst", "how many a `token_bucket` lets pass at once", 1, "write 1 or more; without it the burst is the limit's number",
		func(l *readLimit) *int64 { return &l.Burst }).
		with(countSchema).or("the limit's number"),
	field[readLimit]{
		key: "algorithm", doc: "how to count", unset: "the rule's", schema: `"$ref": "#/$defs/algorithm"`,
		read: func(d *decoder, n *node, key string, l *readLimit) { l.algorithm = d.algorithm(n, key) },
		write: func(e *encoder, what string, l *readLimit) *node {
			if l.quota || l.Algorithm == l.like.algorithm {
				return nil
			}
			return e.text(what, l.Algorithm.String())
		},
	},
	field[readLimit]{
		key: "align", unset: "`first`",
		doc: "when a `fixed_window` begins: with the `first` request, on the `clock`, or on the clock with an offset for each subject " +
			"(`spread`)",
		schema: fmt.Sprintf(`"enum": %s, "default": %q`, jsonOf(alignWords), alignWords[0]),
		read: func(d *decoder, n *node, key string, l *readLimit) {
			l.aligned = true
			if i := d.Enum(n, key, alignWords); i >= 0 {
				l.Align = headgate.Align(i)
			}
		},
		write: func(e *encoder, what string, l *readLimit) *node {
			align := headgate.FromFirst
			if l.Algorithm == l.like.algorithm {
				align = l.like.align
			}
			if l.quota || l.Align == align {
				return nil
			}
			return e.text(what, alignWords[l.Align])
		},
	},
	field[readLimit]{
		key: "quota", doc: "how many per unit of the calendar", unset: "none", schema: `"type": "integer", "minimum": 1, ` + countSchema,
		read: func(d *decoder, n *node, key string, l *readLimit) {
			l.quota = true
			l.Count = d.Int(n, key, 1, "")
		},
		write: func(_ *encoder, _ string, l *readLimit) *node {
			if !l.quota {
				return nil
			}
			return number(l.Count)
		},
	},
	field[readLimit]{
		key: "calendar", doc: "the unit of the calendar that a quota is for: `minute`, `hour`, `day`, `week`, `month`", unset: "of a quota it must be given",
		schema: `"enum": ` + jsonOf(calendarWords),
		read: func(d *decoder, n *node, key string, l *readLimit) {
			if i := d.Enum(n, key, calendarWords); i >= 0 {
				l.Calendar = headgate.Calendar(i + 1)
			}
		},
		write: func(_ *encoder, _ string, l *readLimit) *node { return wordNode(l.Calendar) },
	},
	valueField(field[readLimit]{
		key: "timezone", doc: "where the calendar is read: `Europe/Berlin`", unset: "`UTC`", schema: `"type": "string", "default": "UTC"`,
	}, func(l *readLimit) **time.Location { return &l.TimeZone }, (*decoder).zone, (*encoder).zone),
	wholeField("anchor_day", "the day on which a month (in a shorter one its last day) or a week (1 is Monday) begins", 1, "",
		func(l *readLimit) *int { return &l.AnchorDay }).
		with(`"maximum": 31, "default": 1`).or("`1`"),
)

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
	i := d.Enum(n, key, algorithmWords)
	if i < 0 {
		return nil
	}
	return new(headgate.Algorithm(i))
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
		limitKeys.read(d, n, key, &l)
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

// limit writes of a limit what does not go without saying where others count like this.
func (e *encoder) limit(where string, l headgate.Limit, like how) *node {
	if err := l.Validate(); err != nil {
		e.bad(where, "%w", err)
		return mapping()
	}
	said := readLimit{Limit: l, quota: l.Calendar != headgate.NoCalendar, like: like}
	said.Burst = burstToSay(l, like)
	if said.AnchorDay == 1 {
		said.AnchorDay = 0
	}
	n := limitKeys.write(e, where, &said)
	if len(n.Entries) == 1 && n.Entries[0].Key.Text == "rate" {
		return n.Entries[0].Value
	}
	return n
}

// burstToSay returns the burst, or 0 if it is the one that the limit would have without a word.
func burstToSay(l headgate.Limit, like how) int64 {
	unsaid := l
	unsaid.Burst = 0
	switch unsaid = scaleBurst(unsaid, like.burstOf); {
	case unsaid.Burst > 0 && unsaid.Burst != l.Capacity():
		return l.Capacity()
	case unsaid.Burst == 0 && l.Burst != l.Count:
		return l.Burst
	}
	return 0
}
