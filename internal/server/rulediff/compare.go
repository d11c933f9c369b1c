package rulediff

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// effect of a change: whether less is denied afterwards, or more. It is other where neither is certain.
type effect string

const (
	looser  effect = "looser"
	tighter effect = "tighter"
	other   effect = "other"
)

func (e effect) opposite() effect {
	return map[effect]effect{looser: tighter, tighter: looser, other: other}[e]
}

// thing is what may be on one side only: a rule, an override, an exemption.
type thing struct {
	kind, name string
	facts      []fact
	adds       effect // what it means that the thing is added
	then       string // what follows if it is added
	idle       string // why it denies nobody, if so
}

// fact is one line of a thing. Facts of things with the same name and of the same what are compared.
type fact struct {
	what, text string
	usual      bool     // not worth a word when a thing is described
	adds       effect   // what it means that the fact is added
	then       string   // what follows if it changes
	rank       int64    // the higher, the tighter; 0 if that cannot be said
	values     []string // one of which must hold, or which are counted by
	more       effect   // what more values mean; "" if that cannot be said
	limit      *headgate.Limit
	replaces   string // the fact that holds where this one is not
}

func (t *thing) fact(what string) *fact {
	if i := slices.IndexFunc(t.facts, func(f fact) bool { return f.what == what }); i >= 0 {
		return &t.facts[i]
	}
	return nil
}

// whole is a thing that only one side has, as if it were added. Twins are the rules that only the other side has, by
// what they say.
func (t *thing) whole(direction string, twins map[string]string) entry {
	e := entry{Note: t.idle, Changes: []change{{Effect: t.adds, New: t.text(), Consequence: t.then}}}
	if t.idle != "" {
		e.Changes[0].Effect = other
	}
	if twin := twins[t.text()]; twin != "" && t.kind == "rule" {
		e.Changes[0].Effect = other
		e.Changes[0].Consequence = "looks like a rename " + direction + " " + twin + ": counters start anew"
	}
	return e
}

func twins(things []thing) map[string]string {
	found := map[string]string{}
	for _, t := range things {
		if t.kind == "rule" {
			found[t.text()] = t.name
		}
	}
	return found
}

func (t *thing) text() string {
	var parts []string
	for _, f := range t.facts {
		if !f.usual {
			parts = append(parts, f.what+" "+f.text)
		}
	}
	return strings.Join(parts, "; ")
}

// compare finds what changes with a thing that both sides have.
func compare(from, to thing) entry {
	var e entry
	var scope []int // the changes of which requests a rule is for
	for _, f := range append(slices.Clone(from.facts), to.facts...) {
		a, b := from.fact(f.what), to.fact(f.what)
		told := slices.ContainsFunc(e.Changes, func(c change) bool { return c.What == f.what })
		if told || a != nil && b != nil && a.text == b.text {
			continue
		}
		c := compareFacts(&from, &to, a, b)
		if c.What = f.what; strings.HasPrefix(f.what, "match ") || f.what == "when" {
			scope = append(scope, len(e.Changes))
		}
		e.Changes = append(e.Changes, c)
	}
	// Conditions that pull in different directions say nothing together.
	for _, i := range scope {
		c := &e.Changes[i]
		if slices.ContainsFunc(scope, func(j int) bool { return e.Changes[j].Effect != e.Changes[scope[0]].Effect }) {
			c.Effect = other
		}
		c.Consequence = map[effect]string{
			looser: "applies to fewer requests", tighter: "applies to more requests", other: "applies to other requests",
		}[c.Effect] + c.Consequence
	}
	if e.Note = to.idle; from.idle == "" || to.idle == "" {
		e.Note = ""
	}
	for i := range e.Changes {
		if e.Note != "" {
			e.Changes[i].Effect = other
		}
	}
	return e
}

// compareFacts says what it means that a becomes b; one of them may be nil.
func compareFacts(from, to *thing, a, b *fact) change {
	c := change{Effect: other}
	if a != nil {
		c.Old, c.Effect, c.Consequence = a.text, a.adds.opposite(), a.then
	}
	if b != nil {
		c.New, c.Effect, c.Consequence = b.text, b.adds, b.then
	}
	switch {
	case a == nil && b.replaces != "":
		a = from.fact(b.replaces)
		c.Old = ruleOwn(a)
	case b == nil && a.replaces != "":
		b = to.fact(a.replaces)
		c.New = ruleOwn(b)
	}
	if a == nil || b == nil {
		return c
	}
	c.Effect = other
	switch {
	case a.limit != nil && b.limit != nil:
		c.Effect, c.Consequence = compareLimits(a.limit, b.limit)
	case a.rank > 0 && b.rank > 0:
		c.Effect = map[int]effect{1: tighter, 0: other, -1: looser}[cmp.Compare(b.rank, a.rank)]
	case a.more == "" || b.more == "":
	case len(missing(a.values, b.values)) == 0:
		c.Effect = b.more
	case len(missing(b.values, a.values)) == 0:
		c.Effect = b.more.opposite()
	}
	return c
}

func ruleOwn(f *fact) string {
	if f == nil {
		return ""
	}
	return "the rule's " + f.text
}

// compareLimits compares two limits of one counter.
func compareLimits(from, to *headgate.Limit) (effect, string) {
	a, b := *from, *to
	a.Count, b.Count, a.Burst, b.Burst = 1, 1, 0, 0
	consequence := "counters go on; used units stay used"
	switch {
	case from.Algorithm != to.Algorithm:
		return other, "counters start anew"
	case a.String() != b.String():
		consequence = "counters go on; used units lapse as the new limit says"
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

// missing are the words that are not in the list.
func missing(words, list []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(list, w) })
}
