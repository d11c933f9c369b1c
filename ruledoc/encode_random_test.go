package ruledoc

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// generator generates random rules.
type generator struct{ *rand.Rand }

func pick[T any](w generator, list ...T) T { return list[w.IntN(len(list))] }

// ambiguousTexts are texts that an unquoted YAML scalar may not represent.
var ambiguousTexts = []string{
	"true", "No", "off", "null", "~", "1", "1.5", "1e3", "0x1f", "0o17", "1_000", ".inf", "-.Inf", ".NaN", "2026-01-02",
	"2026-01-02T03:04:05Z", "1:30", "10/minute", "1m30s", "10.0.0.0/8", "::1", "a: b", "a:", ": a", "a #b", "#a", "- a", "-",
	"? a", "*a", "&a", "!a", "|", ">-", "%a", "@a", "`a`", "{a}", "[a]", "a, b", "a]", "}", `"a"`, "'a'", "it's", `"it's"`,
	`a\b`, `"\`, " a", "a ", "  ", "\t", "a\tb", "\n", "a\nb", "a\nb\n", "a\n\n", "\na", " a\nb", "a \nb", "a\n b\n\nc",
	"a\n#b: c", "\r", "a\r\nb", "\x00", "\x1b[0m", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "é", "日本", "😀",
	"\U000e0001", "---", "...", "--- a", "<<", "=", "a  b", "\u200b", "ｔ", "<a&b>", "a ? b", "x && y", "${HOME}",
}

func (w generator) text() string {
	if w.IntN(3) == 0 {
		return pick(w, ambiguousTexts...) + pick(w, ambiguousTexts...)
	}
	return pick(w, ambiguousTexts...)
}

func (w generator) maybe() bool { return w.IntN(3) == 0 }

func (w generator) limit(algorithms ...headgate.Algorithm) headgate.Limit {
	l := headgate.Limit{Count: 1 + w.Int64N(100), Algorithm: pick(w, algorithms...)}
	switch {
	case l.Algorithm == headgate.FixedWindow && w.maybe():
		l.Calendar = pick(w, headgate.Minute, headgate.Hour, headgate.Day, headgate.Week, headgate.Month)
		l.TimeZone = pick(w, nil, time.UTC, zone("Europe/Berlin"), zone("Etc/GMT+5"))
		if l.Calendar >= headgate.Week {
			l.AnchorDay = w.IntN(8)
		}
		return l
	case l.Algorithm == headgate.Concurrency:
		l.Window = pick(w, defaultLease, time.Second, time.Minute, time.Hour, 1500*time.Millisecond)
		return l
	case l.Algorithm == headgate.FixedWindow || l.Algorithm == headgate.SlidingWindow:
		l.Align = pick(w, headgate.FromFirst, headgate.OnClock, headgate.OnClockSpread)
	case l.Algorithm == headgate.TokenBucket && w.maybe():
		l.Burst = pick(w, l.Count, 1+w.Int64N(100))
	}
	unit := pick(w, time.Millisecond, time.Second, time.Minute, time.Hour, day, 7*day)
	l.Window = unit * time.Duration(pick(w, 1, 1, 7, 15, 30, 52))
	return l
}

var allAlgorithms = []headgate.Algorithm{
	headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	headgate.Concurrency,
}

func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return z
}

// plan returns a plan with random limits for some of the names of another plan.
func (w generator) plan(of headgate.Plan, algorithms []headgate.Algorithm) headgate.Plan {
	p := headgate.Plan{Limits: map[string]headgate.Limit{}}
	if of.Limit != (headgate.Limit{}) {
		p.Limit = w.limit(algorithms...)
	}
	for _, name := range slices.Sorted(maps.Keys(of.Limits)) {
		if p.Limit == (headgate.Limit{}) || w.maybe() {
			p.Limits[name] = w.limit(algorithms...)
		}
	}
	return p
}

func (w generator) rule(id string) headgate.Rule {
	r := headgate.Rule{
		ID: id, Match: w.match(), By: pick(w, headgate.Global, []string{"ip"}, []string{"user", "header.x-é"}),
		OnMissing: headgate.OnMissing(w.IntN(3)), Mode: headgate.Mode(w.IntN(3)),
		OnStoreFailure: headgate.OnStoreFailure(w.IntN(3)), Regions: pick(w, headgate.EachRegion, headgate.SharedRegions),
		Priority: max(w.IntN(9)-5, 0), Strict: w.maybe(), Critical: w.maybe(), Expose: headgate.Expose(w.IntN(3)), Meter: w.maybe(),
	}
	if w.maybe() {
		r.Description = w.text()
		r.Labels = map[string]string{w.text(): w.text(), "a": "", w.text(): "b"}
	}
	if w.maybe() {
		r.When, _ = compileCondition(pick(w,
			`user == "a" && region != "é: #"`, "user == 'a' ||\n  tier == \"b\"\n", `size(user) > 1 ? true : false`))
	}
	algorithms := pick(w, allAlgorithms, []headgate.Algorithm{headgate.FixedWindow}, []headgate.Algorithm{headgate.TokenBucket})
	own := headgate.Plan{Limits: map[string]headgate.Limit{"a": {}, "b": {}}}
	if w.maybe() {
		own.Limits = nil
	}
	if own.Limits == nil || w.maybe() {
		own.Limit = headgate.PerSecond(1)
	}
	own = w.plan(own, algorithms)
	r.Limit, r.Limits = own.Limit, own.Limits
	if w.maybe() {
		r.Tiers = map[string]headgate.Plan{w.text(): w.plan(own, algorithms), "free": w.plan(own, algorithms)}
	}
	switch w.IntN(6) {
	case 0:
		r.Candidate = w.plan(own, algorithms)
	case 1:
		r.MaxCallerLimit = headgate.Per(1+w.Int64N(9), time.Minute)
	case 2:
		r.Overdraw = true
	case 3:
		r.MaxDelay = time.Duration(w.Int64N(int64(time.Hour)))
	case 4:
		r.Cost = pick(w, headgate.Cost{Default: 1}, headgate.Cost{From: "header.x", Min: 2, Max: 3},
			headgate.Cost{From: "claim.Ü", Default: 1})
	case 5:
		r.EnforcePercent = 1 + w.IntN(100)
	}
	return r
}

func (w generator) match() headgate.Match {
	m := headgate.Match{Attributes: map[string]headgate.Pattern{}}
	switch w.IntN(3) {
	case 0:
		m.Path, m.Method, m.Host = "/a/{id}/*", "GET", "*.example.com"
	case 1:
		m.Attributes["path"], m.Attributes["method"] = headgate.OneOf("/a b/é"), headgate.NoneOf("POST")
		m.Attributes["host"] = headgate.OneOf("a.example", "b.example")
		m.IgnoreCase = w.maybe()
	}
	for _, name := range []string{"user", "header.x-app", "claim.A: b", "cookie.é, x", "tenant"} {
		switch w.IntN(8) {
		case 0:
			m.Attributes[name] = headgate.OneOf(w.text())
		case 1:
			m.Attributes[name] = headgate.Pattern{
				Values: []string{w.text(), w.text()}, Not: []string{w.text()}, Presence: headgate.Present,
			}
		case 2:
			m.Attributes[name] = headgate.HasPrefix(w.text())
		case 3:
			m.Attributes[name] = pick(w, headgate.IsAbsent(), headgate.IsPresent())
		}
	}
	if w.maybe() {
		m.Attributes["ip"] = headgate.InCIDR(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32"))
	}
	return m
}

// exceptions adds random overrides and exemptions of a rule.
func (w generator) exceptions(d *Document, r headgate.Rule) {
	expires := time.Time{}
	if w.maybe() {
		expires = time.Unix(w.Int64N(1e10), w.Int64N(2)*1e6)
	}
	if len(r.By) > 0 && w.maybe() {
		o := headgate.Override{Rule: r.ID, Subject: headgate.Attributes{}, Expires: expires, Reason: w.text()}
		for _, name := range r.By {
			o.Subject[name] = w.text()
		}
		plan := w.plan(headgate.Plan{Limit: r.Limit, Limits: r.Limits}, allAlgorithms)
		o.Limit, o.Limits = plan.Limit, plan.Limits
		if len(o.Limits) == 0 {
			o.Limits = nil
		}
		d.Overrides = append(d.Overrides, o)
	}
	if w.maybe() {
		d.Exemptions = append(d.Exemptions,
			headgate.Exemption{Rule: r.ID, Attribute: "user", Value: w.text(), Expires: expires, Reason: w.text()},
			headgate.Exemption{Attribute: "ip", Value: "2001:db8::/32"})
	}
}
