package rulediff

import (
	"cmp"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// effect is the effect of a change: whether fewer (looser) or more (tighter) requests are denied afterwards. It is other if
// neither is certain.
type effect string

const (
	looser  effect = "looser"
	tighter effect = "tighter"
	other   effect = "other"
)

func (e effect) opposite() effect {
	return map[effect]effect{looser: tighter, tighter: looser, other: other}[e]
}

// item is a part of a document that may be on one side only: a rule, an override or an exemption.
type item struct {
	kind, name  string
	properties  []property
	ifAdded     effect // effect of adding the item
	consequence string // consequence of adding the item
	inactive    string // why it denies no request; "" if it may deny some
}

// property is one line of an item. Properties with the same what, of items with the same name, are compared.
type property struct {
	what, text  string
	isDefault   bool     // left out when an item is described
	ifAdded     effect   // effect of adding the property
	consequence string   // consequence of a change
	strictness  int64    // the higher, the tighter; 0 if not comparable
	values      []string // alternatives of a match, or attributes of by
	ifMore      effect   // effect of adding values; "" if not comparable
	limit       *headgate.Limit
	replaces    string // what of the property that applies without this one
	costs       []headgate.CostEntry
	otherCost   int64 // cost of requests that no entry of costs matches
}

// property returns the property with this what, or nil.
func (it *item) property(what string) *property {
	if i := slices.IndexFunc(it.properties, func(f property) bool { return f.what == what }); i >= 0 {
		return &it.properties[i]
	}
	return nil
}

// asAdded returns the entry of an item that only one side has, as if it were added. OtherRules are the names of the rules
// that only the other side has, by their text.
func (it *item) asAdded(direction string, otherRules map[string]string) entry {
	e := entry{Note: it.inactive, Changes: []change{{Effect: it.ifAdded, New: it.text(), Consequence: it.consequence}}}
	if it.inactive != "" {
		e.Changes[0].Effect = other
	}
	if renamed := otherRules[it.text()]; renamed != "" && it.kind == "rule" {
		e.Changes[0].Effect = other
		e.Changes[0].Consequence = "looks like a rename " + direction + " " + renamed + ": counters reset"
	}
	return e
}

// rulesByText returns the names of rules by their text.
func rulesByText(items []item) map[string]string {
	found := map[string]string{}
	for _, it := range items {
		if it.kind == "rule" {
			found[it.text()] = it.name
		}
	}
	return found
}

// text describes an item by the properties that are not the default.
func (it *item) text() string {
	var parts []string
	for _, f := range it.properties {
		if !f.isDefault {
			parts = append(parts, f.what+" "+f.text)
		}
	}
	return strings.Join(parts, "; ")
}

// compare returns the entry of an item that both sides have.
func compare(from, to item) entry {
	var e entry
	var scope []int // indexes of the changes to match and when
	for _, f := range append(slices.Clone(from.properties), to.properties...) {
		a, b := from.property(f.what), to.property(f.what)
		listed := slices.ContainsFunc(e.Changes, func(c change) bool { return c.What == f.what })
		if listed || a != nil && b != nil && a.text == b.text {
			continue
		}
		c := compareProperties(&from, &to, a, b)
		if c.What = f.what; strings.HasPrefix(f.what, "match ") || f.what == "when" {
			scope = append(scope, len(e.Changes))
		}
		e.Changes = append(e.Changes, c)
	}
	// Changes of conditions with different effects have no certain effect together.
	for _, i := range scope {
		c := &e.Changes[i]
		if slices.ContainsFunc(scope, func(j int) bool { return e.Changes[j].Effect != e.Changes[scope[0]].Effect }) {
			c.Effect = other
		}
		c.Consequence = map[effect]string{
			looser: "applies to fewer requests", tighter: "applies to more requests", other: "applies to other requests",
		}[c.Effect] + c.Consequence
	}
	// If a rule gets counters of its own or gives them up, its limits are not those that applied before.
	if (from.property(whatCounter) == nil) != (to.property(whatCounter) == nil) {
		for i := range e.Changes {
			e.Changes[i].Effect = other
		}
	}
	if e.Note = to.inactive; from.inactive == "" || to.inactive == "" {
		e.Note = ""
	}
	for i := range e.Changes {
		if e.Note != "" {
			e.Changes[i].Effect = other
		}
	}
	return e
}

// compareProperties returns the change from a to b; one of them may be nil.
func compareProperties(from, to *item, a, b *property) change {
	c := change{Effect: other}
	if a != nil {
		c.Old, c.Effect, c.Consequence = a.text, a.ifAdded.opposite(), a.consequence
	}
	if b != nil {
		c.New, c.Effect, c.Consequence = b.text, b.ifAdded, b.consequence
	}
	switch {
	case a == nil && b.replaces != "":
		a = from.property(b.replaces)
		c.Old = ruleOwn(a)
	case b == nil && a.replaces != "":
		b = to.property(a.replaces)
		c.New = ruleOwn(b)
	}
	if a == nil || b == nil {
		return c
	}
	c.Effect = other
	switch {
	case a.what == whatCosts:
		c.Effect = compareCosts(a, b)
	case a.limit != nil && b.limit != nil:
		c.Effect, c.Consequence = compareLimits(a.limit, b.limit)
	case a.strictness > 0 && b.strictness > 0:
		c.Effect = map[int]effect{1: tighter, 0: other, -1: looser}[cmp.Compare(b.strictness, a.strictness)]
	case a.ifMore == "" || b.ifMore == "":
	case len(missing(a.values, b.values)) == 0:
		c.Effect = b.ifMore
	case len(missing(b.values, a.values)) == 0:
		c.Effect = b.ifMore.opposite()
	}
	return c
}

// ruleOwn describes the rule's own limit that applies without a more specific one.
func ruleOwn(f *property) string {
	if f == nil {
		return ""
	}
	return "the rule's " + f.text
}

// compareConcurrency compares two concurrency limits of one counter. A longer lease is tighter: the units of dead nodes count for longer.
func compareConcurrency(from, to *headgate.Limit) (effect, string) {
	more, shorter := cmp.Compare(to.Count, from.Count), cmp.Compare(from.Window, to.Window)
	consequence := "requests in flight stay counted"
	if shorter != 0 {
		consequence += "; their leases end by the new limit once they are renewed"
	}
	switch {
	case more >= 0 && shorter >= 0:
		return looser, consequence
	case more <= 0 && shorter <= 0:
		return tighter, consequence
	}
	return other, consequence
}

// compareLimits compares two limits of one counter.
func compareLimits(from, to *headgate.Limit) (effect, string) {
	if from.Algorithm == headgate.Concurrency && to.Algorithm == headgate.Concurrency {
		return compareConcurrency(from, to)
	}
	a, b := *from, *to
	a.Count, b.Count, a.Burst, b.Burst = 1, 1, 0, 0
	consequence := "counters continue; used units stay used"
	switch {
	case from.Algorithm != to.Algorithm:
		return other, "counters reset"
	case a.String() != b.String():
		consequence = "counters continue; used units expire by the new limit"
	}
	if from.Align != to.Align || from.Calendar != to.Calendar || a.Calendar != 0 && a.String() != b.String() {
		return other, consequence
	}
	rate := func(l *headgate.Limit) *big.Rat { return big.NewRat(l.Count, max(1, int64(l.Window/time.Microsecond))) }
	faster, larger := rate(to).Cmp(rate(from)), cmp.Compare(to.Capacity(), from.Capacity())
	switch {
	case faster >= 0 && larger >= 0:
		return looser, consequence
	case faster <= 0 && larger <= 0:
		return tighter, consequence
	}
	return other, consequence
}

// compareCosts compares two cost tables. The effect is certain if one table has all entries of the other in the same order, and no request
// costs more, or none costs less.
func compareCosts(from, to *property) effect {
	if len(from.costs) > len(to.costs) {
		return compareCosts(to, from).opposite()
	}
	rest := from.costs // entries that are not found in to yet
	var more, less bool
	compare := func(before, after int64) {
		more, less = more || after > before, less || after < before
	}
	for _, e := range to.costs {
		if len(rest) > 0 && reflect.DeepEqual(rest[0].Match, e.Match) {
			compare(rest[0].Cost, e.Cost)
			rest = rest[1:]
			continue
		}
		// A request that only the new entry matches had one of these costs.
		compare(from.otherCost, e.Cost)
		for i := range rest {
			compare(rest[i].Cost, e.Cost)
		}
	}
	switch {
	case len(rest) > 0 || more == less:
		return other
	case more:
		return tighter
	}
	return looser
}

// missing returns the words that are not in the list.
func missing(words, list []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(list, w) })
}
