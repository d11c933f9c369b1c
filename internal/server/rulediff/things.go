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

// thingsOf takes a document apart.
func thingsOf(d *ruledoc.Document, now time.Time) []thing {
	things := []thing{{kind: "mode", name: "of all rules", facts: []fact{modeFact(d.Mode)}}}
	rules := map[string]*thing{}
	competing := map[string][]string{} // rules with a priority, by what they count by
	for i := range d.Source {
		if by := byText(d.Source[i].By); d.Source[i].Priority > 0 {
			competing[by] = append(competing[by], rivalText(&d.Source[i]))
		}
	}
	for i := range d.Source {
		r := &d.Source[i]
		t := ruleThing(r, competing[byText(r.By)])
		if mode := max(d.Mode, r.Mode); mode != headgate.Enforce {
			t.idle = "refuses nobody: mode is " + mode.String()
		}
		things, rules[r.ID] = append(things, t), &t
	}
	for _, o := range d.Overrides {
		t := thing{
			kind: "override", name: o.Rule + " for " + wording.Attributes(o.Subject),
			facts: limitFacts("limit", o.Limit, o.Limits),
			idle:  cmp.Or(expired(o.Expires, now), rules[o.Rule].idle),
		}
		t.adds = commonEffect(rules[o.Rule], t.facts)
		t.facts = append(t.facts, lastingFacts(t.adds, o.Expires, o.Reason)...)
		things = append(things, t)
	}
	for _, x := range d.Exemptions {
		things = append(things, thing{
			kind: "exemption",
			name: wording.Attributes(headgate.Attributes{x.Attribute: x.Value}) + " from " + cmp.Or(x.Rule, "all rules"),
			adds: looser, facts: lastingFacts(looser, x.Expires, x.Reason), idle: expired(x.Expires, now),
		})
	}
	return things
}

func ruleThing(r *headgate.Rule, competing []string) thing {
	alone := r.Priority == 0
	rivals := ""
	if others := missing(competing, []string{rivalText(r)}); !alone && len(others) > 0 {
		rivals = fmt.Sprintf("; at priority %d it competes with %s", r.Priority, wording.List(others))
	}
	t := thing{kind: "rule", name: r.ID, adds: ifAlone(alone, tighter), then: strings.TrimPrefix(rivals, "; ")}
	patterns := maps.Clone(r.Match.Attributes)
	if patterns == nil {
		patterns = map[string]headgate.Pattern{}
	}
	for name, value := range map[string]string{"path": r.Match.Path, "method": r.Match.Method, "host": r.Match.Host} {
		if value != "" {
			patterns[name] = headgate.OneOf(value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(patterns)) {
		t.facts = append(t.facts, patternFact(name, patterns[name], alone, rivals))
	}
	if r.Match.IgnoreCase {
		t.facts = append(t.facts, fact{what: "match ignore_case", text: "true", adds: ifAlone(alone, tighter), then: rivals})
	}
	if r.When.Text != "" {
		t.facts = append(t.facts, fact{what: "when", text: r.When.Text, adds: ifAlone(alone, looser), then: rivals})
	}
	by := fact{what: "by", text: byText(r.By), values: r.By, then: "everybody starts anew" + rivals}
	// What client stands for depends on the request, and so does what is missing.
	if alone && !slices.Contains(r.By, "client") && r.OnMissing == headgate.ShareMissing {
		by.more = looser
	}
	t.facts = append(append(t.facts, by), limitFacts("limit", r.Limit, r.Limits)...)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		t.facts = append(t.facts, limitFacts("tier "+tier, r.Tiers[tier].Limit, r.Tiers[tier].Limits)...)
	}
	for _, f := range limitFacts("candidate", r.Candidate.Limit, r.Candidate.Limits) {
		t.facts = append(t.facts, fact{what: f.what, text: f.text, adds: other, then: "on trial: refuses nobody"})
	}
	mode := modeFact(r.Mode)
	if !alone {
		mode.rank = 0
	}
	t.facts = append(append(t.facts, mode), otherFacts(r, rivals)...)
	return t
}

func rivalText(r *headgate.Rule) string { return fmt.Sprintf("%s at priority %d", r.ID, r.Priority) }

// ifAlone is e, unless the rule competes with others that may then apply in its place.
func ifAlone(alone bool, e effect) effect {
	if alone {
		return e
	}
	return other
}

// otherFacts are those that are a word or a number.
func otherFacts(r *headgate.Rule, rivals string) []fact {
	percent := int64(cmp.Or(r.EnforcePercent, 100))
	cost := fact{what: "cost", rank: max(r.Cost.Default, 1), then: "used units stay used"}
	cost.text = number(cost.rank)
	if c := r.Cost; c.From != "" {
		cost.text = fmt.Sprintf("%s, %d to %d, else %s", c.From, max(c.Min, 1), cmp.Or(c.Max, headgate.MaxCost), cost.text)
		cost.rank = 0
	}
	missing := []int64{headgate.SkipMissing: 1, headgate.ShareMissing: 2, headgate.DenyMissing: 3}[r.OnMissing]
	failure := []int64{headgate.FailAllow: 1, headgate.FailLocal: 2, headgate.FailDeny: 3}[r.OnStoreFailure]
	labels := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(r.Labels), "map["), "]")
	asked := "none"
	if most := r.MaxCallerLimit; most.Count > 0 {
		asked = most.String()
	}
	facts := []fact{
		cost,
		{what: "enforce_percent", text: number(percent), rank: percent, then: "for the others it is in shadow"},
		{what: "overdraw", text: strconv.FormatBool(r.Overdraw), then: "whether costs are recorded beyond the limit"},
		{what: "max_delay", text: r.MaxDelay.String(), rank: math.MaxInt64 - int64(r.MaxDelay), then: "then it is refused"},
		{what: "max_caller_limit", text: asked, then: "the most that callers may ask for"},
		{what: "priority", text: number(int64(r.Priority)), then: "of rules with the same by the highest applies" + rivals},
		{what: "on_missing", text: r.OnMissing.String(), rank: missing, then: "for requests that lack what is counted by"},
		{what: "on_store_failure", text: r.OnStoreFailure.String(), rank: failure, then: "while the store does not answer"},
		{what: "strict", text: strconv.FormatBool(r.Strict), then: "whether the store alone decides"},
		{what: "critical", text: strconv.FormatBool(r.Critical), then: "whether it is turned away last"},
		{what: "expose", text: r.Expose.String(), then: "what clients are shown in headers"},
		{what: "meter", text: strconv.FormatBool(r.Meter), then: "whether usage is added up by the day"},
		{what: "description", text: r.Description, then: "for people only"},
		{what: "labels", text: labels, then: "for people and their tools only"},
	}
	usual := []string{"1", "100", "false", "0s", "none", "0", "share", "local", "false", "false", "auto", "false", "", ""}
	for i := range facts {
		facts[i].usual = facts[i].text == usual[i]
	}
	return facts
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func modeFact(m headgate.Mode) fact {
	return fact{
		what: "mode", text: m.String(), usual: m == headgate.Enforce, rank: int64(headgate.Off-m) + 1,
		then: []string{"refuses; used units stay used", "refuses nobody; counts", "refuses nobody; counts nothing"}[m],
	}
}

// limitFacts are limits by name. Those of a tier stand in the place of the rule's.
func limitFacts(what string, limit headgate.Limit, named map[string]headgate.Limit) []fact {
	all := map[string]headgate.Limit{}
	maps.Copy(all, named)
	if limit != (headgate.Limit{}) {
		all[""] = limit
	}
	var facts []fact
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		f := fact{what: strings.TrimSpace(what + " " + name), text: l.String(), adds: tighter, limit: &l}
		if what != "limit" {
			f.replaces = strings.TrimSpace("limit " + name)
		}
		facts = append(facts, f)
	}
	return facts
}

// commonEffect is what all limits have in common in the place of a rule's; with tiers it depends on the subject's.
func commonEffect(rule *thing, limits []fact) effect {
	var common effect
	for _, f := range limits {
		own := rule.fact(f.what)
		if own == nil || slices.ContainsFunc(rule.facts, func(f fact) bool { return strings.HasPrefix(f.what, "tier ") }) {
			return other
		}
		e, _ := compareLimits(own.limit, f.limit)
		if common = cmp.Or(common, e); common != e {
			return other
		}
	}
	return common
}

// lastingFacts are until when an exception holds, and why.
func lastingFacts(adds effect, expires time.Time, reason string) []fact {
	until := fact{what: "until", text: "it is removed", rank: 1}
	if !expires.IsZero() {
		until = fact{what: "until", text: expires.UTC().Format(time.RFC3339), rank: math.MaxInt64 - expires.Unix()}
	}
	if adds != looser {
		until.rank = 0
	}
	return []fact{until, {what: "reason", text: reason, usual: reason == "", then: "for people only"}}
}

func expired(at, now time.Time) string {
	if at.IsZero() || at.After(now) {
		return ""
	}
	return "expired: without effect"
}

func patternFact(name string, p headgate.Pattern, alone bool, rivals string) fact {
	either := slices.Clone(p.Values)
	if p.Prefix != "" {
		either = append(either, p.Prefix+"…")
	}
	for _, network := range p.CIDR {
		either = append(either, network.String())
	}
	slices.Sort(either)
	var parts []string
	if len(either) > 0 {
		parts = append(parts, strings.Join(either, " or "))
	}
	if len(p.Not) > 0 {
		parts = append(parts, "not "+strings.Join(slices.Sorted(slices.Values(p.Not)), " or "))
	}
	if p.Presence != headgate.AnyPresence {
		parts = append(parts, []string{"", "present", "absent"}[p.Presence])
	}
	f := fact{what: "match " + name, text: strings.Join(parts, ", "), adds: ifAlone(alone, looser), then: rivals}
	if alone && len(p.Values) > 0 && len(p.Not) == 0 {
		f.values, f.more = either, tighter
	}
	return f
}

// byText is the names that are counted by, whatever their order.
func byText(names []string) string {
	if len(names) == 0 {
		return "everybody together"
	}
	return "[" + strings.Join(slices.Sorted(slices.Values(names)), ", ") + "]"
}
