package ruledoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// parsedLimit is a limit with the state that only decoding and encoding need.
type parsedLimit struct {
	headgate.Limit
	rate, quota, concurrent bool
	lease                   *time.Duration
	// algorithm and aligned are set if the limit has these keys; otherwise defaults apply.
	algorithm *headgate.Algorithm
	aligned   bool
	defaults  limitDefaults
}

var limitKeys = newObject(
	field[parsedLimit]{
		key: "rate", doc: "count per time window: `10/minute`, `5/15m`, `10_000/h`", unset: "`rate`, `quota` or `concurrent` required",
		schema: `"$ref": "#/$defs/rate"`,
		read: func(d *decoder, n *node, key string, l *parsedLimit) {
			l.rate = true
			l.Count, l.Window = d.rate(n, key)
		},
		write: func(e *encoder, what string, l *parsedLimit) *node {
			if l.quota || l.concurrent {
				return nil
			}
			return e.rate(what, l.Limit)
		},
	},
	intField("burst", "capacity of a `token_bucket`: units that it grants at once", 1,
		fmt.Sprintf("must be 1 to %d; without it, burst is the limit's count", headgate.MaxCost),
		func(l *parsedLimit) *int64 { return &l.Burst }).
		withSchema(countSchema).withDefault("the count of `rate`"),
	field[parsedLimit]{
		key: "algorithm", doc: "algorithm of this limit", unset: "the rule's `algorithm`", schema: `"$ref": "#/$defs/algorithm"`,
		read: func(d *decoder, n *node, key string, l *parsedLimit) { l.algorithm = d.algorithm(n, key) },
		write: func(e *encoder, what string, l *parsedLimit) *node {
			if l.quota || l.concurrent || l.Algorithm == l.defaults.algorithm {
				return nil
			}
			return e.text(what, l.Algorithm.String())
		},
	},
	field[parsedLimit]{
		key: "align", unset: "`first`",
		doc: "start of a `fixed_window` or `sliding_window`: with the `first` request, at multiples of the window on the `clock`, or on the clock with an " +
			"offset per subject (`spread`)",
		schema: fmt.Sprintf(`"enum": %s, "default": %q`, jsonOf(alignNames), alignNames[0]),
		read: func(d *decoder, n *node, key string, l *parsedLimit) {
			l.aligned = true
			if i := d.Enum(n, key, alignNames); i >= 0 {
				l.Align = headgate.Align(i)
			}
		},
		write: func(e *encoder, what string, l *parsedLimit) *node {
			align := headgate.FromFirst
			if l.Algorithm == l.defaults.algorithm {
				align = l.defaults.align
			}
			if l.quota || l.concurrent || l.Align == align {
				return nil
			}
			return e.text(what, alignNames[l.Align])
		},
	},
	field[parsedLimit]{
		key: "quota", doc: "count per calendar period", unset: "none", schema: `"type": "integer", "minimum": 1, ` + countSchema,
		read: func(d *decoder, n *node, key string, l *parsedLimit) {
			l.quota = true
			l.Count = d.Int(n, key, 1, "")
		},
		write: func(_ *encoder, _ string, l *parsedLimit) *node {
			if !l.quota {
				return nil
			}
			return intNode(l.Count)
		},
	},
	field[parsedLimit]{
		key: "calendar", doc: "calendar period of a quota: `minute`, `hour`, `day`, `week`, `month`", unset: "required with `quota`",
		schema: `"enum": ` + jsonOf(calendarNames),
		read: func(d *decoder, n *node, key string, l *parsedLimit) {
			if i := d.Enum(n, key, calendarNames); i >= 0 {
				l.Calendar = headgate.Calendar(i + 1)
			}
		},
		write: func(_ *encoder, _ string, l *parsedLimit) *node { return enumNode(l.Calendar) },
	},
	valueField(field[parsedLimit]{
		key: "timezone", doc: "time zone of the calendar: `Europe/Berlin`", unset: "`UTC`", schema: `"type": "string", "default": "UTC"`,
	}, func(l *parsedLimit) **time.Location { return &l.TimeZone }, (*decoder).zone, (*encoder).zone),
	intField("anchor_day", "day on which a month (in a shorter month: its last day) or a week (1 is Monday) begins", 1, "",
		func(l *parsedLimit) *int { return &l.AnchorDay }).
		withSchema(`"maximum": 31, "default": 1`).withDefault("`1`"),
	field[parsedLimit]{
		key: "concurrent", doc: "requests [in flight](#concurrency-limits) at a time, on all nodes together; `20 concurrent` is short for `{concurrent: 20}`",
		unset: "none", schema: `"type": "integer", "minimum": 1, ` + countSchema,
		read: func(d *decoder, n *node, key string, l *parsedLimit) {
			l.concurrent = true
			l.Count = d.Int(n, key, 1, "")
		},
		write: func(_ *encoder, _ string, l *parsedLimit) *node {
			if !l.concurrent {
				return nil
			}
			return intNode(l.Count)
		},
	},
	field[parsedLimit]{
		key: "lease", unset: "`" + leaseText(defaultLease) + "`, or the lease of the limit that a tier, a candidate or an override replaces",
		doc:    "how long the requests of a node that was killed keep counting as in flight: `1s` to `1h`",
		schema: `"type": "string", ` + durationSchema,
		read:   func(d *decoder, n *node, key string, l *parsedLimit) { l.lease = new(d.Duration(n, key)) },
		write: func(e *encoder, what string, l *parsedLimit) *node {
			if !l.concurrent || l.Window == l.defaults.leaseOrDefault() {
				return nil
			}
			return e.text(what, leaseText(l.Window))
		},
	},
)

// defaultLease is the lease of concurrency limits without the key lease.
var defaultLease = headgate.Concurrent(1).Window

var (
	calendarNames  = namesOf(headgate.Minute, headgate.Hour, headgate.Day, headgate.Week, headgate.Month)
	alignNames     = []string{"first", "clock", "spread"}
	algorithmNames = namesOf(headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow,
		headgate.SlidingLog)
	// algorithmAliases are the names that other rate limiters use.
	algorithmAliases = map[string]headgate.Algorithm{
		"sliding_window_counter": headgate.SlidingWindow,
		"sliding_window_log":     headgate.SlidingLog,
	}
)

func (d *decoder) algorithm(n *node, key string) *headgate.Algorithm {
	if a, ok := algorithmAliases[n.Text]; ok && n.Kind == yamldoc.Text {
		return &a
	}
	if n.Kind == yamldoc.Text && n.Text == "concurrency" {
		d.Bad(n, "%s: concurrency is not an algorithm of rates: write limit: {concurrent: 20}, without algorithm", key)
		return nil
	}
	i := d.Enum(n, key, algorithmNames)
	if i < 0 {
		return nil
	}
	return new(headgate.Algorithm(i))
}

// limitDefaults is the values of keys that a limit does not set.
type limitDefaults struct {
	algorithm headgate.Algorithm
	align     headgate.Align
	lease     time.Duration // of a concurrency limit; 0 means defaultLease
	// replaced is the limit that an override replaces; its burst is scaled with the override's rate. It is zero for other
	// limits.
	replaced headgate.Limit
}

func (d limitDefaults) leaseOrDefault() time.Duration { return cmp.Or(d.lease, defaultLease) }

// defaultsFrom returns the defaults of a limit that replaces l. It returns false if l is not a rate, so that it has no algorithm for one.
func defaultsFrom(l headgate.Limit) (defaults limitDefaults, isRate bool) {
	switch {
	case l.Count == 0 || l.Calendar != headgate.NoCalendar:
		return limitDefaults{}, false
	case l.Algorithm == headgate.Concurrency:
		return limitDefaults{lease: l.Window}, false
	}
	return limitDefaults{algorithm: l.Algorithm, align: l.Align}, true
}

// overrideDefaultsFrom returns the defaults of an override's limit that replaces l.
func overrideDefaultsFrom(l headgate.Limit) limitDefaults {
	defaults, _ := defaultsFrom(l)
	defaults.replaced = l
	return defaults
}

// limit decodes 10/minute, 20 concurrent, {rate: …}, {quota: …} or {concurrent: …}.
func (d *decoder) limit(n *node, key string, defaults limitDefaults) headgate.Limit {
	var l parsedLimit
	before := d.Report.Count()
	switch n.Kind {
	case yamldoc.Text, yamldoc.Number:
		if l.concurrent = isConcurrent(n.Text); l.concurrent {
			l.Limit = d.concurrent(n, key, defaults)
		} else {
			l.rate = true
			l.Count, l.Window = d.rate(n, key)
		}
	case yamldoc.Mapping:
		limitKeys.read(d, n, key, &l)
		d.checkKind(n, key, &l)
		if l.concurrent {
			l.setLease(defaults)
		}
	default:
		d.Bad(n, "%s: must be 10/minute or {rate: 10/minute, burst: 20}, not %s", key, n.Describe())
	}
	if d.Report.Count() > before {
		return headgate.Limit{} // already reported; package headgate must not report it again
	}
	switch {
	case l.concurrent:
	case l.algorithm != nil:
		l.Algorithm = *l.algorithm
	case l.quota:
		l.Algorithm = headgate.FixedWindow
	default:
		l.Algorithm = defaults.algorithm
	}
	if l.Algorithm == defaults.algorithm && !l.aligned && !l.quota && !l.concurrent {
		l.Align = defaults.align
	}
	return scaleBurst(l.Limit, defaults.replaced)
}

// setLease makes the limit a concurrency limit with its own or the default lease.
func (l *parsedLimit) setLease(defaults limitDefaults) {
	l.Algorithm, l.Window = headgate.Concurrency, defaults.leaseOrDefault()
	if l.lease != nil {
		l.Window = *l.lease
	}
}

// concurrentKeys are the keys of a concurrency limit.
var concurrentKeys = []string{"concurrent", "lease"}

// checkKind checks that a limit is either a rate, a quota or a concurrency limit.
func (d *decoder) checkKind(n *node, key string, l *parsedLimit) {
	if l.concurrent {
		for _, e := range n.Entries {
			switch name := e.Key.Text; {
			case limitKeys.field(name) == nil || slices.Contains(concurrentKeys, name):
			case name == "rate" || name == "quota":
				d.Bad(e.Key, "%s: concurrent and %s cannot be combined: remove one, or define two limits", key, name)
			default:
				d.Bad(e.Key, "%s: a concurrency limit has no %s: remove it", key, name)
			}
		}
		return
	}
	switch {
	case l.lease != nil:
		d.Bad(n.Find([]string{"lease"}), "%s: lease requires concurrent: write {concurrent: 20, lease: %s}", key, leaseText(*l.lease))
	case l.rate && l.quota:
		d.Bad(n, "%s: rate and quota cannot be combined: remove one, or define two limits", key)
	case l.quota && l.Calendar == headgate.NoCalendar:
		if _, written := n.Get("calendar"); !written {
			d.Bad(n, "%s: quota requires calendar: add calendar: month (or %s)", key,
				strings.Join(calendarNames[:4], ", "))
		}
	case l.rate && l.Calendar != headgate.NoCalendar:
		d.Bad(n, "%s: calendar requires quota: write {quota: %d, calendar: %s}", key, l.Count, l.Calendar)
	case !l.rate && !l.quota:
		if _, written := n.Get("rate"); !written {
			d.Bad(n, "%s: rate, quota or concurrent required: write {rate: 10/minute}, {quota: 1000, calendar: day} or {concurrent: 20}", key)
		}
	}
}

// limit encodes the keys of a limit that differ from the defaults.
func (e *encoder) limit(where string, l headgate.Limit, defaults limitDefaults) *node {
	if err := l.Validate(); err != nil {
		e.bad(where, "%w", err)
		return mappingNode()
	}
	encoded := parsedLimit{
		Limit: l, quota: l.Calendar != headgate.NoCalendar, concurrent: l.Algorithm == headgate.Concurrency, defaults: defaults,
	}
	encoded.Burst = explicitBurst(l, defaults)
	if encoded.AnchorDay == 1 {
		encoded.AnchorDay = 0
	}
	n := limitKeys.write(e, where, &encoded)
	switch {
	case len(n.Entries) > 1:
	case encoded.concurrent:
		return e.text(where, headgate.Concurrent(l.Count).String())
	case !encoded.quota:
		return n.Entries[0].Value
	}
	return n
}

// explicitBurst returns the burst, or 0 if the limit has the same burst by default.
func explicitBurst(l headgate.Limit, defaults limitDefaults) int64 {
	implicit := l
	implicit.Burst = 0
	switch implicit = scaleBurst(implicit, defaults.replaced); {
	case implicit.Burst > 0 && implicit.Burst != l.Capacity():
		return l.Capacity()
	case implicit.Burst == 0 && l.Burst != l.Count:
		return l.Burst
	}
	return 0
}
