package rulediff

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// itemsOf returns the items of a document.
func itemsOf(d *ruledoc.Document, now time.Time) []item {
	items := []item{{kind: "mode", name: "of all rules", properties: []property{modeProperty(d.Mode)}}}
	rules := map[string]*item{}
	competing := map[string][]string{} // rules with a priority, by the text of by
	for i := range d.Source {
		if by := byText(d.Source[i].By); d.Source[i].Priority > 0 {
			competing[by] = append(competing[by], competitorText(&d.Source[i]))
		}
	}
	for i := range d.Source {
		r := &d.Source[i]
		counted := r // the rule whose counters it charges
		if found, ok := d.Rules.Rule(r.Counter); ok {
			counted = &found
		}
		it := ruleItem(r, counted, competing[byText(counted.By)])
		if mode := max(d.Mode, r.Mode, counted.Mode); mode != headgate.Enforce {
			it.inactive = "denies no request: mode is " + mode.String()
		}
		items, rules[r.ID] = append(items, it), &it
	}
	for _, o := range d.Overrides {
		it := item{
			kind: "override", name: o.Rule + " for " + wording.Attributes(o.Subject),
			properties: limitProperties("limit", o.Limit, o.Limits),
			inactive:   cmp.Or(expired(o.Expires, now), rules[o.Rule].inactive),
		}
		it.ifAdded = commonEffect(rules[o.Rule], it.properties)
		it.properties = append(it.properties, exceptionProperties(it.ifAdded, o.Expires, o.Reason)...)
		items = append(items, it)
	}
	for _, x := range d.Exemptions {
		items = append(items, item{
			kind:    "exemption",
			name:    wording.Attributes(headgate.Attributes{x.Attribute: x.Value}) + " from " + cmp.Or(x.Rule, "all rules"),
			ifAdded: looser, properties: exceptionProperties(looser, x.Expires, x.Reason), inactive: expired(x.Expires, now),
		})
	}
	return items
}

// ruleItem returns the item of a rule. Counted is the rule whose counters it charges, and competing are the rules with a priority and
// the same by.
func ruleItem(r, counted *headgate.Rule, competing []string) item {
	alone := counted.Priority == 0
	competitors := ""
	if others := missing(competing, []string{competitorText(counted)}); !alone && len(others) > 0 {
		competitors = fmt.Sprintf("; at priority %d it competes with %s", counted.Priority, wording.List(others))
	}
	it := item{kind: "rule", name: r.ID, ifAdded: unlessCompeting(alone, tighter), consequence: strings.TrimPrefix(competitors, "; ")}
	patterns := map[string]headgate.Pattern{}
	maps.Copy(patterns, r.Match.Attributes)
	for name, value := range map[string]string{"path": r.Match.Path, "method": r.Match.Method, "host": r.Match.Host} {
		if value != "" {
			patterns[name] = headgate.OneOf(value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		it.properties = append(it.properties, patternProperty(name, patterns[name], alone, competitors))
	}
	if r.Match.IgnoreCase {
		it.properties = append(it.properties, property{what: "match ignore_case", text: "true", ifAdded: unlessCompeting(alone, tighter), consequence: competitors})
	}
	if r.When.Text != "" {
		it.properties = append(it.properties, property{what: "when", text: r.When.Text, ifAdded: unlessCompeting(alone, looser), consequence: competitors})
	}
	by := property{what: "by", text: byText(r.By), values: r.By, consequence: "all counters reset" + competitors}
	// Which attribute client is, and which attribute is missing, depends on the request.
	if alone && !slices.Contains(r.By, "client") && r.OnMissing == headgate.ShareMissing {
		by.ifMore = looser
	}
	if r.Counter != "" {
		by = property{what: whatCounter, text: r.Counter, consequence: "its requests are charged on the counters of that rule"}
	}
	it.properties = append(append(it.properties, by), limitProperties("limit", r.Limit, r.Limits)...)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		it.properties = append(it.properties, limitProperties("tier "+tier, r.Tiers[tier].Limit, r.Tiers[tier].Limits)...)
	}
	for _, f := range limitProperties("candidate", r.Candidate.Limit, r.Candidate.Limits) {
		it.properties = append(it.properties, property{what: f.what, text: f.text, ifAdded: other, consequence: "denies no request"})
	}
	mode := modeProperty(r.Mode)
	if !alone {
		mode.strictness = 0
	}
	it.properties = append(append(it.properties, mode), settingProperties(r, competitors)...)
	return it
}

func competitorText(r *headgate.Rule) string {
	return fmt.Sprintf("%s at priority %d", r.ID, r.Priority)
}

// unlessCompeting returns e, or other if the rule competes with rules that may then apply instead of it.
func unlessCompeting(alone bool, e effect) effect {
	if alone {
		return e
	}
	return other
}

// setting describes the effect of a key whose value is a word or a number. Keys that are neither here nor in separateKeys are
// compared too: a change of them is neither looser nor tighter.
type setting struct {
	key         string
	unset       string // the default value
	consequence string
	strictness  func(r *headgate.Rule) int64
	text        func(r *headgate.Rule) string // nil: as in the document
}

// settings are in the order in which changes are listed.
var settings = []setting{
	{key: "cost", unset: "1", consequence: "used units stay used", strictness: costStrictness, text: costText},
	{key: whatCosts, unset: "none", consequence: "used units stay used"},
	{key: "enforce_percent", unset: "100", consequence: "shadow mode for the other subjects", strictness: func(r *headgate.Rule) int64 {
		return int64(cmp.Or(r.EnforcePercent, 100))
	}},
	{key: "overdraw", unset: "false", consequence: "whether costs are recorded over the limit"},
	{key: "max_delay", unset: "0s", consequence: "longer delays are denied", strictness: func(r *headgate.Rule) int64 { return math.MaxInt64 - int64(r.MaxDelay) }},
	{key: "max_caller_limit", unset: "none", consequence: "highest limit that callers may set"},
	{key: "priority", unset: "0", consequence: "of rules with the same by, the highest priority applies"},
	{key: "on_missing", unset: "share", consequence: "for requests that lack an attribute of by", strictness: func(r *headgate.Rule) int64 {
		return []int64{headgate.SkipMissing: 1, headgate.ShareMissing: 2, headgate.DenyMissing: 3}[r.OnMissing]
	}},
	{key: "regions", unset: "each", consequence: "if servers of several regions decide; counters continue; used units stay used", strictness: func(r *headgate.Rule) int64 {
		return []int64{headgate.EachRegion: 1, headgate.SharedRegions: 2, headgate.HomeRegion: 2}[r.Regions]
	}},
	{key: "on_store_failure", unset: "local", consequence: "while the store is unavailable", strictness: func(r *headgate.Rule) int64 {
		return []int64{headgate.FailAllow: 1, headgate.FailLocal: 2, headgate.FailDeny: 3}[r.OnStoreFailure]
	}},
	{key: "on_hold_expiry", unset: "release", consequence: "for reservations that are never committed", strictness: func(r *headgate.Rule) int64 {
		return int64(r.OnHoldExpiry)
	}},
	{key: "strict", unset: "false", consequence: "whether only the store decides"},
	{key: "critical", unset: "false", consequence: "whether it is among the last to be decided without an overloaded store"},
	{key: "expose", unset: "auto", consequence: "what headers show to clients"},
	{key: "meter", unset: "false", consequence: "whether daily usage is recorded"},
	{key: "description", consequence: "documentation only"},
	{key: "labels", consequence: "metadata for people and tools only", text: func(r *headgate.Rule) string {
		return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(r.Labels), "map["), "]")
	}},
}

// The what of properties that have rules of their own for a change.
const (
	whatCounter = "counter"
	whatCosts   = "costs"
)

// separateKeys are the keys that ruleItem handles itself.
var separateKeys = []string{"id", "match", "when", whatCounter, "by", "limit", "limits", "algorithm", "tiers", "candidate", "mode"}

// settingProperties returns the properties of a rule's settings.
func settingProperties(r *headgate.Rule, competitors string) []property {
	keys := maps.Collect(ruledoc.Settings(*r, separateKeys...))
	properties := make([]property, 0, len(settings)+len(keys))
	for _, m := range settings {
		f := property{what: m.key, text: m.unset, consequence: m.consequence}
		if text, ok := keys[m.key]; ok && m.text == nil {
			f.text = text
		} else if ok {
			f.text = m.text(r)
		}
		if m.strictness != nil {
			f.strictness = m.strictness(r)
		}
		switch m.key {
		case "priority":
			f.consequence += competitors
		case whatCosts:
			f.costs, f.otherCost = r.Costs, max(r.Cost.Default, 1)
		}
		f.isDefault = f.text == m.unset
		properties = append(properties, f)
		delete(keys, m.key)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		properties = append(properties, property{what: key, text: keys[key], ifAdded: other})
	}
	return properties
}

func costStrictness(r *headgate.Rule) int64 {
	if r.Cost.From != "" || r.Cost.Max > 0 {
		return 0
	}
	return max(r.Cost.Default, 1)
}

func costText(r *headgate.Rule) string {
	c, isDefault := r.Cost, strconv.FormatInt(max(r.Cost.Default, 1), 10)
	if c.From == "" && c.Max == 0 {
		return isDefault
	}
	return fmt.Sprintf("%s, %d to %d, else %s", cmp.Or(c.From, "the caller's"), max(c.Min, 1), cmp.Or(c.Max, headgate.MaxCost), isDefault)
}

func modeProperty(m headgate.Mode) property {
	return property{
		what: "mode", text: m.String(), isDefault: m == headgate.Enforce, strictness: int64(headgate.Off-m) + 1,
		consequence: []string{"denies; used units stay used", "denies no request; counts", "denies no request; counts nothing"}[m],
	}
}

// limitProperties returns the properties of limits, by name. The limits of a tier replace those of the rule.
func limitProperties(what string, limit headgate.Limit, named map[string]headgate.Limit) []property {
	all := map[string]headgate.Limit{}
	maps.Copy(all, named)
	if limit != (headgate.Limit{}) {
		all[""] = limit
	}
	var properties []property
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		f := property{what: strings.TrimSpace(what + " " + name), text: l.String(), ifAdded: tighter, limit: &l}
		if what != "limit" {
			f.replaces = strings.TrimSpace("limit " + name)
		}
		properties = append(properties, f)
	}
	return properties
}

// commonEffect returns the common effect of limits that replace those of a rule. It is other if they have none, or if the
// rule has tiers: then it depends on the subject's tier.
func commonEffect(rule *item, limits []property) effect {
	var common effect
	for _, f := range limits {
		own := rule.property(f.what)
		if own == nil || slices.ContainsFunc(rule.properties, func(f property) bool { return strings.HasPrefix(f.what, "tier ") }) {
			return other
		}
		e, _ := compareLimits(own.limit, f.limit)
		if common = cmp.Or(common, e); common != e {
			return other
		}
	}
	return common
}

// exceptionProperties returns the properties of an override or exemption: until when it applies, and its reason.
func exceptionProperties(ifAdded effect, expires time.Time, reason string) []property {
	until := property{what: "until", text: "it is removed", strictness: 1}
	if !expires.IsZero() {
		until = property{what: "until", text: expires.UTC().Format(time.RFC3339), strictness: math.MaxInt64 - expires.Unix()}
	}
	if ifAdded != looser {
		until.strictness = 0
	}
	return []property{until, {what: "reason", text: reason, isDefault: reason == "", consequence: "documentation only"}}
}

// expired returns a note if an exception has expired.
func expired(at, now time.Time) string {
	if at.IsZero() || at.After(now) {
		return ""
	}
	return "expired: no effect"
}

// patternProperty returns the property of one attribute in match.
func patternProperty(name string, p headgate.Pattern, alone bool, competitors string) property {
	alternatives := slices.Clone(p.Values)
	if p.Prefix != "" {
		alternatives = append(alternatives, p.Prefix+"…")
	}
	for _, network := range p.CIDR {
		alternatives = append(alternatives, network.String())
	}
	slices.Sort(alternatives)
	var parts []string
	if len(alternatives) > 0 {
		parts = append(parts, strings.Join(alternatives, " or "))
	}
	if len(p.Not) > 0 {
		parts = append(parts, "not "+strings.Join(slices.Sorted(slices.Values(p.Not)), " or "))
	}
	if p.Presence != headgate.AnyPresence {
		parts = append(parts, []string{"", "present", "absent"}[p.Presence])
	}
	f := property{what: "match " + name, text: strings.Join(parts, ", "), ifAdded: unlessCompeting(alone, looser), consequence: competitors}
	if alone && len(p.Values) > 0 && len(p.Not) == 0 {
		f.values, f.ifMore = alternatives, tighter
	}
	return f
}

// byText formats the attributes of by, independent of their order.
func byText(names []string) string {
	if len(names) == 0 {
		return "all requests together"
	}
	return "[" + strings.Join(slices.Sorted(slices.Values(names)), ", ") + "]"
}
