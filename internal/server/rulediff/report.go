// Package rulediff says what changes for whom between two versions of rules: what becomes looser, what tighter, and whose
// counters start anew. It knows what the parts of a rule do to requests, and nothing of where rules come from.
package rulediff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// Report is what changes. Its JSON has a version, which changes when a key is renamed or removed or means something else.
type Report struct {
	Version int  `json:"version"`
	Old     side `json:"old"`
	New     side `json:"new"`
	// Entries are what is not the same on both sides; none if nothing changes.
	Entries []entry `json:"entries"`
	// Effects counts the changes by their effect.
	Effects map[effect]int `json:"effects"`
	// StartAnew are the rules on both sides that lose what they have counted, for some or for all.
	StartAnew []string `json:"start_anew"`
}

// side is one of the two.
type side struct {
	// Path says where it is from; it is for whoever compares to set.
	Path         string `json:"path"`
	RulesVersion string `json:"rules_version"`
	Rules        int    `json:"rules"`
}

// entry is one thing that is not the same on both sides.
type entry struct {
	// Change is added, removed or changed; Kind is rule, override, exemption or mode, which is that of all rules.
	Change string `json:"change"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	// Note says why nobody is denied either way, if so, and which rule this one looks like, if any.
	Note    string   `json:"note"`
	Changes []change `json:"changes"`
}

// change is one thing that is not the same, and what follows. Old or New is empty if that side lacks it.
type change struct {
	Effect      effect `json:"effect"`
	What        string `json:"what"`
	Old         string `json:"old"`
	New         string `json:"new"`
	Consequence string `json:"consequence"`
}

// New compares two documents; now is for what has expired.
func New(from, to *ruledoc.Document, now time.Time) *Report {
	r := &Report{
		Version: 1, Entries: []entry{}, StartAnew: []string{},
		Effects: map[effect]int{looser: 0, tighter: 0, other: 0},
		Old:     side{"", from.Rules.Version(), len(from.Source)}, New: side{"", to.Rules.Version(), len(to.Source)},
	}
	olds, news := thingsOf(from, now), thingsOf(to, now)
	before, after := byKey(olds), byKey(news)
	for _, t := range news {
		if _, both := before[t.key()]; both {
			r.add("changed", t, compare(before[t.key()], t))
		}
	}
	only := func(things []thing, there map[string]thing) []thing {
		return slices.DeleteFunc(things, func(t thing) bool { _, both := there[t.key()]; return both })
	}
	removed, added := only(olds, after), only(news, before)
	toTwins, fromTwins := twins(added), twins(removed)
	for _, t := range removed {
		r.add("removed", t, t.whole("to", toTwins))
	}
	for _, t := range added {
		r.add("added", t, t.whole("from", fromTwins))
	}
	return r
}

func (t *thing) key() string { return t.kind + " " + t.name }

func byKey(things []thing) map[string]thing {
	index := map[string]thing{}
	for _, t := range things {
		index[t.key()] = t
	}
	return index
}

func (r *Report) add(what string, t thing, e entry) {
	if len(e.Changes) == 0 {
		return
	}
	e.Change, e.Kind, e.Name = what, t.kind, t.name
	r.Entries = append(r.Entries, e)
	for i := range e.Changes {
		c := &e.Changes[i]
		if what == "removed" {
			c.Old, c.New, c.Effect = c.New, "", c.Effect.opposite()
		}
		r.Effects[c.Effect]++
		anew := what == "changed" && t.kind == "rule" && strings.Contains(c.Consequence, "anew")
		if anew && !slices.Contains(r.StartAnew, t.name) {
			r.StartAnew = append(r.StartAnew, t.name)
		}
	}
}

// String is the report for people.
func (r *Report) String() string {
	side := func(s side) string {
		return fmt.Sprintf("%s (%s, version %s)", s.Path, wording.Count(s.Rules, "rule"), s.RulesVersion)
	}
	if len(r.Entries) == 0 {
		return fmt.Sprintf("nothing changes from %s to %s\n", side(r.Old), side(r.New))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "from %s\nto   %s\n", side(r.Old), side(r.New))
	changes := map[string]int{}
	for _, e := range r.Entries {
		changes[e.Change]++
		fmt.Fprintf(&b, "\n%s %s %s%s\n", e.Change, e.Kind, e.Name, strings.TrimSuffix(" ("+e.Note+")", " ()"))
		for _, c := range e.Changes {
			fmt.Fprintf(&b, "  %-7s  %s\n", c.Effect, c.text())
		}
	}
	fmt.Fprintf(&b, "\n%d changed, %d added, %d removed; %d looser, %d tighter, %d other\n",
		changes["changed"], changes["added"], changes["removed"], r.Effects[looser], r.Effects[tighter], r.Effects[other])
	if len(r.StartAnew) > 0 {
		fmt.Fprintf(&b, "counters start anew: %s\n", strings.Join(r.StartAnew, ", "))
	}
	return b.String()
}

func (c *change) text() string {
	text := c.Old + c.New
	if c.What != "" {
		text = fmt.Sprintf("%s: %s → %s", c.What, cmp.Or(c.Old, "none"), cmp.Or(c.New, "none"))
	}
	if c.Consequence == "" {
		return text
	}
	return text + " (" + c.Consequence + ")"
}
