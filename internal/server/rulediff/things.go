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
			t.idle = "denies nobody: mode is " + mode.String()
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
	patterns := map[string]headgate.Pattern{}
	maps.Copy(patterns, r.Match.Attributes)
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
		t.facts = append(t.facts, fact{what: f.what, text: f.text, adds: other, then: "on trial: denies nobody"})
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

// meaning is what a change of a key means. Keys that no fact is about, and that have no meaning here, are compared all the same:
// a change of them is neither looser nor tighter.
type meaning struct {
	key   string
	unset string // the value of a rule without the key
	then  string
	rank  func(r *headgate.Rule) int64
	text  func(r *headgate.Rule) string // nil: as the document has it
}

// meanings are in the order in which changes are listed.
var meanings = []meaning{
	{key: "cost", unset: "1", then: "used units stay used", rank: costRank, text: costText},
	{key: "enforce_percent", unset: "100", then: "for the others it is in shadow", rank: func(r *headgate.Rule) int64 {
		return int64(cmp.Or(r.EnforcePercent, 100))
	}},
	{key: "overdraw", unset: "false", then: "whether costs are recorded beyond the limit"},
	{key: "max_delay", unset: "0s", then: "then it is denied", rank: func(r *headgate.Rule) int64 { return math.MaxInt64 - int64(r.MaxDelay) }},
	{key: "max_caller_limit", unset: "none", then: "the most that callers may ask for"},
	{key: "priority", unset: "0", then: "of rules with the same by the highest applies"},
	{key: "on_missing", unset: "share", then: "for requests that lack what is counted by", rank: func(r *headgate.Rule) int64 {
		return []int64{headgate.SkipMissing: 1, headgate.ShareMissing: 2, headgate.DenyMissing: 3}[r.OnMissing]
	}},
	{key: "on_store_failure", unset: "local", then: "while the store does not answer", rank: func(r *headgate.Rule) int64 {
		return []int64{headgate.FailAllow: 1, headgate.FailLocal: 2, headgate.FailDeny: 3}[r.OnStoreFailure]
	}},
	{key: "strict", unset: "false", then: "whether the store alone decides"},
	{key: "critical", unset: "false", then: "whether it is turned away last"},
	{key: "expose", unset: "auto", then: "what clients are shown in headers"},
	{key: "meter", unset: "false", then: "whether usage is added up by the day"},
	{key: "description", then: "for people only"},
	{key: "labels", then: "for people and their tools only", text: func(r *headgate.Rule) string {
		return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(r.Labels), "map["), "]")
	}},
}

// ownFacts are the keys that ruleThing makes facts of.
var ownFacts = []string{"id", "match", "when", "by", "limit", "limits", "algorithm", "tiers", "candidate", "mode"}

// otherFacts are those that are a word or a number.
func otherFacts(r *headgate.Rule, rivals string) []fact {
	keys := maps.Collect(ruledoc.Settings(*r, ownFacts...))
	facts := make([]fact, 0, len(meanings)+len(keys))
	for _, m := range meanings {
		f := fact{what: m.key, text: m.unset, then: m.then}
		if text, ok := keys[m.key]; ok && m.text == nil {
			f.text = text
		} else if ok {
			f.text = m.text(r)
		}
		if m.rank != nil {
			f.rank = m.rank(r)
		}
		if m.key == "priority" {
			f.then += rivals
		}
		f.usual = f.text == m.unset
		facts = append(facts, f)
		delete(keys, m.key)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		facts = append(facts, fact{what: key, text: keys[key], adds: other})
	}
	return facts
}

func costRank(r *headgate.Rule) int64 {
	if r.Cost.From != "" {
		return 0
	}
	return max(r.Cost.Default, 1)
}

func costText(r *headgate.Rule) string {
	c, usual := r.Cost, strconv.FormatInt(max(r.Cost.Default, 1), 10)
	if c.From == "" {
		return usual
	}
	return fmt.Sprintf("%s, %d to %d, else %s", c.From, max(c.Min, 1), cmp.Or(c.Max, headgate.MaxCost), usual)
}

func modeFact(m headgate.Mode) fact {
	return fact{
		what: "mode", text: m.String(), usual: m == headgate.Enforce, rank: int64(headgate.Off-m) + 1,
		then: []string{"denies; used units stay used", "denies nobody; counts", "denies nobody; counts nothing"}[m],
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
