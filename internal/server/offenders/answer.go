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
	// version is that of an Answer's form.
	version = 1
	// MostRows is how many rows a query may ask for.
	MostRows = 100
	// UsualRows is how many one gets that does not say.
	UsualRows = 20
	// wider is how many times the rows asked for a node gives to Merge: what is first over all nodes may be further down on each.
	wider = 5
)

// Query is what is asked.
type Query struct {
	// Rule is the ID of the rule that is asked for; all rules if it is empty.
	Rule string `json:"rule,omitempty"`
	// WindowSeconds is how far to look back: the present minute and those before it, 1 to 10 minutes. Minutes are those of the
	// clock, and counted whole.
	WindowSeconds int `json:"windowSeconds"`
	// Most is how many rows each list may have, up to 100; 0 means 20.
	Most int `json:"most"`
}

func (q *Query) most() int {
	return min(cmp.Or(max(0, q.Most), UsualRows), MostRows)
}

// minutes is the window.
func (q *Query) minutes() int64 {
	return int64(max(1, (min(q.WindowSeconds, KeptMinutes*60)+59)/60))
}

// Answer is what one node knows, or several of them.
type Answer struct {
	fanout.Header
	// Limited are the subjects that were denied most often, and Near those that came nearest to a limit and were not denied; of
	// all rules together, first things first.
	Limited []Limited `json:"limited"`
	Near    []Near    `json:"near"`
	// Incomplete says that counts within the window were let go, because there was not enough room for all rules: counts may be
	// too low.
	Incomplete bool `json:"incomplete,omitempty"`
	// Floors say, of the rules in Limited, how often a subject that is not in it may have been denied; Floor says it of all
	// other rules. Merge needs them.
	Floors map[string]int64 `json:"floors,omitempty"`
	Floor  int64            `json:"floor,omitempty"`
}

// Limited is how often a rule denied a subject. The true number is at most Denied, and at least Denied - Error.
type Limited struct {
	Rule string `json:"rule"`
	// Subject is headgate.Subject.String(), and Attributes what that is; only if names may be shown, and are known.
	Subject    string              `json:"subject"`
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	Denied     int64               `json:"denied"`
	Error      int64               `json:"error"`
}

// Near is how near a subject came to a limit of a rule.
type Near struct {
	Rule string `json:"rule"`
	// Limit is the name of the limit; empty if the rule has one only.
	Limit      string              `json:"limit,omitempty"`
	Subject    string              `json:"subject"`
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	// Used units of Of, at its nearest.
	Used int64     `json:"used"`
	Of   int64     `json:"of"`
	At   time.Time `json:"at"`
}

// Merge puts the answers of several nodes to one query together: denials are added up, of near ones the nearest counts. Also
// the answer of a single node goes through it, which has more rows than were asked for.
//
// Where a subject is not in a node's answer, what that may have counted nevertheless is added to Denied and to Error, so that
// Limited holds what it says.
func Merge(q Query, answers []Answer) Answer {
	merged := Answer{}
	rules := map[string]*known{}
	var told []map[string][]tally // of each of them, by rule
	for i := range answers {
		a := &answers[i]
		merged.Incomplete = merged.Incomplete || a.Incomplete
		told = append(told, a.tallies(rules))
		a.nearest(rules)
	}
	for id, k := range rules {
		for i := range answers {
			k.lists = append(k.lists, list{told[i][id], answers[i].floor(id)})
		}
	}
	merged.fill(rules, q.most())
	return merged
}

// tallies are the rows of Limited by rule. The rules get to be known.
func (a *Answer) tallies(rules map[string]*known) map[string][]tally {
	told := map[string][]tally{}
	for i := range a.Limited {
		l := &a.Limited[i]
		if s, ok := headgate.ParseSubject(l.Subject); ok {
			told[l.Rule] = append(told[l.Rule], tally{s, l.Denied, l.Error, encodeName(l.Attributes)})
			knownOf(rules, l.Rule)
		}
	}
	return told
}

func (a *Answer) nearest(rules map[string]*known) {
	for i := range a.Near {
		n := &a.Near[i]
		if s, ok := headgate.ParseSubject(n.Subject); ok && n.Of > 0 {
			k := knownOf(rules, n.Rule)
			k.near = append(k.near, nearest{s, n.Limit, n.Used, n.Of, shareOf(n.Used, n.Of), n.At.UnixNano(), encodeName(n.Attributes)})
		}
	}
}

// floor is how often a rule may have denied a subject that is not in the answer.
func (a *Answer) floor(rule string) int64 {
	if f, ok := a.Floors[rule]; ok {
		return f
	}
	return a.Floor
}

// known is what is known of a rule: parts of its denials, and who came near, in any order and more than once.
type known struct {
	lists []list
	near  []nearest
}

func knownOf(rules map[string]*known, id string) *known {
	k := rules[id]
	if k == nil {
		k = &known{}
		rules[id] = k
	}
	return k
}

// list is denials by subject. Who is not in it was denied at most floor times, and nobody in it has less than that.
type list struct {
	tallies []tally
	floor   int64
}

// sum adds lists up, each of denials of its own. Where somebody is not in one of them its floor counts, and may be wrong
// altogether.
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

// ranked is a row of a rule.
type ranked[T any] struct {
	rule string
	row  T
}

// fill makes the lists of an answer.
//
// No row is below the floor of its rule. So the first row that is cut off is above the floors of all rules that have none left.
func (a *Answer) fill(rules map[string]*known, most int) {
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
			if _, is := total[n.subject]; !is {
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
	listed := min(most, len(limited))
	a.Limited, a.Near = make([]Limited, 0, listed), make([]Near, 0, min(most, len(near)))
	a.Floors = map[string]int64{}
	for _, l := range limited[:listed] {
		a.Limited = append(a.Limited, Limited{l.rule, l.row.subject.String(), decodeName(l.row.name), l.row.denied, l.row.err})
		a.Floors[l.rule] = floors[l.rule]
	}
	for i, l := range limited[listed:] {
		if i == 0 {
			a.Floor = l.row.denied
		}
		if floor, is := a.Floors[l.rule]; is {
			a.Floors[l.rule] = max(floor, l.row.denied)
		}
	}
	for _, n := range near[:min(most, len(near))] {
		a.Near = append(a.Near, Near{
			n.rule, n.row.limit, n.row.subject.String(), decodeName(n.row.name), n.row.used, n.row.of, time.Unix(0, n.row.at).UTC(),
		})
	}
}
