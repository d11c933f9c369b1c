// Package rulediff compares two versions of rules and reports the effects of each change: what becomes looser, what becomes
// tighter, and which counters are reset. It knows the effects of a rule's keys, but not where rules come from.
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

// Report is the result of a comparison. Version is the version of its JSON, which changes when a key is renamed, removed or
// changes its meaning.
type Report struct {
	Version int  `json:"version"`
	Old     side `json:"old"`
	New     side `json:"new"`
	// Entries are the items that differ; empty if nothing changes.
	Entries []entry `json:"entries"`
	// Effects counts the changes by their effect.
	Effects map[effect]int `json:"effects"`
	// StartAnew are the rules on both sides whose counters are reset, for some or for all subjects.
	StartAnew []string `json:"start_anew"`
}

// side is one of the compared versions.
type side struct {
	// Path is where the rules come from. The caller of New sets it.
	Path         string `json:"path"`
	RulesVersion string `json:"rules_version"`
	Rules        int    `json:"rules"`
}

// entry is an item that differs.
type entry struct {
	// Change is added, removed or changed. Kind is rule, override, exemption or mode (the mode of all rules).
	Change string `json:"change"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	// Note is the reason why no request is denied on either side, or empty.
	Note    string   `json:"note"`
	Changes []change `json:"changes"`
}

// change is one difference with its consequence. Old or New is empty if that side does not have it.
type change struct {
	Effect      effect `json:"effect"`
	What        string `json:"what"`
	Old         string `json:"old"`
	New         string `json:"new"`
	Consequence string `json:"consequence"`
}

// New compares two documents. Overrides and exemptions that expired before now have no effect.
func New(from, to *ruledoc.Document, now time.Time) *Report {
	r := &Report{
		Version: 1, Entries: []entry{}, StartAnew: []string{},
		Effects: map[effect]int{looser: 0, tighter: 0, other: 0},
		Old:     side{"", from.Rules.Version(), len(from.Source)}, New: side{"", to.Rules.Version(), len(to.Source)},
	}
	oldItems, newItems := itemsOf(from, now), itemsOf(to, now)
	before, after := byKey(oldItems), byKey(newItems)
	for _, it := range newItems {
		if _, both := before[it.key()]; both {
			r.add("changed", it, compare(before[it.key()], it))
		}
	}
	only := func(items []item, others map[string]item) []item {
		return slices.DeleteFunc(items, func(it item) bool { _, both := others[it.key()]; return both })
	}
	removed, added := only(oldItems, after), only(newItems, before)
	addedRules, removedRules := rulesByText(added), rulesByText(removed)
	for _, it := range removed {
		r.add("removed", it, it.asAdded("to", addedRules))
	}
	for _, it := range added {
		r.add("added", it, it.asAdded("from", removedRules))
	}
	return r
}

// key identifies an item on both sides.
func (it *item) key() string { return it.kind + " " + it.name }

func byKey(items []item) map[string]item {
	index := map[string]item{}
	for _, it := range items {
		index[it.key()] = it
	}
	return index
}

// add adds an entry, unless it has no changes.
func (r *Report) add(what string, it item, e entry) {
	if len(e.Changes) == 0 {
		return
	}
	e.Change, e.Kind, e.Name = what, it.kind, it.name
	r.Entries = append(r.Entries, e)
	for i := range e.Changes {
		c := &e.Changes[i]
		if what == "removed" {
			c.Old, c.New, c.Effect = c.New, "", c.Effect.opposite()
		}
		r.Effects[c.Effect]++
		reset := what == "changed" && it.kind == "rule" && strings.Contains(c.Consequence, "reset")
		if reset && !slices.Contains(r.StartAnew, it.name) {
			r.StartAnew = append(r.StartAnew, it.name)
		}
	}
}

// String formats the report for people.
func (r *Report) String() string {
	side := func(s side) string {
		return fmt.Sprintf("%s (%s, version %s)", s.Path, wording.Count(s.Rules, "rule"), s.RulesVersion)
	}
	if len(r.Entries) == 0 {
		return fmt.Sprintf("no changes from %s to %s\n", side(r.Old), side(r.New))
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
		fmt.Fprintf(&b, "counters reset: %s\n", strings.Join(r.StartAnew, ", "))
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
