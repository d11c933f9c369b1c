package ruledoc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// EncodeRule writes a rule as the JSON document that ParseRule reads. The same rule is always the same bytes: keys are in
// the order of the documentation, those that would say nothing are left out, and limits are in their shortest form. It
// fails for what no document can say: a rule that does not compile, a condition made in Go, a window finer than a
// millisecond.
func EncodeRule(r headgate.Rule) ([]byte, error) {
	n, _, err := encodeRule(r)
	if err != nil {
		return nil, err
	}
	return encodeJSON(n), nil
}

// encodeRule makes the tree of a rule, and says how the limits of its overrides count when they are read.
func encodeRule(r headgate.Rule) (n *node, like func(limit string) how, err error) {
	if _, err := headgate.Compile(r); err != nil {
		return nil, nil, err
	}
	var e encoder
	n, like = e.rule(r)
	if e.problem != nil {
		return nil, nil, fmt.Errorf("rule %q: %w", r.ID, e.problem)
	}
	return n, like, nil
}

func (e *encoder) rule(r headgate.Rule) (n *node, like func(limit string) how) {
	if r.When.Holds != nil && r.When.Text == "" {
		e.bad("when", "a condition without its text cannot be written")
	}
	algorithm := commonAlgorithm(r)
	read := readRule{Rule: r, algorithm: &algorithm}
	own := func(string) how { return how{algorithm: algorithm} }
	n = mapping()
	put(n, "id", e.text("id", r.ID))
	put(n, "description", e.text("description", r.Description))
	put(n, "labels", e.texts("labels", r.Labels))
	put(n, "match", e.match(r.Match))
	put(n, "when", e.text("when", r.When.Text))
	put(n, "by", e.list("by", r.By))
	put(n, "on_missing", word(r.OnMissing))
	e.limits(n, "", headgate.Plan{Limit: r.Limit, Limits: r.Limits}, own)
	put(n, "algorithm", word(algorithm))
	put(n, "tiers", e.tiers(r.Tiers, read.like))
	put(n, "max_caller_limit", e.rate("max_caller_limit", r.MaxCallerLimit))
	put(n, "candidate", e.plan("candidate", r.Candidate, read.like))
	put(n, "cost", e.cost(r.Cost))
	put(n, "overdraw", yes(r.Overdraw))
	if r.MaxDelay != 0 {
		put(n, "max_delay", e.text("max_delay", r.MaxDelay.String()))
	}
	put(n, "priority", number(int64(r.Priority)))
	put(n, "mode", word(r.Mode))
	put(n, "enforce_percent", number(int64(r.EnforcePercent)))
	put(n, "on_store_failure", word(r.OnStoreFailure))
	put(n, "strict", yes(r.Strict))
	put(n, "critical", yes(r.Critical))
	if r.Expose != headgate.ExposeAuto {
		put(n, "expose", &node{Kind: yamldoc.Boolean, Text: r.Expose.String()})
	}
	put(n, "meter", yes(r.Meter))
	return n, read.likeOverride
}

// commonAlgorithm is how the first of a rule's limits counts that can count in several ways; the others say it where they
// differ.
func commonAlgorithm(r headgate.Rule) headgate.Algorithm {
	limits := []headgate.Limit{r.Limit}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limits = append(limits, r.Limits[name])
	}
	for _, l := range limits {
		if like, ok := howOf(l); ok {
			return like.algorithm
		}
	}
	return headgate.TokenBucket
}

// encoder makes the trees of values, and keeps the first thing that cannot be written.
type encoder struct{ problem error }

func (e *encoder) bad(what, format string, args ...any) {
	e.problem = cmp.Or(e.problem, fmt.Errorf("%s: "+format, append([]any{what}, args...)...))
}

func mapping() *node { return &node{Kind: yamldoc.Mapping} }

// put adds an entry, unless there is no value.
func put(n *node, key string, value *node) {
	if value != nil {
		n.Entries = append(n.Entries, entry{Key: &node{Kind: yamldoc.Text, Text: key}, Value: value})
	}
}

// number, yes and word are nil for what is the default.
func number(v int64) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Number, Text: strconv.FormatInt(v, 10)}
}

func yes(v bool) *node {
	if !v {
		return nil
	}
	return &node{Kind: yamldoc.Boolean, Text: "true"}
}

func word[T interface {
	~uint8
	String() string
}](v T) *node {
	if v == 0 {
		return nil
	}
	return &node{Kind: yamldoc.Text, Text: v.String()}
}

// text is nil for an empty one.
func (e *encoder) text(what, s string) *node {
	if s == "" {
		return nil
	}
	return e.anyText(what, s)
}

func (e *encoder) anyText(what, s string) *node {
	if !utf8.ValidString(s) {
		e.bad(what, "%q is not UTF-8", s)
	}
	return &node{Kind: yamldoc.Text, Text: s}
}

func (e *encoder) list(what string, texts []string) *node {
	n := &node{Kind: yamldoc.List}
	for _, s := range texts {
		n.Items = append(n.Items, e.anyText(what, s))
	}
	return n
}

// texts is a mapping of texts, which may be empty, or nil for none.
func (e *encoder) texts(what string, texts map[string]string) *node {
	if len(texts) == 0 {
		return nil
	}
	n := mapping()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		e.text(what, name)
		put(n, name, e.anyText(what, texts[name]))
	}
	return n
}

func (e *encoder) match(m headgate.Match) *node {
	n := mapping()
	short := []struct{ name, value string }{{"path", m.Path}, {"method", m.Method}, {"host", m.Host}}
	for _, s := range short {
		put(n, s.name, e.text("match", s.value))
		if p, ok := m.Attributes[s.name]; ok {
			put(n, s.name, e.pattern(p, true))
		}
	}
	put(n, ignoreCase, yes(m.IgnoreCase))
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if _, given := n.Get(name); !given {
			e.text("match", name)
			put(n, name, e.pattern(m.Attributes[name], false))
		}
	}
	if len(n.Entries) == 0 {
		return nil
	}
	return n
}

// pattern writes a value alone, or a list of values, if that is all. Of path, method and host a value alone is read into
// another field of Match than a list.
func (e *encoder) pattern(p headgate.Pattern, asList bool) *node {
	if p.Prefix == "" && len(p.CIDR) == 0 && len(p.Not) == 0 && p.Presence == headgate.AnyPresence {
		if values := e.list("match", p.Values); asList || len(values.Items) != 1 {
			return values
		}
		return e.text("match", p.Values[0])
	}
	n := mapping()
	putList := func(key string, texts []string) {
		if len(texts) > 0 {
			put(n, key, e.list("match", texts))
		}
	}
	putList("in", p.Values)
	putList("not", p.Not)
	put(n, "prefix", e.text("match", p.Prefix))
	putList("cidr", wordsOf(p.CIDR...))
	if p.Presence != headgate.AnyPresence {
		put(n, "absent", &node{Kind: yamldoc.Boolean, Text: strconv.FormatBool(p.Presence == headgate.Absent)})
	}
	return n
}

// limits adds the keys limit and limits.
func (e *encoder) limits(n *node, where string, p headgate.Plan, like func(name string) how) {
	if p.Limit != (headgate.Limit{}) {
		put(n, "limit", e.limit(where+"limit", p.Limit, like("")))
	}
	if len(p.Limits) == 0 {
		return
	}
	named := mapping()
	for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
		put(named, name, e.limit(where+"limits."+name, p.Limits[name], like(name)))
	}
	put(n, "limits", named)
}

func (e *encoder) plan(where string, p headgate.Plan, like func(name string) how) *node {
	n := mapping()
	e.limits(n, where+".", p, like)
	switch {
	case len(n.Entries) == 0:
		return nil
	case len(n.Entries) == 1 && n.Entries[0].Value.Kind == yamldoc.Text:
		return n.Entries[0].Value
	}
	return n
}

func (e *encoder) tiers(tiers map[string]headgate.Plan, like func(name string) how) *node {
	if len(tiers) == 0 {
		return nil
	}
	n := mapping()
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		e.text("tiers", tier)
		put(n, tier, e.plan("tiers."+tier, tiers[tier], like))
	}
	return n
}

// limit writes of a limit what does not go without saying where others count like this.
func (e *encoder) limit(where string, l headgate.Limit, like how) *node {
	n := mapping()
	if err := l.Validate(); err != nil {
		e.bad(where, "%w", err)
		return n
	}
	if l.Calendar != headgate.NoCalendar {
		put(n, "quota", number(l.Count))
		put(n, "calendar", e.text(where, l.Calendar.String()))
		put(n, "timezone", e.zone(where, l.TimeZone))
		if l.AnchorDay > 1 {
			put(n, "anchor_day", number(int64(l.AnchorDay)))
		}
		return n
	}
	rate := e.rate(where, l)
	put(n, "rate", rate)
	unsaid := l
	unsaid.Burst = 0
	switch unsaid = scaleBurst(unsaid, like.burstOf); {
	case unsaid.Burst > 0 && unsaid.Burst != l.Capacity():
		put(n, "burst", number(l.Capacity()))
	case unsaid.Burst == 0 && l.Burst != l.Count:
		put(n, "burst", number(l.Burst))
	}
	align := headgate.FromFirst
	if l.Algorithm == like.algorithm {
		align = like.align
	} else {
		put(n, "algorithm", e.text(where, l.Algorithm.String()))
	}
	if l.Align != align {
		put(n, "align", e.text(where, alignWords[l.Align]))
	}
	if len(n.Entries) == 1 {
		return rate
	}
	return n
}

func (e *encoder) zone(where string, zone *time.Location) *node {
	if zone == nil || zone.String() == time.UTC.String() {
		return nil
	}
	if _, err := time.LoadLocation(zone.String()); err != nil || zone == time.Local {
		e.bad(where, "the time zone %q cannot be written: use one with a name like Europe/Berlin", zone)
	}
	return e.text(where, zone.String())
}

func (e *encoder) rate(where string, l headgate.Limit) *node {
	if l == (headgate.Limit{}) {
		return nil
	}
	window := windowText(l.Window)
	if window == "" {
		e.bad(where, "a window of %s cannot be written: make it whole milliseconds", l.Window)
	}
	return e.text(where, strconv.FormatInt(l.Count, 10)+"/"+window)
}

func (e *encoder) cost(c headgate.Cost) *node {
	if c.From == "" {
		return number(c.Default)
	}
	n := mapping()
	put(n, "from", e.text("cost", c.From))
	put(n, "default", number(c.Default))
	put(n, "min", number(c.Min))
	put(n, "max", number(c.Max))
	return n
}
