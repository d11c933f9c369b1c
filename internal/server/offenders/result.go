package offenders

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
)

const (
	// version is the version of the format of a Result.
	version = 1
	// MaxRows is the maximum number of rows of a query.
	MaxRows = 100
	// DefaultRows is the number of rows if a query does not set it.
	DefaultRows = 20
	// wider is the factor by which a node returns more rows to Merge than requested: the first rows over all nodes may be
	// further down on each node.
	wider = 5
)

// Query selects the rows of a Result.
type Query struct {
	// Rule is the ID of a rule; empty means all rules.
	Rule string `json:"rule,omitempty"`
	// WindowSeconds is the length of the window: the current minute and those before it, 1 to 10 minutes. Only whole minutes
	// of the clock count.
	WindowSeconds int `json:"windowSeconds"`
	// Limit is the maximum number of rows of each list, up to 100; 0 means 20.
	Limit int `json:"most"`
}

func (q *Query) limit() int {
	return min(cmp.Or(max(0, q.Limit), DefaultRows), MaxRows)
}

// minutes returns the length of the window in minutes.
func (q *Query) minutes() int64 {
	return int64(max(1, (min(q.WindowSeconds, KeptMinutes*60)+59)/60))
}

// Result contains the data of one node, or of several merged ones.
type Result struct {
	fanout.Header
	// Limited lists the subjects that were denied most often, and Near the subjects that came nearest to a limit without
	// being denied; of all rules together, in descending order.
	Limited []Limited `json:"limited"`
	Near    []Near    `json:"near"`
	// Incomplete reports that counts within the window were evicted because all rules together need too much memory: counts
	// may be too low.
	Incomplete bool `json:"incomplete,omitempty"`
	// Floors contains, for the rules in Limited, how often a subject that is not listed may have been denied; Floor is that
	// number for all other rules. Merge needs them.
	Floors map[string]int64 `json:"floors,omitempty"`
	Floor  int64            `json:"floor,omitempty"`
}

// Limited is the number of denials of a subject by a rule. The true number is from Denied - Error to Denied.
type Limited struct {
	Rule string `json:"rule"`
	// Subject is headgate.Subject.String(). Attributes are those of the subject, if they are known and may be shown.
	Subject    string              `json:"subject"`
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	Denied     int64               `json:"denied"`
	Error      int64               `json:"error"`
}

// Near describes how near a subject came to a limit of a rule.
type Near struct {
	Rule string `json:"rule"`
	// Limit is the name of the limit; empty if the rule has only one.
	Limit      string              `json:"limit,omitempty"`
	Subject    string              `json:"subject"`
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	// Used and Of are the used units and the capacity at the nearest point.
	Used int64     `json:"used"`
	Of   int64     `json:"of"`
	At   time.Time `json:"at"`
}

// Merge combines the results of several nodes for a query: denials are added up, and of near subjects the nearest is used.
// The result of a single node has to be merged, too, because it has more rows than requested.
//
// If a subject is missing in the result of a node, the denials that the node may have counted for it are added to Denied and
// to Error, so that the bounds of Limited hold.
func Merge(q Query, results []Result) Result {
	merged := Result{}
	rules := map[string]*ruleData{}
	var tallies []map[string][]tally // of each result, by rule
	for i := range results {
		a := &results[i]
		merged.Incomplete = merged.Incomplete || a.Incomplete
		tallies = append(tallies, a.tallies(rules))
		a.nearest(rules)
	}
	for id, k := range rules {
		for i := range results {
			k.lists = append(k.lists, list{tallies[i][id], results[i].floor(id)})
		}
	}
	merged.fill(rules, q.limit())
	return merged
}

// tallies returns the rows of Limited by rule, and adds the rules to rules.
func (a *Result) tallies(rules map[string]*ruleData) map[string][]tally {
	byRule := map[string][]tally{}
	for i := range a.Limited {
		l := &a.Limited[i]
		if s, ok := headgate.ParseSubject(l.Subject); ok {
			byRule[l.Rule] = append(byRule[l.Rule], tally{s, l.Denied, l.Error, encodeName(l.Attributes)})
			dataOf(rules, l.Rule)
		}
	}
	return byRule
}

func (a *Result) nearest(rules map[string]*ruleData) {
	for i := range a.Near {
		n := &a.Near[i]
		if s, ok := headgate.ParseSubject(n.Subject); ok && n.Of > 0 {
			k := dataOf(rules, n.Rule)
			k.near = append(k.near, nearest{s, n.Limit, n.Used, n.Of, shareOf(n.Used, n.Of), n.At.UnixNano(), encodeName(n.Attributes)})
		}
	}
}

// floor returns how often a rule may have denied a subject that is not in the result.
func (a *Result) floor(rule string) int64 {
	if f, ok := a.Floors[rule]; ok {
		return f
	}
	return a.Floor
}

// ruleData contains the data of a rule: several lists of denials, and near subjects in any order and with duplicates.
type ruleData struct {
	lists []list
	near  []nearest
}

func dataOf(rules map[string]*ruleData, id string) *ruleData {
	k := rules[id]
	if k == nil {
		k = &ruleData{}
		rules[id] = k
	}
	return k
}

// list contains denials by subject. A subject that is not listed was denied at most floor times; every listed subject has at
// least floor.
type list struct {
	tallies []tally
	floor   int64
}

// sum adds up lists of disjoint denials. If a subject is missing in a list, the floor of that list is added to both the count
// and the error.
func sum(lists []list) (total map[headgate.Subject]tally, floor int64) {
	total = map[headgate.Subject]tally{}
	for _, l := range lists {
		floor += l.floor
		for i := range l.tallies {
			t := &l.tallies[i]
			before := total[t.subject]
			total[t.subject] = tally{
				t.subject, before.denied + t.denied - l.floor, before.err + t.err - l.floor, cmp.Or(before.name, t.name),
			}
		}
	}
	for s, t := range total {
		t.denied += floor
		t.err += floor
		total[s] = t
	}
	return total, floor
}

// ranked is a row with its rule.
type ranked[T any] struct {
	rule string
	row  T
}

// fill sets the lists of a result.
//
// No row is below the floor of its rule, so the first row that is cut off is at or above the floors of all rules without
// further rows.
func (a *Result) fill(rules map[string]*ruleData, limit int) {
	var limited []ranked[tally]
	var near []ranked[nearest]
	floors := map[string]int64{}
	for id, k := range rules {
		total, floor := sum(k.lists)
		for _, t := range total {
			limited = append(limited, ranked[tally]{id, t})
		}
		floors[id] = floor
		for _, n := range nearestOf(k.near) {
			if _, found := total[n.subject]; !found {
				near = append(near, ranked[nearest]{id, n})
			}
		}
	}
	slices.SortFunc(limited, func(a, b ranked[tally]) int {
		return cmp.Or(cmp.Compare(b.row.denied, a.row.denied), cmp.Compare(a.row.err, b.row.err),
			strings.Compare(a.rule, b.rule), bytes.Compare(a.row.subject[:], b.row.subject[:]))
	})
	slices.SortFunc(near, func(a, b ranked[nearest]) int {
		return cmp.Or(cmp.Compare(b.row.share, a.row.share), cmp.Compare(b.row.of, a.row.of),
			strings.Compare(a.rule, b.rule), bytes.Compare(a.row.subject[:], b.row.subject[:]))
	})
	listed := min(limit, len(limited))
	a.Limited, a.Near = make([]Limited, 0, listed), make([]Near, 0, min(limit, len(near)))
	a.Floors = map[string]int64{}
	for _, l := range limited[:listed] {
		a.Limited = append(a.Limited, Limited{l.rule, l.row.subject.String(), decodeName(l.row.name), l.row.denied, l.row.err})
		a.Floors[l.rule] = floors[l.rule]
	}
	for i, l := range limited[listed:] {
		if i == 0 {
			a.Floor = l.row.denied
		}
		if floor, found := a.Floors[l.rule]; found {
			a.Floors[l.rule] = max(floor, l.row.denied)
		}
	}
	for _, n := range near[:min(limit, len(near))] {
		a.Near = append(a.Near, Near{
			n.rule, n.row.limit, n.row.subject.String(), decodeName(n.row.name), n.row.used, n.row.of, time.Unix(0, n.row.at).UTC(),
		})
	}
}
